"""The worker's side: three threads around one socket.

Tier: executed. The outbox and the reporter run here in the test's process, `serve` too; whole processes are in
test_client.py and test_orphans.py. Cannot catch a kernel that keeps the interpreter lock for seconds.
"""

import socket
import threading
import time
from collections.abc import Mapping

import numpy as np
import pytest

from core.errors import WorkerError
from core.phase import Phase
from core.worker import events, process
from core.worker.channel import Channel
from core.worker.process import LateRunners, Outbox, Reporter, plain, serve


class Served:
    """`serve` in a thread, and our end of its socket."""

    def __init__(self, runners: Mapping):
        ours, theirs = socket.socketpair()
        self.channel = Channel(ours)
        self.thread = threading.Thread(target=serve, args=(theirs, runners))
        self.thread.start()

    def until(self, kind: type) -> list[events.Message]:
        """Messages up to the first of a kind."""
        got = [self.channel.receive()]
        while not isinstance(got[-1], kind):
            assert got[-1] is not None, got
            got.append(self.channel.receive())
        return got

    def close(self) -> None:
        self.channel.send(events.Shutdown())
        self.thread.join(10)
        assert not self.thread.is_alive()


@pytest.fixture
def served():
    made = []

    def make(**runners) -> Served:
        made.append(Served(runners))
        return made[-1]

    yield make
    for one in made:
        one.close()


def start(kind: str = "job", job_id: str = "j") -> events.StartJob:
    return events.StartJob(job_id=job_id, kind=kind, payload={}, output_path="/out.mp4")


def test_a_job_goes_from_ready_to_done_in_order(served):
    def run(job, report, cancel):
        report.phase(Phase.DENOISE, 2)
        report.preview(1, np.array([[[1, 2, 3], [4, 5, 6]]], np.uint8))
        report.notice("slow today")
        return {"seed": "7"}

    worker = served(job=run)
    worker.channel.send(start())
    got = worker.until(events.JobDone)
    assert [type(message).__name__ for message in got] == [
        "WorkerReady", "JobStarted", "PhaseStarted", "PreviewFrame", "Notice", "JobDone"
    ]  # fmt: skip
    assert got[3] == events.PreviewFrame(job_id="j", step=1, width=2, height=1, blob=bytes([1, 2, 3, 4, 5, 6]))
    assert got[-1] == events.JobDone(job_id="j", output_path="/out.mp4", facts={"seed": "7"})


def test_the_runner_may_name_another_file(served):
    worker = served(job=lambda job, report, cancel: {"output_path": "/out-2.mp4", "x": 1})
    worker.channel.send(start())
    assert worker.until(events.JobDone)[-1] == events.JobDone(job_id="j", output_path="/out-2.mp4", facts={"x": 1})


def test_a_failed_job_names_the_phase_and_the_worker_goes_on(served):
    def run(job, report, cancel):
        report.phase(Phase.TEXT, 0)
        raise ValueError("three is not four")

    worker = served(job=run, other=lambda job, report, cancel: {})
    worker.channel.send(start())
    failed = worker.until(events.JobFailed)[-1]
    assert failed.kind == "crash" and "while reading the prompt (ValueError: three is not four)" in failed.message
    worker.channel.send(start("other", "k"))
    assert worker.until(events.JobDone)[-1].job_id == "k"


def test_an_unknown_kind_of_job_is_refused_with_the_known_ones(served):
    worker = served(job=lambda job, report, cancel: {})
    worker.channel.send(start("dance"))
    failed = worker.until(events.JobFailed)[-1]
    assert failed.kind == "worker" and "dance" in failed.message and "['job']" in failed.message


def test_a_result_that_cannot_be_sent_is_a_failure_and_not_silence(served, monkeypatch):
    worker = served(job=lambda job, report, cancel: {"text": "x" * (5 * 2**20)})
    worker.channel.send(start())
    assert worker.until(events.JobFailed)[-1].kind == "worker"


def test_a_stop_is_acknowledged_at_once_although_the_job_is_deaf(served):
    def run(job, report, cancel):
        report.phase(Phase.VIDEO_DECODE, 0)
        time.sleep(1.2)
        cancel.check()

    worker = served(job=run)
    worker.channel.send(start())
    worker.until(events.PhaseStarted)
    asked = time.monotonic()
    worker.channel.send(events.CancelJob(job_id="j"))
    seen = worker.until(events.CancelSeen)[-1]
    assert time.monotonic() - asked < 1.0 and seen.waits_for == "video_decode"
    assert worker.until(events.JobCancelled)[-1].job_id == "j"


def test_a_job_stopped_while_it_waits_does_not_run(served):
    ran = []
    gate = threading.Event()
    worker = served(job=lambda job, report, cancel: gate.wait(10) and {}, next=lambda *_: ran.append(1))
    worker.channel.send(start())
    worker.until(events.JobStarted)
    worker.channel.send(start("next", "k"))
    worker.channel.send(events.CancelJob(job_id="k"))
    worker.until(events.CancelSeen)
    gate.set()
    assert worker.until(events.JobCancelled)[-1].job_id == "k" and not ran


def test_a_stop_for_a_job_long_over_is_ignored(served):
    worker = served(job=lambda job, report, cancel: {})
    worker.channel.send(start())
    worker.until(events.JobDone)
    worker.channel.send(events.CancelJob(job_id="j"))
    worker.channel.send(start(job_id="k"))
    assert [type(message).__name__ for message in worker.until(events.JobDone)] == ["JobStarted", "JobDone"]


def test_a_slow_reader_loses_previews_but_no_other_message(served):
    shape, steps, reported = (256, 256, 3), 200, threading.Event()

    def run(job, report, cancel):
        report.phase(Phase.DENOISE, steps)
        for step in range(1, steps + 1):
            report.preview(step, np.full(shape, step, np.uint8))
            report.progress(step, steps)
        report.phase(Phase.EXPORT, 0)
        report.notice("kept")
        reported.set()
        return {}

    worker = served(job=run)
    worker.channel.send(start())
    assert reported.wait(20)  # the reader wakes up when everything was said
    got = worker.until(events.JobDone)
    previews = [message.step for message in got if isinstance(message, events.PreviewFrame)]
    assert previews == sorted(previews) and previews[-1] == steps and len(previews) < 10
    assert [message.done for message in got if isinstance(message, events.Progress)][-1] == steps
    others = [m for m in got if not isinstance(m, events.PreviewFrame | events.Progress)]
    names = ["WorkerReady", "JobStarted", "PhaseStarted", "PhaseStarted", "Notice", "JobDone"]
    assert [type(message).__name__ for message in others] == names


def test_reporting_never_waits_for_the_reader():
    ours, theirs = socket.socketpair()
    outbox = Outbox(Channel(theirs))
    report = Reporter("j", outbox)

    def render() -> None:
        for step in range(20):
            report.preview(step, np.zeros((512, 512, 3), np.uint8))

    thread = threading.Thread(target=render, daemon=True)
    thread.start()
    thread.join(10)
    assert not thread.is_alive() and not outbox.flush(0.05)
    ours.close()  # the reader is gone: nothing waits for it any more
    assert outbox.flush(5)


def test_progress_counts_time_from_the_start_of_the_job():
    ours, theirs = socket.socketpair()
    report = Reporter("j", Outbox(Channel(theirs)))
    time.sleep(0.05)
    report.phase(Phase.DENOISE, 8)
    report.progress(1, 8)
    reader = Channel(ours)
    assert reader.receive() == events.PhaseStarted(job_id="j", phase="denoise", total=8)
    progress = reader.receive()
    assert (progress.phase, progress.done, progress.total) == ("denoise", 1, 8) and 0.05 <= progress.elapsed_s < 5


def test_an_unknown_phase_is_refused():
    _, theirs = socket.socketpair()
    with pytest.raises(ValueError):
        Reporter("j", Outbox(Channel(theirs))).phase("dancing", 0)


def test_facts_become_plain_json():
    facts = {
        "i": np.int64(3),
        "f": np.float32(0.5),
        "a": np.eye(2),
        "b": np.bool_(True),
        "n": None,
        4: (1, "x"),
        "p": b"",
    }
    assert plain(facts) == {
        "i": 3, "f": 0.5, "a": [[1.0, 0.0], [0.0, 1.0]], "b": True, "n": None, "4": [1, "x"], "p": "b''"
    }  # fmt: skip


def test_runners_are_made_by_the_first_job_and_only_once():
    made = []
    runners = LateRunners(lambda: made.append(1) or {"a": str})
    assert not made
    assert "a" in runners and "b" not in runners and runners["a"] is str and sorted(runners) == ["a"]
    assert made == [1]


def test_runners_that_cannot_be_made_fail_the_job(served):
    def make():
        raise ImportError("no torch here")

    ours, theirs = socket.socketpair()
    thread = threading.Thread(target=serve, args=(theirs, LateRunners(make)))
    thread.start()
    channel = Channel(ours)
    channel.send(start())
    got = [channel.receive() for _ in range(3)]
    assert isinstance(got[2], events.JobFailed) and "while starting (ImportError: no torch here)" in got[2].message
    channel.send(events.Shutdown())
    thread.join(10)
    assert not thread.is_alive()


def test_a_message_that_cannot_be_framed_is_refused_where_it_is_made():
    _, theirs = socket.socketpair()
    with pytest.raises(WorkerError):
        Outbox(Channel(theirs)).post(events.Notice(job_id="j", text=object()))


def test_the_end_of_the_socket_stops_a_job_and_ends_the_serving(monkeypatch):
    stopped = threading.Event()

    def run(job, report, cancel):
        report.phase(Phase.DENOISE, 0)
        while not cancel.is_set():
            time.sleep(0.01)
        stopped.set()
        return {}

    worker = Served({"job": run})
    worker.channel.send(start())
    worker.until(events.PhaseStarted)
    worker.channel.close()
    assert stopped.wait(10)
    worker.thread.join(10)
    assert not worker.thread.is_alive()


def test_a_job_that_does_not_stop_for_a_dead_parent_is_left_behind(monkeypatch):
    ended, release = threading.Event(), threading.Event()
    monkeypatch.setattr(process, "ORPHAN_GRACE_S", 0.1)
    monkeypatch.setattr(process, "end_group", ended.set)

    def run(job, report, cancel):
        report.phase(Phase.DENOISE, 0)
        release.wait(20)
        return {}

    worker = Served({"job": run})
    worker.channel.send(start())
    worker.until(events.PhaseStarted)
    worker.channel.close()
    assert ended.wait(10)
    release.set()
    worker.thread.join(10)


def test_another_parent_counts_as_the_end(monkeypatch):
    monkeypatch.setattr(process, "PARENT_POLL_S", 0.02)
    worker = Served({})
    assert isinstance(worker.channel.receive(), events.WorkerReady)
    monkeypatch.setattr(process.os, "getppid", lambda: 1)
    worker.thread.join(10)
    assert not worker.thread.is_alive()
