"""How the child is started.

Tier: executed. Cannot catch what a signed bundle on macOS adds; the frozen branch is checked as far as it is ours.
"""

import signal
import sys

import psutil
import pytest

from core.worker import launch
from core.worker.launch import APP_SCRIPT, start_worker, worker_command, worker_log
from tests.core.worker.scripted import gone_after_s, start_child

ECHO = "import os, sys; print('héllo', os.getcwd(), os.getpgrp() == os.getpid()); sys.stderr.write('err\\n')"


def test_outside_a_bundle_python_runs_the_app(monkeypatch):
    monkeypatch.delattr(sys, "frozen", raising=False)
    assert worker_command(7) == [sys.executable, str(APP_SCRIPT), "--worker", "7"]
    assert APP_SCRIPT.is_absolute() and APP_SCRIPT.is_file()


def test_in_a_bundle_the_launcher_runs_itself(monkeypatch):
    monkeypatch.setattr(sys, "frozen", "macosx_app", raising=False)
    monkeypatch.setenv("EXECUTABLEPATH", "/Apps/My Vignette.app/Contents/MacOS/Vignette")
    assert worker_command(7) == ["/Apps/My Vignette.app/Contents/MacOS/Vignette", "--worker", "7"]


def test_what_the_child_prints_goes_to_the_log_in_utf8_without_a_locale(monkeypatch, own_home):
    for name in ("LANG", "LC_ALL", "LC_CTYPE", "PYTHONUTF8", "PYTHONIOENCODING"):
        monkeypatch.delenv(name, raising=False)
    worker = start_worker(lambda fd: [sys.executable, "-c", ECHO])
    assert worker.end(10) == 0
    log = worker_log().read_text(encoding="utf-8")
    assert worker_log().is_relative_to(own_home)
    assert f"héllo {APP_SCRIPT.parent} True" in log and "err" in log


def test_the_log_does_not_grow_for_ever(monkeypatch):
    monkeypatch.setattr(launch, "LOG_LIMIT_BYTES", 10)
    worker_log().write_text("old and long", encoding="utf-8")
    assert not worker_log().exists()
    assert worker_log().with_suffix(".old").read_text(encoding="utf-8") == "old and long"


def test_the_child_gets_its_end_of_the_socket_and_no_other_file():
    listing = "import os; print(sorted(int(n) for n in os.listdir('/dev/fd') if int(n) > 2), flush=True)"
    worker = start_worker(lambda fd: [sys.executable, "-c", f"{listing}; print('mine', {fd})"])
    worker.end(10)
    seen, mine = worker_log().read_text(encoding="utf-8").splitlines()
    numbers = [int(word) for word in seen.strip("[]").split(",")]
    assert int(mine.removeprefix("mine ")) in numbers and len(numbers) == 2  # the other one is the listing itself


def test_a_program_that_does_not_exist_leaves_no_open_socket():
    before = psutil.Process().num_fds()
    with pytest.raises(OSError):
        start_worker(lambda fd: ["/nowhere/python", str(fd)])
    assert psutil.Process().num_fds() == before


def test_ending_a_worker_that_does_not_leave_kills_it_and_what_it_started(tmp_path):
    script = "import subprocess, sys, time; print(subprocess.Popen(['sleep', '600']).pid, flush=True); time.sleep(600)"
    worker = start_worker(lambda fd: [sys.executable, "-c", script])
    while not (text := worker_log().read_text(encoding="utf-8")):
        pass
    assert worker.end(0.1) == -signal.SIGKILL
    gone_after_s(int(text), 5)


def test_ending_twice_is_harmless():
    worker = start_child()
    worker.signal_group(signal.SIGKILL)
    assert worker.end(5) == worker.end(5) == -signal.SIGKILL
