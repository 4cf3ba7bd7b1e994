"""Start the worker process: its command, its surroundings, its end of the socket.

The trap: in the bundle `sys.executable` is a bare Python without our code; the launcher, whose path is in
EXECUTABLEPATH, is the program. tests/core/worker/test_launch.py checks both branches.
"""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from core import paths
from core.worker.channel import Channel

APP_SCRIPT = Path(__file__).resolve().parents[2] / "app.py"
WORKER_FLAG = "--worker"
LOG_NAME = "worker.log"
LOG_LIMIT_BYTES = 4 * 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerProcess:
    """A started child and our end of the conversation with it."""

    process: subprocess.Popen
    channel: Channel

    def signal_group(self, number: int) -> None:
        """Signal the child and whatever it started; nothing happens when they are gone."""
        try:
            os.killpg(self.process.pid, number)
        except (ProcessLookupError, PermissionError):  # macOS answers EPERM for a group of zombies
            return

    def end(self, timeout_s: float) -> int:
        """Exit code of the child, waited for and then forced; its group is gone afterwards."""
        try:
            code = self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.signal_group(signal.SIGKILL)
            code = self.process.wait()
        self.signal_group(signal.SIGKILL)
        self.channel.close()
        return code


def worker_command(fd: int) -> list[str]:
    """Command line of a child that talks over file descriptor `fd`."""
    if getattr(sys, "frozen", False):
        return [os.environ["EXECUTABLEPATH"], WORKER_FLAG, str(fd)]
    return [sys.executable, str(APP_SCRIPT), WORKER_FLAG, str(fd)]


def worker_environment() -> dict[str, str]:
    """Our own environment, which the child needs whole, with UTF-8 text even where the desktop sets no LANG."""
    return {**os.environ, "PYTHONUTF8": "1", "PYTHONUNBUFFERED": "1"}


def worker_log() -> Path:
    """The log file all workers append to; the folder exists afterwards and an overlong file has become `.old`."""
    folder = paths.log_dir()
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / LOG_NAME
    if log.exists() and log.stat().st_size > LOG_LIMIT_BYTES:
        log.replace(log.with_suffix(".old"))
    return log


def start_worker(command: Callable[[int], list[str]] = worker_command) -> WorkerProcess:
    """Start a child in its own session (so that one signal reaches all it starts), its output in the log.

    raises: OSError when the program cannot be started
    """
    ours, theirs = socket.socketpair()
    try:
        with open(worker_log(), "ab") as log, theirs:
            process = subprocess.Popen(
                command(theirs.fileno()),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=APP_SCRIPT.parent,
                env=worker_environment(),
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
            )
    except BaseException:
        ours.close()
        raise
    return WorkerProcess(process=process, channel=Channel(ours))
