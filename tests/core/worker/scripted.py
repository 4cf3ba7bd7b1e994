"""Jobs for the scripted child, what a client heard, and whether a process still lives."""

import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import psutil

from core.worker import events
from core.worker.launch import WorkerProcess, start_worker

CHILD = Path(__file__).with_name("child.py")
TIMEOUT_S = 20.0


def child_command(fd: int) -> list[str]:
    return [sys.executable, str(CHILD), str(fd)]


def start_child() -> WorkerProcess:
    return start_worker(child_command)


class Heard:
    """Collects the messages of a client; tests wait for the one they need."""

    def __init__(self):
        self.messages: list[events.Message] = []
        self._changed = threading.Condition()

    def __call__(self, message: events.Message) -> None:
        with self._changed:
            self.messages.append(message)
            self._changed.notify_all()

    def wait(self, found: Callable[[list], bool], timeout_s: float = TIMEOUT_S) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: found(self.messages), timeout_s), self.messages

    def first(self, kind: type, job_id: str = "j") -> events.Message:
        """The first message of a kind about a job, waited for."""

        def of_kind(messages):
            return [m for m in messages if isinstance(m, kind) and getattr(m, "job_id", "") == job_id]

        self.wait(of_kind)
        return of_kind(self.messages)[0]

    def ends(self, job_id: str = "j") -> list[events.Message]:
        return [m for m in self.messages if isinstance(m, events.FINAL_MESSAGES) and m.job_id == job_id]


def play(*script, job_id: str = "j", model: str = "", output_path: str = "") -> events.StartJob:
    """A job for the scripted child."""
    payload = {"script": [list(step) for step in script], "model_path": model}
    return events.StartJob(job_id=job_id, kind="play", payload=payload, output_path=output_path)


def alive(pid: int) -> bool:
    """Whether a process runs; one that only waits to be reaped does not."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def gone_after_s(pid: int, limit_s: float) -> float:
    """Seconds until a process is gone; fails when it lives longer than the limit."""
    started = time.monotonic()
    while alive(pid):
        assert time.monotonic() - started < limit_s, f"process {pid} still runs after {limit_s} s"
        time.sleep(0.02)
    return time.monotonic() - started
