"""Jobs belong to the window's process, not to a page: a queue, one running, any number of watchers.

A page that closes or reloads stops nothing and finds the job again. The trap: a slow watcher must neither block the
others nor see a backlog, so a watcher gets the state as it is now, not every event. tests/core/worker/test_jobs.py.
"""

import os
import threading
import time
import uuid
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from enum import Enum

from core.errors import WorkerError
from core.phase import Phase
from core.request import GenerationRequest
from core.worker import events
from core.worker.client import Listener, WorkerClient
from core.worker.failures import failed_with

KEPT_JOBS = 50  # older finished ones are forgotten; the library remembers their clips


class JobState(Enum):
    QUEUED = "queued"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSnapshot:
    """A job at one moment. `done` of `total` units of `phase`; `elapsed_s` counts from the start to now or the end."""

    job_id: str
    kind: str
    payload: dict
    output_path: str
    state: JobState = JobState.QUEUED
    phase: Phase = Phase.STARTING
    done: int = 0
    total: int = 0
    elapsed_s: float = 0.0
    preview: events.PreviewFrame | None = None
    notices: tuple[str, ...] = ()
    stopping: bool = False
    stop_seen: bool = False  # the worker has acknowledged the request to stop
    waits_for: str = ""  # the phase a stop waits for, once it was seen
    result: events.JobDone | None = None
    error: events.JobFailed | None = None

    @property
    def over(self) -> bool:
        return self.state in (JobState.DONE, JobState.FAILED, JobState.CANCELLED)


def advance(job: JobSnapshot, message: events.Message) -> JobSnapshot:
    """The job after a message about it. Pure; messages after the end change nothing."""
    if job.over:
        return job
    match message:
        case events.JobStarted(notices=notices):
            return replace(job, notices=job.notices + tuple(notices))
        case events.Notice(text=text):
            return replace(job, notices=(*job.notices, text))
        case events.PhaseStarted(phase=phase, total=total):
            return replace(job, phase=Phase(phase), done=0, total=total)
        case events.Progress(phase=phase, done=done, total=total):
            return replace(job, phase=Phase(phase), done=done, total=total)
        case events.PreviewFrame():
            return replace(job, preview=message)
        case events.CancelSeen(waits_for=waits_for):
            return replace(job, stop_seen=True, waits_for=waits_for)
        case events.JobDone():
            return replace(job, state=JobState.DONE, result=message, output_path=message.output_path)
        case events.JobFailed():
            return replace(job, state=JobState.FAILED, error=message)
        case events.JobCancelled():
            return replace(job, state=JobState.CANCELLED)
    return job


@dataclass(slots=True)
class Record:
    """A job with what only the manager needs. `version` grows with every change."""

    job: JobSnapshot
    started_s: float = 0.0
    version: int = field(default=0)

    def change(self, job: JobSnapshot) -> None:
        self.job = replace(job, elapsed_s=self.elapsed_s()) if job.over else job
        self.version += 1

    def elapsed_s(self) -> float:
        running = self.job.state is JobState.RUNNING
        return round(time.monotonic() - self.started_s, 3) if running else self.job.elapsed_s

    def snapshot(self) -> JobSnapshot:
        return replace(self.job, elapsed_s=self.elapsed_s())


class JobManager:
    """The queue of one app. Every method may be called from any thread and returns at once; `watch` waits."""

    def __init__(self, make_client: Callable[[Listener], WorkerClient] = WorkerClient):
        self._changed = threading.Condition()
        self._records: OrderedDict[str, Record] = OrderedDict()
        self._queue: deque[str] = deque()
        self._running: str | None = None
        self._closed = False
        self._client = make_client(self._hear)
        threading.Thread(target=self._dispatch, name="job queue", daemon=True).start()

    # ---- what the window and the command line call
    def submit(self, request: GenerationRequest, output_path: str | os.PathLike) -> str:
        """Queue a clip; returns its job id."""
        return self.submit_job(events.JobKind.GENERATE, request.to_json(), output_path)

    def submit_job(self, kind: events.JobKind | str, payload: dict, output_path: str | os.PathLike = "") -> str:
        """Queue a job of any kind; `payload` is its request as JSON types. Returns its job id."""
        job = JobSnapshot(
            job_id=uuid.uuid4().hex,
            kind=kind.value if isinstance(kind, events.JobKind) else kind,
            payload=payload,
            output_path=os.path.abspath(output_path) if output_path else "",
        )
        with self._changed:
            if self._closed:
                raise WorkerError("The app is closing; no job can be queued.")
            self._records[job.job_id] = Record(job)
            self._queue.append(job.job_id)
            self._forget_old()
            self._changed.notify_all()
        return job.job_id

    def cancel(self, job_id: str) -> None:
        """Stop a running job or take a waiting one out of the queue; nothing happens to a finished one."""
        with self._changed:
            record = self._record(job_id)
            if record.job.over:
                return
            if job_id in self._queue:
                self._queue.remove(job_id)
                record.change(replace(record.job, state=JobState.CANCELLED))
            else:
                record.change(replace(record.job, stopping=True))
            self._changed.notify_all()
        self._client.cancel(job_id)

    def snapshot(self, job_id: str) -> JobSnapshot:
        """The job now; raises WorkerError for an unknown id."""
        with self._changed:
            return self._record(job_id).snapshot()

    def jobs(self) -> list[JobSnapshot]:
        """All jobs known, oldest first."""
        with self._changed:
            return [record.snapshot() for record in self._records.values()]

    def current(self) -> JobSnapshot | None:
        """The running job, if any: what a reloaded page attaches to."""
        with self._changed:
            return self._record(self._running).snapshot() if self._running else None

    def watch(self, job_id: str, *, tick_s: float | None = None) -> Iterator[JobSnapshot]:
        """The job now, again after each change (and each `tick_s`, for a clock), until it is over.

        Changes that come faster than the caller takes them are merged. Closing the iterator does not touch the job.
        """
        with self._changed:
            record = self._record(job_id)
        version, job = self._next_state(record, -1, tick_s)
        yield job
        while not job.over:
            version, job = self._next_state(record, version, tick_s)
            yield job

    def wait(self, job_id: str) -> JobSnapshot:
        """The job at its end."""
        with self._changed:
            record = self._record(job_id)
            self._changed.wait_for(lambda: record.job.over)
            return record.snapshot()

    def close(self) -> None:
        """Cancel everything and end the worker; no process is left when this returns."""
        with self._changed:
            self._closed = True
            while self._queue:
                record = self._records[self._queue.popleft()]
                record.change(replace(record.job, state=JobState.CANCELLED))
            self._changed.notify_all()
        self._client.close()

    # ---- inside
    def _next_state(self, record: Record, seen: int, tick_s: float | None) -> tuple[int, JobSnapshot]:
        """(version, job) once the version is not `seen` any more, or after `tick_s`."""
        with self._changed:
            self._changed.wait_for(lambda: record.version != seen, tick_s)
            return record.version, record.snapshot()

    def _record(self, job_id: str) -> Record:
        if job_id not in self._records:
            raise WorkerError(
                f"There is no job {job_id!r}.", hint="It may be long over: look among the finished clips."
            )
        return self._records[job_id]

    def _forget_old(self) -> None:
        over = [job_id for job_id, record in self._records.items() if record.job.over]
        for job_id in over[:-KEPT_JOBS]:
            del self._records[job_id]

    def _dispatch(self) -> None:
        """Hand the jobs to the worker, one after the other."""
        while (job := self._next_job()) is not None:
            start = events.StartJob(job_id=job.job_id, kind=job.kind, payload=job.payload, output_path=job.output_path)
            try:
                self._client.submit(start)
            except WorkerError as error:
                self._hear(failed_with(job.job_id, error, Phase.STARTING))
            if self.snapshot(job.job_id).stopping:  # the request to stop may have come before the client had the job
                self._client.cancel(job.job_id)

    def _next_job(self) -> JobSnapshot | None:
        """The next job, now running, once its turn has come; None when the manager closes."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or (self._queue and self._running is None))
            if self._closed:
                return None
            self._running = self._queue.popleft()
            record = self._records[self._running]
            record.started_s = time.monotonic()
            record.change(replace(record.job, state=JobState.RUNNING))
            self._changed.notify_all()
            return record.job

    def _hear(self, message: events.Message) -> None:
        """Take a message of the worker into the state of its job."""
        with self._changed:
            record = self._records.get(getattr(message, "job_id", ""))
            if record is None:
                return
            record.change(advance(record.job, message))
            if record.job.over and self._running == record.job.job_id:
                self._running = None
            self._changed.notify_all()
