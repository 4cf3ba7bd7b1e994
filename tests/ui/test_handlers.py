"""From clicks to jobs and back to updates, without a browser.

Tier: closed form with the real job manager and a client that plays events by hand. Cannot catch what Gradio does with
the updates; tests/browser does that.
"""

import threading
from types import SimpleNamespace

import gradio as gr
import pytest

from core.phase import Phase
from core.worker import events
from core.worker.jobs import JobManager, JobState
from ui import form
from ui.handlers import Handlers, Widgets
from ui.messages import CHINESE, ENGLISH

ENGLISH_PAGE = SimpleNamespace(headers={"accept-language": "en"})
CHINESE_PAGE = SimpleNamespace(headers={"accept-language": "zh-CN,zh;q=0.9"})


class HandPlayed:
    """Takes jobs and cancel requests; the test tells the listener what happened."""

    def __init__(self, listener):
        self.tell = listener
        self.job = None
        self.cancelled = []
        self.taken = threading.Event()

    def submit(self, job):
        self.job = job
        self.taken.set()

    def cancel(self, job_id):
        self.cancelled.append(job_id)

    def close(self):
        pass

    def finish(self):
        self.tell(events.JobDone(job_id=self.job.job_id, output_path=self.job.output_path))


@pytest.fixture(scope="module")
def widgets():
    """One set for all tests: they hold no state here, and making them is slow."""
    with gr.Blocks():
        return Widgets(
            form={name: gr.Textbox() for name in form.FIELD_NAMES},
            own_seed=gr.State(""),
            generate=gr.Button(),
            stop=gr.Button(),
            stage=gr.HTML(),
            status=gr.HTML(),
            error=gr.HTML(),
            result=gr.HTML(),
            reveal=gr.Button(),
        )


@pytest.fixture
def desk(widgets):
    """The handlers with their widgets, manager and client."""
    clients = []
    jobs = JobManager(make_client=lambda listener: clients.append(HandPlayed(listener)) or clients[0])
    handlers = Handlers(widgets, jobs, lambda request: f"/clips/{request.seed}.mp4")
    yield SimpleNamespace(handlers=handlers, w=widgets, jobs=jobs, client=clients[0])
    jobs.close()


def filled(desk, own_seed="", **values):
    """What Gradio hands over for a form."""
    wish = form.FormValues(**{"prompt": "a red circle", **values})
    return {desk.w.form[name]: getattr(wish, name) for name in form.FIELD_NAMES} | {desk.w.own_seed: own_seed}


def start(desk, **values):
    """A running job and the generator that watches it, its first view already shown."""
    watching = desk.handlers.generate(filled(desk, **values), ENGLISH_PAGE)
    seed = next(watching)
    first = next(watching)
    assert desk.client.taken.wait(5)
    return watching, seed, first


def merged(watching):
    """All updates to the end, the last one of each widget."""
    last = {}
    for updates in watching:
        last |= updates
    return last


def test_a_first_page_shows_the_invitation_in_its_language(desk):
    (updates,) = desk.handlers.load(CHINESE_PAGE)
    assert CHINESE["stage.empty"] in updates[desk.w.stage]
    assert updates[desk.w.generate]["visible"] and not updates[desk.w.stop]["visible"]


def test_generate_becomes_stop_and_back(desk):
    watching, _, first = start(desk)
    assert not first[desk.w.generate]["visible"] and first[desk.w.stop]["visible"]
    desk.client.finish()
    last = merged(watching)
    assert last[desk.w.generate]["visible"] and not last[desk.w.stop]["visible"]
    assert "/clips/" in last[desk.w.result] and last[desk.w.reveal]["visible"]


def test_the_request_that_reaches_the_worker_is_the_form(desk):
    start(desk, prompt="雨の夜", size="192x128", length=39, steps=8, seed=str(2**63 - 1), seed_lock=True)
    payload = desk.client.job.payload
    assert (payload["prompt"], payload["width"], payload["height"]) == ("雨の夜", 192, 128)
    assert (payload["frame_count"], payload["steps"], payload["seed"]) == (39, 8, str(2**63 - 1))


def test_the_used_seed_is_shown_as_digits(desk):
    _, seed, _ = start(desk)
    assert seed[desk.w.form["seed"]] == desk.client.job.payload["seed"] == seed[desk.w.own_seed]
    assert seed[desk.w.form["seed_lock"]] is False


def test_a_seed_that_we_put_there_is_drawn_anew_and_a_typed_one_is_kept(desk):
    start(desk, seed="11", own_seed="11")
    assert desk.client.job.payload["seed"] != "11"
    desk.client.finish()
    desk.client.taken.clear()
    _, seed, _ = start(desk, seed="12", own_seed="11")
    assert desk.client.job.payload["seed"] == "12" and seed[desk.w.form["seed_lock"]] is True


def test_a_bad_form_starts_nothing_and_says_everything_that_is_wrong(desk):
    (updates,) = desk.handlers.generate(filled(desk, prompt=" ", seed="abc"), ENGLISH_PAGE)
    assert list(updates) == [desk.w.error]
    assert ENGLISH["problem.prompt"] in updates[desk.w.error] and "“abc”" in updates[desk.w.error]
    assert desk.jobs.jobs() == []


def test_fields_nobody_has_seen_count_as_empty(desk):
    data = filled(desk) | {desk.w.form["exact_steps"]: None, desk.w.form["exact_width"]: None}
    watching = desk.handlers.generate(data, ENGLISH_PAGE)
    next(watching)
    assert desk.jobs.jobs()[0].payload["steps"] is None


def test_what_a_person_typed_is_escaped(desk):
    watching, _, _ = start(desk, prompt="<script>alert(1)</script>")
    desk.client.finish()
    assert "<script" not in merged(watching)[desk.w.stage]


def test_an_update_names_only_what_changed(desk):
    watching, _, _ = start(desk)
    next(watching)
    desk.client.tell(events.PreviewFrame(job_id=desk.client.job.job_id, step=1, width=1, height=1, blob=b"abc"))
    assert desk.w.stage in next(watching)
    desk.client.tell(events.PhaseStarted(job_id=desk.client.job.job_id, phase=Phase.DENOISE.value, total=8))
    assert set(next(watching)) == {desk.w.status}


def test_a_closed_page_does_not_stop_the_job_and_the_next_page_finds_it(desk):
    watching, _, _ = start(desk, exact_frames="49")
    watching.close()
    assert not desk.jobs.jobs()[0].over and desk.client.cancelled == []
    again = desk.handlers.load(CHINESE_PAGE)
    first = next(again)
    assert first[desk.w.stop]["visible"] and "49 帧已调整为 56 帧" in first[desk.w.status]
    desk.client.finish()
    assert "/clips/" in merged(again)[desk.w.result]


def test_a_page_opened_after_the_end_shows_the_result_and_the_settings(desk):
    watching, _, _ = start(desk, length=39)
    desk.client.finish()
    merged(watching)
    assert "/clips/" in merged(desk.handlers.load(ENGLISH_PAGE))[desk.w.result]
    restored = desk.handlers.restore()
    assert restored[desk.w.form["prompt"]] == "a red circle" and restored[desk.w.form["length"]] == 39
    assert restored[desk.w.own_seed] == desk.client.job.payload["seed"]


def test_generate_while_a_clip_is_made_attaches_instead_of_queueing(desk, monkeypatch):
    monkeypatch.setattr("ui.handlers.DOUBLE_CLICK_S", 0.0)
    start(desk)
    other = desk.handlers.generate(filled(desk, prompt="another"), ENGLISH_PAGE)
    assert ENGLISH["notice.attached"] in next(other)[desk.w.status]
    assert len(desk.jobs.jobs()) == 1


def test_stop_reaches_the_worker_and_the_page_says_so(desk, monkeypatch):
    monkeypatch.setattr("ui.handlers.DOUBLE_CLICK_S", 0.0)
    watching, _, _ = start(desk)
    next(watching)
    assert desk.handlers.stop()[desk.w.stop]["interactive"] is False
    assert desk.client.cancelled == [desk.client.job.job_id]
    assert "Stopping" in next(watching)[desk.w.status]
    desk.client.tell(events.JobCancelled(job_id=desk.client.job.job_id))
    assert ENGLISH["status.cancelled"] in merged(watching)[desk.w.status]
    assert desk.jobs.jobs()[0].state is JobState.CANCELLED


def test_the_second_half_of_a_double_click_neither_stops_nor_complains(desk, monkeypatch):
    monkeypatch.setattr("ui.handlers.DOUBLE_CLICK_S", 60.0)
    start(desk)
    desk.handlers.stop()
    assert desk.client.cancelled == []
    again = next(desk.handlers.generate(filled(desk), ENGLISH_PAGE))
    assert len(desk.jobs.jobs()) == 1 and ENGLISH["notice.attached"] not in again[desk.w.status]


def test_stop_without_a_job_does_nothing(desk):
    assert list(desk.handlers.stop()) == [desk.w.stop]


def test_a_failure_stays_readable_and_the_next_start_clears_it(desk):
    watching, _, _ = start(desk)
    desk.client.tell(events.JobFailed(job_id=desk.client.job.job_id, kind="media", message="Disk <full>."))
    assert "Disk &lt;full&gt;." in merged(watching)[desk.w.error]
    desk.client.taken.clear()
    _, _, first = start(desk)
    assert first[desk.w.error] == ""


def test_dice_draws_a_seed_that_stays(desk):
    updates = [desk.handlers.dice() for _ in range(4)]
    assert len({u[desk.w.form["seed"]] for u in updates}) > 1
    assert all(u[desk.w.form["seed_lock"]] is True for u in updates)


def test_examples_speak_the_readers_language(desk):
    assert desk.handlers.example_of(1)(CHINESE_PAGE) == CHINESE["example.1"]


def test_reveal_says_where_the_file_is_when_nothing_can_show_it(desk, monkeypatch):
    monkeypatch.setattr("ui.handlers.show_in_folder", lambda path: False)
    watching, _, _ = start(desk, seed="5")
    desk.client.finish()
    merged(watching)
    assert "/clips/5.mp4" in desk.handlers.reveal(ENGLISH_PAGE)[desk.w.error]
