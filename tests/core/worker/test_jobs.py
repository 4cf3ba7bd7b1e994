"""The queue of the app: who runs, who waits, what a watcher sees.

Tier: closed form with a client that does nothing by itself, and executed with a real worker at the end. Cannot catch a
page that forgets to watch.
"""

import threading
import time
from functools import partial

import pytest

from core.errors import WorkerError
from core.phase import Phase
from core.request import GenerationRequest
from core.worker import events, jobs
from core.worker.client import WorkerClient
from core.worker.jobs import JobManager, JobSnapshot, JobState, advance
from tests.core.worker.scripted import start_child

REQUEST = GenerationRequest(prompt="a red circle", seed=2**53 + 1)
JOB = JobSnapshot(job_id="j", kind="generate", payload={}, output_path="/out.mp4", state=JobState.RUNNING)
LIMIT_S = 10.0


class FakeClient:
    """Takes jobs and stops; the test says what happens."""

    def __init__(self, listener):
        self.hear = listener
        self.submitted: list[events.StartJob] = []
        self.cancelled: list[str] = []
        self.closed = False
        self.refusal: WorkerError | None = None

    def submit(self, job: events.StartJob) -> None:
        if self.refusal:
            raise self.refusal
        self.submitted.append(job)

    def cancel(self, job_id: str) -> None:
        self.cancelled.append(job_id)

    def close(self) -> None:
        self.closed = True


class Desk:
    """A manager with its fake client."""

    def __init__(self):
        self.manager = JobManager(self._make)

    def _make(self, listener) -> FakeClient:
        self.client = FakeClient(listener)
        return self.client

    def submit(self, number: int = 0) -> str:
        return self.manager.submit(REQUEST, f"/out-{number}.mp4")

    def started(self, job_id: str) -> str:
        """The id of a job once the client has it."""
        until(lambda: job_id in [job.job_id for job in self.client.submitted])
        return job_id

    def done(self, job_id: str, path: str = "/out.mp4") -> None:
        self.client.hear(events.JobDone(job_id=job_id, output_path=path))


def until(condition) -> None:
    deadline = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < deadline, "it never happened"
        time.sleep(0.005)


@pytest.fixture
def desk():
    made = Desk()
    yield made
    made.manager.close()


# ---- one job, message by message
def test_messages_move_the_snapshot():
    preview = events.PreviewFrame(job_id="j", step=1, width=1, height=1, blob=b"abc")
    job = JOB
    for message in (
        events.JobStarted(job_id="j", notices=["n1"]),
        events.PhaseStarted(job_id="j", phase="denoise", total=8),
        events.Progress(job_id="j", phase="denoise", done=3, total=8, elapsed_s=1.0),
        preview,
        events.Notice(job_id="j", text="n2"),
        events.CancelSeen(job_id="j", waits_for="denoise"),
    ):
        job = advance(job, message)
    assert (job.phase, job.done, job.total) == (Phase.DENOISE, 3, 8)
    assert job.preview is preview and job.notices == ("n1", "n2") and job.stop_seen and job.waits_for == "denoise"


def test_a_new_phase_starts_at_zero():
    job = advance(JOB, events.Progress(job_id="j", phase="denoise", done=8, total=8, elapsed_s=1.0))
    job = advance(job, events.PhaseStarted(job_id="j", phase="audio_decode", total=0))
    assert (job.phase, job.done, job.total) == (Phase.AUDIO_DECODE, 0, 0)


@pytest.mark.parametrize(
    ("message", "state"),
    [
        (events.JobDone(job_id="j", output_path="/out-2.mp4"), JobState.DONE),
        (events.JobFailed(job_id="j", kind="media", message="m"), JobState.FAILED),
        (events.JobCancelled(job_id="j"), JobState.CANCELLED),
    ],
)
def test_an_end_is_final(message, state):
    job = advance(JOB, message)
    assert job.state is state and job.over
    assert advance(job, events.Progress(job_id="j", phase="text", done=1, total=1, elapsed_s=1.0)) is job
    assert advance(job, events.JobCancelled(job_id="j")) is job


def test_the_result_names_the_file_that_was_really_written():
    assert advance(JOB, events.JobDone(job_id="j", output_path="/out-2.mp4")).output_path == "/out-2.mp4"


# ---- the queue
def test_jobs_run_one_after_the_other_in_order(desk):
    first, second, third = (desk.submit(number) for number in range(3))
    desk.started(first)
    assert desk.manager.current().job_id == first
    assert [job.state for job in desk.manager.jobs()] == [JobState.RUNNING, JobState.QUEUED, JobState.QUEUED]
    for job_id in (first, second, third):
        desk.done(desk.started(job_id))
    assert [job.job_id for job in desk.client.submitted] == [first, second, third]
    assert desk.manager.current() is None


def test_the_worker_gets_the_request_and_an_absolute_path(desk, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    job_id = desk.started(desk.manager.submit(REQUEST, "out.mp4"))
    job = desk.client.submitted[0]
    assert GenerationRequest.from_json(job.payload) == REQUEST and job.kind == "generate"
    assert job.output_path == str(tmp_path / "out.mp4") == desk.manager.snapshot(job_id).output_path


def test_a_waiting_job_leaves_the_queue_at_once(desk):
    first, second = desk.submit(), desk.submit()
    desk.started(first)
    desk.manager.cancel(second)
    assert desk.manager.snapshot(second).state is JobState.CANCELLED
    desk.done(first)
    third = desk.started(desk.submit())
    assert [job.job_id for job in desk.client.submitted] == [first, third]


def test_a_running_job_is_stopped_through_the_client_and_says_so(desk):
    job_id = desk.started(desk.submit())
    desk.manager.cancel(job_id)
    assert desk.client.cancelled[-1] == job_id and desk.manager.snapshot(job_id).stopping
    desk.client.hear(events.JobCancelled(job_id=job_id))
    assert desk.manager.snapshot(job_id).state is JobState.CANCELLED


def test_a_stop_between_queue_and_client_reaches_the_client(desk, monkeypatch):
    gate = threading.Event()
    submit = desk.client.submit
    monkeypatch.setattr(desk.client, "submit", lambda job: gate.wait(LIMIT_S) and submit(job))
    job_id = desk.submit()
    until(lambda: desk.manager.current())
    desk.manager.cancel(job_id)
    desk.client.cancelled.clear()  # it came before the client had the job
    gate.set()
    until(lambda: desk.client.cancelled == [job_id])


def test_stopping_a_finished_job_changes_nothing(desk):
    job_id = desk.started(desk.submit())
    desk.done(job_id)
    desk.manager.cancel(job_id)
    assert desk.manager.snapshot(job_id).state is JobState.DONE and not desk.client.cancelled


def test_a_job_the_client_refuses_fails_and_the_next_one_runs(desk):
    desk.client.refusal = WorkerError("no room")
    failed = desk.manager.wait(desk.submit())
    assert failed.state is JobState.FAILED and failed.error.message == "no room"
    desk.client.refusal = None
    desk.started(desk.submit())


def test_a_failed_job_keeps_its_request_and_the_queue_goes_on(desk):
    first, second = desk.submit(), desk.submit()
    desk.client.hear(events.JobFailed(job_id=desk.started(first), kind="worker", message="m", hint="h"))
    assert desk.manager.snapshot(first).payload == REQUEST.to_json()
    desk.started(second)


def test_old_finished_jobs_are_forgotten_but_never_the_waiting(desk, monkeypatch):
    monkeypatch.setattr(jobs, "KEPT_JOBS", 2)
    finished = [desk.submit() for _ in range(4)]
    for job_id in finished:
        desk.done(desk.started(job_id))
    running, waiting = desk.submit(), desk.submit()
    assert [job.job_id for job in desk.manager.jobs()] == [*finished[2:], running, waiting]
    with pytest.raises(WorkerError, match="no job"):
        desk.manager.snapshot(finished[0])


# ---- watching
def test_a_watcher_sees_the_state_now_then_changes_then_the_end(desk):
    job_id = desk.started(desk.submit())
    desk.client.hear(events.PhaseStarted(job_id=job_id, phase="denoise", total=8))
    watcher = desk.manager.watch(job_id)
    assert next(watcher).phase is Phase.DENOISE  # a late joiner gets what went before
    desk.client.hear(events.Progress(job_id=job_id, phase="denoise", done=1, total=8, elapsed_s=0.1))
    assert next(watcher).done == 1
    desk.done(job_id)
    assert [job.state for job in watcher] == [JobState.DONE]


def test_a_watcher_of_a_finished_job_gets_its_end_at_once(desk):
    job_id = desk.started(desk.submit())
    desk.done(job_id)
    assert [job.state for job in desk.manager.watch(job_id)] == [JobState.DONE]


def test_changes_faster_than_the_watcher_are_merged(desk):
    job_id = desk.started(desk.submit())
    watcher = desk.manager.watch(job_id)
    next(watcher)
    for done in range(1, 101):
        desk.client.hear(events.Progress(job_id=job_id, phase="denoise", done=done, total=100, elapsed_s=0.1))
    assert next(watcher).done == 100


def test_many_watchers_see_the_end_and_one_that_leaves_stops_nothing(desk):
    job_id = desk.started(desk.submit())
    leaver = desk.manager.watch(job_id)
    next(leaver)
    leaver.close()
    ends = []
    threads = [threading.Thread(target=lambda: ends.append(list(desk.manager.watch(job_id))[-1])) for _ in range(8)]
    for thread in threads:
        thread.start()
    assert desk.manager.current().job_id == job_id and not desk.client.cancelled
    desk.done(job_id)
    for thread in threads:
        thread.join(LIMIT_S)
    assert [job.state for job in ends] == [JobState.DONE] * 8


def test_a_tick_shows_the_clock_although_nothing_happens(desk):
    job_id = desk.started(desk.submit())
    watcher = desk.manager.watch(job_id, tick_s=0.02)
    times = [next(watcher).elapsed_s for _ in range(4)]
    assert times == sorted(times) and times[-1] - times[0] >= 0.05


def test_the_clock_stops_with_the_job(desk):
    job_id = desk.started(desk.submit())
    time.sleep(0.05)
    desk.done(job_id)
    first = desk.manager.snapshot(job_id).elapsed_s
    time.sleep(0.05)
    assert desk.manager.snapshot(job_id).elapsed_s == first >= 0.05


def test_a_job_nobody_knows_is_an_error(desk):
    with pytest.raises(WorkerError, match="no job"):
        next(desk.manager.watch("nobody"))


def test_messages_without_a_known_job_are_ignored(desk):
    desk.client.hear(events.WorkerReady(pid=1))
    desk.done("nobody")
    assert desk.manager.jobs() == []


def test_closing_cancels_what_waits_ends_the_client_and_takes_no_more(desk):
    first, second = desk.submit(), desk.submit()
    desk.started(first)
    desk.manager.close()
    assert desk.client.closed and desk.manager.snapshot(second).state is JobState.CANCELLED
    with pytest.raises(WorkerError, match="closing"):
        desk.submit()


# ---- with a real worker
def test_a_real_worker_runs_the_queue_and_stops():
    manager = JobManager(partial(WorkerClient, start=start_child))
    first = manager.submit_job("play", {"script": [["phase", "denoise", 1], ["facts", {"a": 1}]]})
    second = manager.submit_job("play", {"script": [["wait"]]})
    third = manager.submit_job("play", {"script": [["raise", "media"]]})
    assert manager.wait(first).result.facts == {"a": 1}
    until(lambda: manager.snapshot(second).state is JobState.RUNNING)
    manager.cancel(second)
    stopped = manager.wait(second)
    assert stopped.state is JobState.CANCELLED and stopped.stopping
    assert manager.wait(third).error.hint == "Use water."
    fourth = manager.submit_job("play", {"script": [["wait"]]})
    until(lambda: manager.snapshot(fourth).state is JobState.RUNNING)
    manager.close()
    assert manager.wait(fourth).state is JobState.CANCELLED
