"""The window's side of the worker: start it, keep it warm, hand it a job, stop it, survive its death.

Every submitted job ends with exactly one of JobDone, JobFailed, JobCancelled, whatever happens to the process. The
trap: a worker that waits idle with a model in memory is the system's first victim; a job that meets such a corpse
before anything was heard of it is handed to a fresh worker once. tests/core/worker/test_client.py kills at every point.
"""

import contextlib
import os
import signal
import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from core.errors import WorkerError
from core.library.names import discard_scratch
from core.phase import Phase
from core.worker import events
from core.worker.failures import not_started, worker_died
from core.worker.launch import WorkerProcess, start_worker

Listener = Callable[[events.Message], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """Seconds the client waits. A stop takes at most `stop_s + terminate_s`, which is 5 s."""

    idle_s: float = 600.0  # a warm worker without a job gives its memory back
    stop_s: float = 4.5  # from the request to stop until SIGTERM
    terminate_s: float = 0.5  # from SIGTERM until SIGKILL
    leave_s: float = 2.0  # for a process that was asked to leave


@dataclass(slots=True)
class Assignment:
    """The job in hand and what is known of it."""

    job: events.StartJob
    phase: Phase = Phase.STARTING
    heard_of: bool = False
    stopping: bool = False


@dataclass(slots=True)
class Warm:
    """A running worker, the model it holds, and whether it has finished a job."""

    process: WorkerProcess
    model: str
    used: bool = False
    reader: threading.Thread = field(init=False)


class WorkerClient:
    """One worker at most, one job at a time. `listener` is called from a thread of the client, in order."""

    def __init__(
        self,
        listener: Listener,
        *,
        start: Callable[[], WorkerProcess] = start_worker,
        patience: Patience = Patience(),
    ):
        self._listener = listener
        self._start = start
        self._patience = patience
        self._changed = threading.Condition(threading.RLock())
        self._warm: Warm | None = None
        self._assignment: Assignment | None = None
        self._idle: threading.Timer | None = None
        self._closed = False

    @property
    def worker_pid(self) -> int | None:
        """Process id of the worker, None when there is none."""
        with self._changed:
            return self._warm.process.process.pid if self._warm else None

    def submit(self, job: events.StartJob) -> None:
        """Run a job; its messages reach the listener. Raises WorkerError when another job runs or after `close`."""
        with self._changed:
            if self._closed:
                raise WorkerError("The worker client is closed.")
            if self._assignment:
                raise WorkerError(f"Job {self._assignment.job.job_id} is still running.")
            assignment = self._assignment = Assignment(job)
            self._stop_idle_timer()
            other = self._warm if self._warm and self._warm.model != model_of(job) else None
            if other:
                self._warm = None
        if other:
            self._dismiss(other)
        self._hand_over(assignment)

    def cancel(self, job_id: str) -> None:
        """Stop a job: asked first, forced after a while. Nothing happens when it is not the running one."""
        with self._changed:
            assignment = self._assignment
            if assignment is None or assignment.job.job_id != job_id or assignment.stopping:
                return
            assignment.stopping = True
            if self._warm:
                tell(self._warm, events.CancelJob(job_id=job_id))
        threading.Thread(target=self._insist, args=(assignment,), name="insist", daemon=True).start()

    def close(self) -> None:
        """End the worker, stopping its job; no process is left when this returns."""
        with self._changed:
            self._closed = True
            self._stop_idle_timer()
            warm, assignment = self._warm, self._assignment
            if assignment:
                assignment.stopping = True
                if warm:
                    tell(warm, events.CancelJob(job_id=assignment.job.job_id))
        if warm:
            self._dismiss(warm)

    # ---- starting and handing over
    def _hand_over(self, assignment: Assignment) -> None:
        try:
            warm = self._ready_worker(model_of(assignment.job))
        except OSError as error:
            self._finish(assignment, not_started(assignment.job.job_id, error))
            return
        except WorkerError:
            self._finish(assignment, events.JobCancelled(job_id=assignment.job.job_id))
            return
        tell(warm, assignment.job)
        with self._changed:
            if assignment.stopping:
                tell(warm, events.CancelJob(job_id=assignment.job.job_id))

    def _ready_worker(self, model: str) -> Warm:
        """The warm worker or a new one; raises OSError when it cannot be started, WorkerError after `close`."""
        with self._changed:
            if self._closed:
                raise WorkerError("The worker client was closed meanwhile.")
            if self._warm is None:
                warm = Warm(self._start(), model)
                warm.reader = threading.Thread(target=self._read, args=(warm,), name="worker reader", daemon=True)
                self._warm = warm
                warm.reader.start()
            return self._warm

    # ---- listening
    def _read(self, warm: Warm) -> None:
        """Turn frames into calls of the listener until the worker is gone."""
        with contextlib.suppress(WorkerError):  # a frame without sense: as good as dead
            while (message := warm.process.channel.receive()) is not None:
                self._hear(warm, message)
        self._worker_ended(warm, warm.process.end(self._patience.leave_s))

    def _hear(self, warm: Warm, message: events.Message) -> None:
        with self._changed:
            assignment = self._assignment
            if assignment is None or getattr(message, "job_id", "") != assignment.job.job_id:
                return
            assignment.heard_of = True
            if isinstance(message, events.PhaseStarted):
                assignment.phase = Phase(message.phase)
        if isinstance(message, events.FINAL_MESSAGES):
            warm.used = True
            self._finish(assignment, message)
        else:
            self._listener(message)

    def _worker_ended(self, warm: Warm, exit_code: int) -> None:
        """Give the job of a worker that is gone its end, or a second chance."""
        with self._changed:
            if self._warm is not warm:
                return
            self._warm = None
            assignment, job = self._assignment, self._assignment and self._assignment.job
        if assignment is None:
            return
        if job.output_path:
            discard_scratch(job.output_path)
        if assignment.stopping:
            self._finish(assignment, events.JobCancelled(job_id=job.job_id))
        elif warm.used and not assignment.heard_of:
            self._hand_over(assignment)
        else:
            self._finish(assignment, worker_died(job.job_id, exit_code, assignment.phase))

    def _finish(self, assignment: Assignment, message: events.Message) -> None:
        """Take the job out of hand and say how it ended; the first of two ends counts."""
        with self._changed:
            if self._assignment is not assignment:
                return
            self._assignment = None
            self._start_idle_timer()
            self._changed.notify_all()
        self._listener(message)

    # ---- ending
    def _insist(self, assignment: Assignment) -> None:
        """Force a worker that goes on in spite of a request to stop."""
        for number, wait_s in ((signal.SIGTERM, self._patience.stop_s), (signal.SIGKILL, self._patience.terminate_s)):
            with self._changed:
                if self._changed.wait_for(lambda: self._assignment is not assignment, wait_s):
                    return
                if self._warm:
                    self._warm.process.signal_group(number)

    def _dismiss(self, warm: Warm) -> None:
        """Ask a worker to leave, force it if need be, and wait until it is gone and its last message was heard."""
        tell(warm, events.Shutdown())
        warm.process.end(self._patience.leave_s)
        if warm.reader is not threading.current_thread():
            warm.reader.join()

    def _start_idle_timer(self) -> None:
        self._stop_idle_timer()
        if self._warm and not self._closed:
            self._idle = threading.Timer(self._patience.idle_s, self._release, (self._warm,))
            self._idle.daemon = True
            self._idle.start()

    def _stop_idle_timer(self) -> None:
        if self._idle:
            self._idle.cancel()
            self._idle = None

    def _release(self, warm: Warm) -> None:
        """Give the memory of an idle worker back."""
        with self._changed:
            if self._warm is not warm or self._assignment:
                return
            self._warm = None
        self._dismiss(warm)


def tell(warm: Warm, message: events.Message) -> None:
    """Send, or not: the reader learns of a dead worker by itself."""
    with contextlib.suppress(WorkerError):
        warm.process.channel.send(message)


def model_of(job: events.StartJob) -> str:
    """Which model a job needs in memory: its folder as an absolute path, or empty for the embedded one."""
    path = str(job.payload.get("model_path") or "")
    return os.path.realpath(path) if path else ""
