"""The typed messages between the window (or command line) and the worker process.

A message is a frozen dataclass; on the wire it is a JSON header plus raw bytes (core/worker/channel.py). Both sides
import this file and nothing heavier: no torch, no kernels.
"""

from dataclasses import asdict, dataclass, field
from enum import Enum

from core.phase import Phase


class JobKind(Enum):
    """What a worker can be asked to do; each kind has one runner in core/worker/process.py."""

    GENERATE = "generate"


# ---- window -> worker
@dataclass(frozen=True, slots=True, kw_only=True)
class StartJob:
    """Run one job. `payload` is the job's request as JSON types, `output_path` where the result goes.

    overwrite: whether an existing file there is replaced; otherwise the new one gets the next free name
    """

    job_id: str
    kind: str
    payload: dict
    output_path: str = ""
    overwrite: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelJob:
    """Stop the running job; acknowledged by `CancelSeen` within a second."""

    job_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Shutdown:
    """Leave the process when idle."""


# ---- worker -> window
@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerReady:
    """The child is up; torch and the kernels come with its first job, whose facts name the backend."""

    pid: int


@dataclass(frozen=True, slots=True, kw_only=True)
class JobStarted:
    job_id: str
    notices: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseStarted:
    """`total` units of work in this phase (steps, clips, ...), 0 when unknown."""

    job_id: str
    phase: str
    total: int

    def __post_init__(self):
        Phase(self.phase)  # ValueError for one nobody knows; the channel calls that an unreadable message


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """`done` of `total` units of `phase`; `elapsed_s` since the job started."""

    job_id: str
    phase: str
    done: int
    total: int
    elapsed_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PreviewFrame:
    """A rough picture of the estimated clean clip: `blob` is width*height*3 RGB bytes. `step` counts from 1."""

    job_id: str
    step: int
    width: int
    height: int
    blob: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """Something the person should know about the running job; it goes on."""

    job_id: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelSeen:
    """The worker has seen the stop request; `waits_for` says what it finishes first, if anything."""

    job_id: str
    waits_for: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobDone:
    """The result: path of the file and JSON facts (seed, timings, sizes, findings)."""

    job_id: str
    output_path: str
    facts: dict = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFailed:
    """`kind` is the `kind` of the error class, "crash" for any other exception; `detail` the traceback for the log."""

    job_id: str
    kind: str
    message: str
    hint: str = ""
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobCancelled:
    job_id: str


Message = (
    StartJob | CancelJob | Shutdown | WorkerReady | JobStarted | PhaseStarted | Progress | PreviewFrame | Notice
    | CancelSeen | JobDone | JobFailed | JobCancelled
)  # fmt: skip
MESSAGE_TYPES = {cls.__name__: cls for cls in Message.__args__}
FINAL_MESSAGES = (JobDone, JobFailed, JobCancelled)


def to_wire(message: Message) -> tuple[dict, bytes]:
    """(JSON header, raw bytes) of a message."""
    header = asdict(message)
    blob = header.pop("blob", b"")
    return {"type": type(message).__name__, **header}, blob


def from_wire(header: dict, blob: bytes) -> Message:
    """Message of a header and its bytes; unknown types raise KeyError."""
    fields = dict(header)
    cls = MESSAGE_TYPES[fields.pop("type")]
    if "blob" in cls.__slots__:
        fields["blob"] = blob
    return cls(**fields)
