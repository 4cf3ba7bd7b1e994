"""The window's side: one warm worker, exactly one end for every job, whatever happens to the process.

Tier: executed, with real child processes killed for real. Cannot catch how macOS words its own memory kills.
"""

import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from core.errors import WorkerError
from core.library.names import scratch_folder
from core.phase import Phase
from core.worker import events
from core.worker.client import Patience
from core.worker.failures import DURING
from core.worker.launch import APP_SCRIPT
from tests.core.worker.scripted import alive, gone_after_s, play

QUICK = Patience(stop_s=0.3, terminate_s=0.3, leave_s=1.0)


def test_a_job_reports_and_ends_and_the_worker_stays_warm(client, heard):
    client.submit(play(["phase", "denoise", 2], ["progress", 1, 2], ["preview", 1, 3, 2], ["facts", {"seed": "7"}]))
    done = heard.first(events.JobDone)
    assert done.facts == {"seed": "7"}
    assert heard.first(events.PreviewFrame).blob == bytes([1]) * 18
    pid = client.worker_pid
    client.submit(play(job_id="k"))
    heard.first(events.JobDone, "k")
    assert client.worker_pid == pid and alive(pid)


def test_the_worker_yields_to_the_machine_and_loads_no_torch_by_itself(client, heard):
    client.submit(play(["nice"]))
    facts = heard.first(events.JobDone).facts
    assert facts["nice"] == max(10, os.nice(0)) and facts["torch"] is False and facts["pid"] == client.worker_pid


def test_numpy_numbers_among_the_facts_do_not_lose_a_finished_render(client, heard):
    client.submit(play(["odd facts"]))
    assert heard.first(events.JobDone).facts == {"n": 3, "x": 0.5, "a": [0, 1], "p": "/p"}


def test_what_libraries_print_does_not_disturb_the_conversation(client, heard, own_home):
    client.submit(play(["print", "Image: failed to import 夜"]))
    heard.first(events.JobDone)
    assert "failed to import 夜" in (own_home / "logs" / "worker.log").read_text(encoding="utf-8")


def test_kill_9_in_any_phase_is_one_sentence_and_the_next_job_works(client, heard):
    for phase in Phase:
        client.submit(play(["phase", phase.value, 0], ["wait"], job_id=phase.value))
        heard.first(events.PhaseStarted, phase.value)
        pid = client.worker_pid
        os.kill(pid, signal.SIGKILL)
        failed = heard.first(events.JobFailed, phase.value)
        assert failed.kind == "worker" and "out of memory" in failed.message and DURING[phase] in failed.message
        assert "fewer frames" in failed.hint and len(heard.ends(phase.value)) == 1
        assert not alive(pid)
    client.submit(play())
    heard.first(events.JobDone)


ENDS = [["die", signal.SIGSEGV], ["die", signal.SIGABRT], ["die", signal.SIGTERM], ["leave", 0], ["leave", 1]]


def test_any_other_death_right_after_a_phase_began_is_blamed_on_that_phase(client, heard):
    for number, end in enumerate(ENDS):
        client.submit(play(["phase", "video_decode", 0], end, job_id=str(number)))
        failed = heard.first(events.JobFailed, str(number))
        assert failed.kind == "worker" and "while making the pictures" in failed.message
    client.submit(play())
    heard.first(events.JobDone)


ERRORS = [
    ("media", "media", "The pictures burnt."),
    ("value", "crash", "three is not four"),
    ("memory", "memory", "ran out of memory during denoising"),
    ("torch", "memory", "ran out of memory during denoising"),
    ("exit", "crash", "SystemExit: 3"),
]


def test_an_error_in_a_job_keeps_the_worker(client, heard):
    pids = set()
    for name, kind, words in ERRORS:
        client.submit(play(["phase", "denoise", 0], ["raise", name], job_id=name))
        failed = heard.first(events.JobFailed, name)
        assert failed.kind == kind and words in failed.message and "child.py" in failed.detail
        pids.add(client.worker_pid)
    assert len(pids) == 1


def test_a_death_takes_along_what_the_worker_started_and_its_scratch(client, heard, tmp_path):
    output = str(tmp_path / "clip.mp4")
    scratch, pid_file = scratch_folder(output), tmp_path / "pid"
    script = [["folder", str(scratch)], ["program", str(pid_file)], ["phase", "export", 0], ["wait"]]
    client.submit(play(*script, output_path=output))
    heard.first(events.PhaseStarted)
    assert scratch.is_dir()
    os.kill(client.worker_pid, signal.SIGKILL)
    heard.first(events.JobFailed)
    gone_after_s(int(pid_file.read_text()), 5)
    assert not scratch.exists()


def test_a_stop_is_acknowledged_within_a_second_and_the_worker_stays(client, heard):
    client.submit(play(["phase", "denoise", 8], ["deaf", 1.2], ["wait"]))
    heard.first(events.PhaseStarted)
    asked, pid = time.monotonic(), client.worker_pid
    client.cancel("j")
    assert heard.first(events.CancelSeen).waits_for == "denoise" and time.monotonic() - asked < 1.0
    heard.first(events.JobCancelled)
    client.submit(play(job_id="k"))
    heard.first(events.JobDone, "k")
    assert client.worker_pid == pid


def test_a_job_that_does_not_stop_is_ended_by_force(make_client, heard):
    client = make_client(QUICK)
    client.submit(play(["phase", "denoise", 8], ["deaf", 60]))
    heard.first(events.PhaseStarted)
    pid = client.worker_pid
    client.cancel("j")
    heard.first(events.JobCancelled)
    assert len(heard.ends()) == 1 and not alive(pid)
    client.submit(play(job_id="k"))
    heard.first(events.JobDone, "k")


def test_a_worker_frozen_by_a_stop_signal_is_ended_by_force_too(make_client, heard):
    client = make_client(QUICK)
    client.submit(play(["phase", "denoise", 8], ["wait"]))
    heard.first(events.PhaseStarted)
    os.kill(client.worker_pid, signal.SIGSTOP)
    client.cancel("j")
    heard.first(events.JobCancelled)


def test_the_promised_limits_of_a_stop_are_the_default():
    assert Patience().stop_s + Patience().terminate_s <= 5.0


def test_a_stop_that_comes_with_the_job_is_not_lost(client, heard):
    client.submit(play(["wait"]))
    client.cancel("j")
    heard.first(events.JobCancelled)


def test_a_stop_for_another_job_changes_nothing(client, heard):
    client.submit(play(["deaf", 0.2]))
    client.cancel("other")
    heard.first(events.JobDone)


def test_a_second_job_at_once_is_refused(client, heard):
    client.submit(play(["wait"]))
    with pytest.raises(WorkerError, match="still running"):
        client.submit(play(job_id="k"))
    client.cancel("j")
    heard.first(events.JobCancelled)
    assert not heard.ends("k")


def test_a_worker_killed_while_idle_costs_no_job(client, heard):
    client.submit(play())
    heard.first(events.JobDone)
    pid = client.worker_pid
    os.kill(pid, signal.SIGSTOP)  # so that the next job is written to its socket before it dies
    client.submit(play(job_id="k"))
    os.kill(pid, signal.SIGKILL)
    heard.first(events.JobDone, "k")
    assert client.worker_pid != pid and len(heard.ends("k")) == 1


def test_a_job_that_kills_every_worker_is_tried_only_once_more(client, heard):
    client.submit(play())
    heard.first(events.JobDone)
    client.submit(play(["die", signal.SIGKILL], job_id="k"))
    heard.first(events.JobFailed, "k")
    assert len(heard.ends("k")) == 1


def test_an_idle_worker_is_released(make_client, heard):
    client = make_client(Patience(idle_s=0.2))
    client.submit(play())
    pid = client.worker_pid
    heard.first(events.JobDone)
    gone_after_s(pid, 10)
    assert client.worker_pid is None
    client.submit(play(job_id="k"))
    heard.first(events.JobDone, "k")


def test_a_busy_worker_is_not_released(make_client, heard):
    client = make_client(Patience(idle_s=0.2))
    client.submit(play())
    heard.first(events.JobDone)
    client.submit(play(["deaf", 0.6], job_id="k"))
    heard.first(events.JobDone, "k")


def test_another_model_gets_another_worker_and_the_first_is_gone_before(client, heard, tmp_path):
    client.submit(play(model=str(tmp_path / "a")))
    heard.first(events.JobDone)
    first = client.worker_pid
    client.submit(play(model=str(tmp_path / "b" / ".." / "a"), job_id="k"))
    heard.first(events.JobDone, "k")
    assert client.worker_pid == first
    client.submit(play(model=str(tmp_path / "b"), job_id="l"))
    assert not alive(first)
    heard.first(events.JobDone, "l")


def test_a_program_that_cannot_be_started_fails_the_job(make_client, heard):
    def start():
        raise FileNotFoundError(2, "No such file or directory", "/nowhere/python")

    make_client(start=start).submit(play())
    failed = heard.first(events.JobFailed)
    assert failed.kind == "worker" and "/nowhere/python" in failed.message


def test_closing_stops_the_job_and_leaves_no_process(make_client, heard, tmp_path):
    client = make_client(QUICK)
    client.submit(play(["program", str(tmp_path / "pid")], ["phase", "denoise", 0], ["deaf", 60]))
    heard.first(events.PhaseStarted)
    pid = client.worker_pid
    client.close()
    assert not alive(pid) and [type(end) for end in heard.ends()] == [events.JobCancelled]
    gone_after_s(int((tmp_path / "pid").read_text()), 5)
    with pytest.raises(WorkerError, match="closed"):
        client.submit(play(job_id="k"))


def test_closing_an_idle_client_is_quick_and_harmless_twice(make_client, heard):
    client = make_client(Patience(leave_s=60))
    client.submit(play())
    heard.first(events.JobDone)
    pid, started = client.worker_pid, time.monotonic()
    client.close()
    client.close()
    assert not alive(pid) and time.monotonic() - started < 10


def test_closing_leaves_no_thread(heard, make_client):
    before = set(threading.enumerate())
    client = make_client()
    client.submit(play())
    heard.first(events.JobDone)
    client.close()
    assert not [thread for thread in set(threading.enumerate()) - before if thread.is_alive()]


def test_the_window_s_side_needs_neither_torch_nor_kernels():
    heavy = "[name for name in sys.modules if name in ('torch', 'numpy', 'core.kernels')]"
    command = [sys.executable, "-c", f"import sys, core.worker.jobs; print({heavy})"]
    assert subprocess.run(command, cwd=APP_SCRIPT.parent, capture_output=True, text=True).stdout == "[]\n"
