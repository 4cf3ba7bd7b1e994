"""When the window dies, nothing of ours lives on.

Tier: executed; the parent is a process of its own and is killed with signal 9. Cannot catch a worker whose kernel keeps
the interpreter lock, nor a logout on macOS.
"""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.core.worker.scripted import CHILD, alive, gone_after_s

PARENT = Path(__file__).with_name("parent.py")
LIMIT_S = 5.0


def start_parent(script: list) -> tuple[subprocess.Popen, int]:
    """A parent with a worker that plays the script; (parent, pid of the worker)."""
    command = [sys.executable, str(PARENT), str(CHILD), json.dumps(script)]
    parent = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    return parent, int(parent.stdout.readline())


def wait_for_pid(path: Path) -> int:
    deadline = time.monotonic() + 20
    while not (path.exists() and path.read_text(encoding="utf-8")):
        assert time.monotonic() < deadline, "the job did not start its program"
        time.sleep(0.02)
    return int(path.read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    ("work", "limit_s"),
    [(["wait"], 3.0), (["facts", {}], 3.0), (["deaf", 60], LIMIT_S)],
    ids=["working", "idle", "deaf"],
)
def test_kill_9_of_the_parent_leaves_no_worker_and_no_program_of_it(tmp_path, work, limit_s):
    parent, worker = start_parent([["program", str(tmp_path / "pid")], work])
    program = wait_for_pid(tmp_path / "pid")
    time.sleep(0.1)
    assert alive(worker) and alive(program)
    parent.kill()
    started = time.monotonic()
    gone_after_s(worker, limit_s)
    gone_after_s(program, limit_s - (time.monotonic() - started))
    parent.wait()
    parent.stdout.close()


def test_a_parent_that_simply_ends_leaves_no_worker_either(tmp_path):
    parent, worker = start_parent([["wait"]])
    os.kill(parent.pid, signal.SIGINT)
    parent.wait(10)
    parent.stdout.close()
    gone_after_s(worker, LIMIT_S)
