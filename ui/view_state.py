"""What each part of the window shows for a state of the job: pure, no Gradio, no threads.

The trap: nothing here may pretend. A segment of the rail fills by counted units, the remaining time comes from measured
units of the same phase, and where nothing was counted nothing is said. Proof: tests/ui/test_view_state.py.
"""

from dataclasses import dataclass

from core.phase import Phase
from core.request import GenerationRequest
from core.worker.jobs import JobSnapshot, JobState
from ui import messages
from ui.form import Sentence, seconds_of
from ui.messages import ErrorText


@dataclass(frozen=True, slots=True, kw_only=True)
class StageEmpty:
    title: str
    hint: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StagePreview:
    """A rough picture: `rgb` is width*height*3 bytes."""

    step: int
    width: int
    height: int
    rgb: bytes
    caption: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StageVideo:
    path: str
    caption: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RailItem:
    """One phase: `state` is "done", "active" or "todo"; `total` is 0 when its units are unknown."""

    words: str
    state: str
    done: int = 0
    total: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusText:
    """`state` is "idle", "running", "stopping", or how the job ended: "done", "failed", "cancelled"."""

    state: str = "idle"
    headline: str = ""
    timing: str = ""
    rail: tuple[RailItem, ...] = ()
    notices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultText:
    path: str
    saved: str
    facts: str
    download: str


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """The whole window but for the form."""

    busy: bool
    stopping: bool
    stage: StageEmpty | StagePreview | StageVideo
    status: StatusText
    error: ErrorText | None = None
    result: ResultText | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How fast the units of the current phase come: where the counting began and when the latest unit was finished."""

    phase: Phase = Phase.STARTING
    first_done: int = 0
    first_s: float = 0.0
    last_done: int = 0
    last_s: float = 0.0

    def after(self, job: JobSnapshot) -> "Pace":
        """The pace once `job` was seen; a new phase starts anew."""
        now = {"last_done": job.done, "last_s": job.elapsed_s}
        if job.phase is not self.phase:
            return Pace(phase=job.phase, first_done=job.done, first_s=job.elapsed_s, **now)
        if job.done == self.last_done:
            return self
        return Pace(phase=self.phase, first_done=self.first_done, first_s=self.first_s, **now)

    def remaining_s(self, job: JobSnapshot) -> float | None:
        """Seconds left in the phase, None before a unit was measured or when the total is unknown."""
        units = self.last_done - self.first_done
        if units <= 0 or job.total <= 0:
            return None
        per_unit_s = (self.last_s - self.first_s) / units
        return max(0.0, per_unit_s * (job.total - job.done) - (job.elapsed_s - self.last_s))


def idle_view(language: str) -> View:
    """The window before the first clip."""
    return View(busy=False, stopping=False, stage=_invitation(language), status=StatusText())


def job_view(job: JobSnapshot, pace: Pace, language: str, notices: tuple[Sentence, ...] = ()) -> View:
    """The window for a job. `notices` are the form's own; the worker's are in the snapshot."""
    request = GenerationRequest.from_json(job.payload)
    return View(
        busy=not job.over,
        stopping=job.stopping and not job.over,
        stage=_stage(job, request, language),
        status=_status(job, pace, language, notices),
        error=_error(job, language),
        result=_result(job, request, language),
    )


def form_error(language: str, problems: tuple[Sentence, ...]) -> ErrorText:
    """The error box for a form that describes no clip."""
    return ErrorText(
        title=messages.text(language, "error.form"),
        details=tuple(messages.text(language, problem.key, **problem.values) for problem in problems),
        hint=messages.text(language, "hint.form"),
    )


def _stage(job: JobSnapshot, request: GenerationRequest, language: str) -> StageEmpty | StagePreview | StageVideo:
    if job.state is JobState.DONE:
        return StageVideo(path=job.output_path, caption=messages.text(language, "stage.video", prompt=request.prompt))
    if job.preview is not None:
        frame = job.preview
        return StagePreview(
            step=frame.step,
            width=frame.width,
            height=frame.height,
            rgb=frame.blob,
            caption=messages.text(language, "stage.preview_step", step=frame.step),
        )
    if job.over:
        return _invitation(language)
    return StageEmpty(title=_phase_words(job, language), hint=messages.text(language, "stage.waiting"))


def _invitation(language: str) -> StageEmpty:
    return StageEmpty(title=messages.text(language, "stage.empty"), hint=messages.text(language, "stage.empty_hint"))


def _phase_words(job: JobSnapshot, language: str) -> str:
    return messages.text(language, "phase.queued" if job.state is JobState.QUEUED else f"phase.{job.phase.value}")


def _status(job: JobSnapshot, pace: Pace, language: str, notices: tuple[Sentence, ...]) -> StatusText:
    own = tuple(messages.text(language, notice.key, **notice.values) for notice in notices)
    if job.over:
        took = messages.text(language, "time.took", time=messages.duration(language, job.elapsed_s))
        return StatusText(
            state=job.state.value,
            headline=messages.text(language, f"status.{job.state.value}"),
            timing=took,
            notices=own + job.notices,
        )
    return StatusText(
        state="stopping" if job.stopping else "running",
        headline=_headline(job, language),
        timing=_timing(job, pace, language),
        rail=_rail(job, language),
        notices=own + job.notices,
    )


def _headline(job: JobSnapshot, language: str) -> str:
    if job.stopping:
        words = [messages.text(language, "status.stopping")]
        if job.waits_for in {phase.value for phase in Phase}:
            what = messages.text(language, f"phase.{job.waits_for}")
            words.append(messages.text(language, "status.waits_for", what=what))
        return " · ".join(words)
    words = [_phase_words(job, language)]
    if job.total:
        key = "status.step" if job.phase is Phase.DENOISE else "status.part"
        words.append(messages.text(language, key, done=job.done, total=job.total))
    return " · ".join(words)


def _timing(job: JobSnapshot, pace: Pace, language: str) -> str:
    words = [messages.text(language, "time.elapsed", time=messages.duration(language, job.elapsed_s))]
    remaining_s = pace.remaining_s(job)
    if remaining_s is not None and not job.stopping and job.done < job.total:
        time = messages.duration(language, max(1.0, remaining_s))
        words.append(messages.text(language, "time.remaining", time=time))
    return " · ".join(words)


def _rail(job: JobSnapshot, language: str) -> tuple[RailItem, ...]:
    order = list(Phase)
    here = order.index(job.phase)
    items = []
    for position, phase in enumerate(order):
        words = messages.text(language, f"rail.{phase.value}")
        if position == here and job.state is JobState.RUNNING:
            items.append(RailItem(words=words, state="active", done=job.done, total=job.total))
        else:
            items.append(RailItem(words=words, state="done" if position < here else "todo"))
    return tuple(items)


def _error(job: JobSnapshot, language: str) -> ErrorText | None:
    if job.error is None:
        return None
    return messages.error_text(language, job.error.kind, message=job.error.message, hint=job.error.hint)


def _result(job: JobSnapshot, request: GenerationRequest, language: str) -> ResultText | None:
    if job.state is not JobState.DONE:
        return None
    facts = {"width": request.width, "height": request.height, "frames": request.frame_count, "seed": request.seed}
    return ResultText(
        path=job.output_path,
        saved=messages.text(language, "result.saved"),
        facts=messages.text(language, "result.facts", seconds=seconds_of(request.frame_count), **facts),
        download=messages.text(language, "result.download"),
    )
