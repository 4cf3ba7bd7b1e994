"""The worker: runs one job after another in the main thread, listens in a second, talks in a third.

The trap: compute code is deaf for minutes, so a stop request is seen and answered by the listening thread (ctypes and
torch give the interpreter away while they work), and a slow reader must never hold the render up, so reports wait in an
outbox where a newer preview replaces an older one. macOS has no signal for the death of a parent: the end of the
socket, or a new parent id, ends us. tests/core/worker/test_process.py and test_orphans.py prove both.
"""

import faulthandler
import os
import queue
import signal
import socket
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NoReturn

import numpy as np

from core.errors import Cancelled, WorkerError
from core.kernels.backend import CancelFlag
from core.phase import Phase
from core.worker import events
from core.worker.channel import Channel, encode
from core.worker.failures import failed_with

PARENT_POLL_S = 1.0
ORPHAN_GRACE_S = 3.5  # a parent that dies leaves nothing of ours after 5 s, on a busy machine either
ANNOUNCE_S = 0.2  # wait for a slow reader to take the announcement of a phase
FLUSH_S = 2.0  # wait for a slow reader to take the last messages
NICENESS = 10  # the machine stays usable while a render runs


class Outbox:
    """Messages on their way to the window, in order, sent by a thread of its own.

    Of waiting previews only the latest is kept, and of waiting progress of one phase too; nothing else is ever dropped.
    """

    def __init__(self, channel: Channel):
        self._channel = channel
        self._waiting: list[tuple[events.Message, bytes]] = []
        self._changed = threading.Condition()
        self._sending = False
        self._broken = False
        threading.Thread(target=self._send_all, name="outbox", daemon=True).start()

    def post(self, message: events.Message) -> None:
        """Queue a message and return at once; raises WorkerError when it cannot be put into a frame."""
        frame = encode(message)
        with self._changed:
            if not self._broken:
                self._waiting = [item for item in self._waiting if not outdated(item[0], message)]
                self._waiting.append((message, frame))
                self._changed.notify_all()

    def flush(self, timeout_s: float) -> bool:
        """Whether everything was handed to the socket within `timeout_s`."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._waiting and not self._sending, timeout_s)

    def _send_all(self) -> None:
        while not self._broken:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting)
                (_, frame), self._sending = self._waiting.pop(0), True
            sent = self._sent(frame)
            with self._changed:
                self._sending = False
                if not sent:
                    self._broken, self._waiting = True, []
                self._changed.notify_all()

    def _sent(self, frame: bytes) -> bool:
        try:
            self._channel.send_frame(frame)
        except WorkerError:
            return False
        return True


def outdated(old: events.Message, new: events.Message) -> bool:
    """Whether a waiting message says nothing any more once `new` is behind it."""
    if isinstance(old, events.PreviewFrame):
        return isinstance(new, events.PreviewFrame)
    return isinstance(old, events.Progress) and isinstance(new, events.Progress) and old.phase == new.phase


class Reporter:
    """What a runner tells the window about its job. Only `phase` waits for the reader, and not for long."""

    def __init__(self, job_id: str, outbox: Outbox):
        self._job_id = job_id
        self._outbox = outbox
        self._started = time.monotonic()
        self.current = Phase.STARTING

    def phase(self, phase: Phase, total: int) -> None:
        """A phase begins; `total` units of work in it, 0 when unknown.

        The announcement is on its way before the work begins, so that a crash is blamed on the right phase.
        """
        self.current = Phase(phase)
        self._outbox.post(events.PhaseStarted(job_id=self._job_id, phase=self.current.value, total=int(total)))
        self._outbox.flush(ANNOUNCE_S)

    def progress(self, done: int, total: int) -> None:
        """Units of the current phase finished so far."""
        self._outbox.post(
            events.Progress(
                job_id=self._job_id,
                phase=self.current.value,
                done=int(done),
                total=int(total),
                elapsed_s=round(time.monotonic() - self._started, 3),
            )
        )

    def preview(self, step: int, rgb: np.ndarray) -> None:
        """A rough picture, uint8 [h, w, 3], after evaluation `step` (from 1); dropped if a newer one overtakes it."""
        height, width, _ = rgb.shape
        blob = np.ascontiguousarray(rgb).tobytes()
        self._outbox.post(
            events.PreviewFrame(job_id=self._job_id, step=int(step), width=width, height=height, blob=blob)
        )

    def notice(self, text: str) -> None:
        """A sentence the person should see, such as a fallback that was taken."""
        self._outbox.post(events.Notice(job_id=self._job_id, text=text))


Runner = Callable[[events.StartJob, Reporter, CancelFlag], dict]
"""Runs one kind of job and returns its facts as JSON types; an `output_path` among them wins over the job's own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A job in the worker. `over` is set once its last message is in the outbox."""

    start: events.StartJob
    reporter: Reporter
    cancel: CancelFlag = field(default_factory=CancelFlag)
    over: threading.Event = field(default_factory=threading.Event)


class Worker:
    """The three threads around one channel."""

    def __init__(self, channel: Channel, runners: Mapping[str, Runner]):
        self._channel = channel
        self._runners = runners
        self._outbox = Outbox(channel)
        self._queue: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._jobs: dict[str, Job] = {}
        self._parent = os.getppid()

    def run(self) -> None:
        """Serve until the window says so or is gone."""
        self._outbox.post(events.WorkerReady(pid=os.getpid()))
        threading.Thread(target=self._listen, name="listener", daemon=True).start()
        while (job := self._queue.get()) is not None:
            self._run_job(job)
            del self._jobs[job.start.job_id]
            job.over.set()
        self._outbox.flush(FLUSH_S)

    # ---- the main thread
    def _run_job(self, job: Job) -> None:
        """Run a job and put its end, whatever it is, into the outbox."""
        job_id = job.start.job_id
        self._outbox.post(events.JobStarted(job_id=job_id))
        self._outbox.flush(ANNOUNCE_S)  # a job that was heard of is not tried a second time
        try:
            job.cancel.check()
            facts = dict(self._runner(job.start.kind)(job.start, job.reporter, job.cancel))
            output_path = str(facts.pop("output_path", job.start.output_path))
            self._outbox.post(events.JobDone(job_id=job_id, output_path=output_path, facts=plain(facts)))
        except Cancelled:
            self._outbox.post(events.JobCancelled(job_id=job_id))
        except BaseException as error:  # the process outlives any error of a runner, and the window hears of it
            traceback.print_exc()
            self._outbox.post(failed_with(job_id, error, job.reporter.current))

    def _runner(self, kind: str) -> Runner:
        if kind not in self._runners:
            raise WorkerError(f"The worker knows no job {kind!r}; it knows {sorted(self._runners)}.")
        return self._runners[kind]

    # ---- the listening thread
    def _listen(self) -> None:
        try:
            while (message := self._next_message()) is not None:
                self._react(message)
        except WorkerError:
            traceback.print_exc()
        self._parent_gone()

    def _next_message(self) -> events.Message | None:
        """The next message; None at the end of the socket or when another process has become our parent."""
        while not self._channel.wait(PARENT_POLL_S):
            if os.getppid() != self._parent:
                return None
        return self._channel.receive()

    def _react(self, message: events.Message) -> None:
        match message:
            case events.StartJob():
                job = Job(start=message, reporter=Reporter(message.job_id, self._outbox))
                self._jobs[message.job_id] = job
                self._queue.put(job)
            case events.CancelJob(job_id=job_id) if job := self._jobs.get(job_id):
                job.cancel.set()
                self._outbox.post(events.CancelSeen(job_id=job_id, waits_for=job.reporter.current.value))
            case events.Shutdown():
                self._queue.put(None)

    def _parent_gone(self) -> None:
        """Let the jobs unwind and clean up after themselves, but not for long."""
        self._queue.put(None)
        deadline = time.monotonic() + ORPHAN_GRACE_S
        jobs = list(self._jobs.values())
        for job in jobs:
            job.cancel.set()
        for job in jobs:
            if not job.over.wait(max(0.0, deadline - time.monotonic())):
                end_group()


def end_group() -> NoReturn:
    """Leave at once and take along what we started; a process that shares its group with others only leaves."""
    if os.getpgrp() == os.getpid():
        os.killpg(os.getpid(), signal.SIGKILL)
    os._exit(1)


def plain(value: object) -> object:
    """`value` as JSON types: NumPy numbers and arrays become plain ones, whatever else is unknown its text.

    A finished render must not be lost to a number of the wrong type among its facts.
    """
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, np.generic | np.ndarray):
        return plain(value.tolist())
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)


def serve(end: socket.socket, runners: Mapping[str, Runner]) -> None:
    """Answer jobs over `end`, running them in the calling thread, until it closes or a Shutdown arrives."""
    os.set_inheritable(end.fileno(), False)
    channel = Channel(end)
    Worker(channel, runners).run()
    channel.close()


class LateRunners(Mapping[str, Runner]):
    """Runners that are made when the first job looks for its own: the listener answers before torch is imported."""

    def __init__(self, make: Callable[[], Mapping[str, Runner]]):
        self._make = make
        self._made: Mapping[str, Runner] | None = None

    def _runners(self) -> Mapping[str, Runner]:
        if self._made is None:
            self._made = self._make()
        return self._made

    def __getitem__(self, kind: str) -> Runner:
        return self._runners()[kind]

    def __iter__(self) -> Iterator[str]:
        return iter(self._runners())

    def __len__(self) -> int:
        return len(self._runners())


def serve_alone(fd: int, runners: Mapping[str, Runner]) -> NoReturn:
    """`serve` as the whole purpose of this process: low priority, traces of crashes in the log."""
    os.nice(max(0, NICENESS - os.nice(0)))  # os.nice adds: a parent of low priority must not starve us
    faulthandler.enable()
    serve(socket.socket(fileno=fd), runners)
    end_group()


def main(fd: int) -> NoReturn:
    """The worker of the app: talks over file descriptor `fd`."""
    serve_alone(fd, LateRunners(production_runners))


def production_runners() -> Mapping[str, Runner]:
    """What the app's worker can do. Importing it brings torch and the kernels."""
    from core.worker.runners import make_runners

    return make_runners()
