"""What the window shows for each state of a job.

Tier: closed form on snapshots written by hand. Cannot catch a manager that reports wrongly; tests/core/worker does.
"""

from dataclasses import replace

import pytest

from core.phase import Phase
from core.request import GenerationRequest
from core.worker import events
from core.worker.jobs import JobSnapshot, JobState
from ui.form import Sentence
from ui.messages import CHINESE, ENGLISH
from ui.view_state import Pace, StageEmpty, StagePreview, StageVideo, form_error, idle_view, job_view

REQUEST = GenerationRequest(prompt="a <b>red</b> circle", width=192, height=128, frame_count=39, seed=2**62 + 1)
FRAME = events.PreviewFrame(job_id="1", step=3, width=2, height=1, blob=bytes(6))
JOB = JobSnapshot(
    job_id="1",
    kind="generate",
    payload=REQUEST.to_json(),
    output_path="/clips/a b.mp4",
    state=JobState.RUNNING,
    phase=Phase.DENOISE,
    done=3,
    total=8,
    elapsed_s=12.4,
)


def view(job=JOB, *, pace=None, language="en", notices=()):
    return job_view(job, pace or Pace(), language, notices)


def at(phase, done, total, elapsed_s):
    return replace(JOB, phase=phase, done=done, total=total, elapsed_s=elapsed_s)


def test_before_the_first_clip_the_stage_invites():
    shown = idle_view("en")
    assert shown.stage == StageEmpty(title=ENGLISH["stage.empty"], hint=ENGLISH["stage.empty_hint"])
    assert not shown.busy and shown.status.headline == "" and shown.error is None and shown.result is None


def test_a_running_job_says_phase_step_and_time():
    shown = view()
    assert shown.busy and not shown.stopping
    assert shown.status.headline == "Shaping picture and sound · step 3/8"
    assert shown.status.timing == "12 s so far"


def test_the_chinese_reader_gets_chinese():
    assert view(language="zh").status.headline == "正在生成画面与声音 · 第 3/8 步"


def test_the_rail_fills_by_counted_units_only():
    rail = view().status.rail
    order = list(Phase)
    here = order.index(Phase.DENOISE)
    assert [item.state for item in rail] == ["done"] * here + ["active"] + ["todo"] * (len(order) - here - 1)
    assert (rail[here].done, rail[here].total) == (3, 8)
    assert view(replace(JOB, total=0)).status.rail[here].total == 0


def test_no_percentage_is_ever_shown():
    for phase in Phase:
        status = view(replace(JOB, phase=phase)).status
        assert "%" not in status.headline + status.timing


def test_a_waiting_job_says_what_it_waits_for_and_marks_no_phase():
    shown = view(replace(JOB, state=JobState.QUEUED, phase=Phase.STARTING, done=0, total=0))
    assert shown.status.headline == ENGLISH["phase.queued"]
    assert {item.state for item in shown.status.rail} == {"todo"}


def test_the_stage_waits_then_previews_then_plays():
    assert isinstance(view().stage, StageEmpty) and view().stage.hint == ENGLISH["stage.waiting"]
    preview = view(replace(JOB, preview=FRAME)).stage
    assert isinstance(preview, StagePreview) and (preview.step, preview.rgb) == (3, bytes(6))
    done = replace(JOB, preview=FRAME, state=JobState.DONE)
    assert view(done).stage == StageVideo(path="/clips/a b.mp4", caption="Finished video: a <b>red</b> circle")


def test_a_finished_job_names_its_file_and_its_exact_seed():
    shown = view(replace(JOB, state=JobState.DONE))
    assert shown.result.path == "/clips/a b.mp4"
    assert shown.result.facts == f"192 × 128 · 39 frames (1.6 s) · seed {2**62 + 1}"
    assert (shown.busy, shown.status.state, shown.status.timing) == (False, "done", "took 12 s")


@pytest.mark.parametrize("state", [JobState.FAILED, JobState.CANCELLED])
def test_a_job_without_a_result_keeps_its_last_preview(state):
    assert isinstance(view(replace(JOB, state=state, preview=FRAME)).stage, StagePreview)
    ended = view(replace(JOB, state=state))
    assert ended.stage.title == ENGLISH["stage.empty"] and ended.result is None and not ended.busy


def test_a_failure_becomes_a_box_that_says_what_and_what_to_do():
    error = events.JobFailed(job_id="1", kind="media", message="Disk is full.", hint="Free 20 MB.", detail="Traceback")
    shown = view(replace(JOB, state=JobState.FAILED, error=error))
    assert shown.error.title == ENGLISH["error.media"]
    assert (shown.error.details, shown.error.hint) == (("Disk is full.",), "Free 20 MB.")


def test_a_stop_request_says_what_it_waits_for():
    shown = view(replace(JOB, stopping=True, stop_seen=True, waits_for="video_decode"))
    assert shown.stopping and shown.status.headline == "Stopping · finishing first: Developing the pictures"
    assert view(replace(JOB, stopping=True, waits_for="?")).status.headline == "Stopping"


def test_notices_of_the_form_and_of_the_worker_stand_together():
    job = replace(JOB, notices=("The worker's own.",))
    notice = Sentence(key="notice.frames", values={"frames": 49, "legal_frames": 56})
    for ended in (job, replace(job, state=JobState.DONE)):
        assert view(ended, notices=(notice,)).status.notices == (
            "49 frames became 56: the model makes 22, 39, 56, … 362.",
            "The worker's own.",
        )


def test_the_remaining_time_is_measured_not_guessed():
    pace = Pace().after(at(Phase.DENOISE, 0, 8, 10.0))
    assert pace.remaining_s(at(Phase.DENOISE, 0, 8, 11.0)) is None
    pace = pace.after(at(Phase.DENOISE, 2, 8, 16.0))
    assert pace.remaining_s(at(Phase.DENOISE, 2, 8, 16.0)) == pytest.approx(18.0)
    assert pace.remaining_s(at(Phase.DENOISE, 2, 8, 17.0)) == pytest.approx(17.0)
    assert pace.after(at(Phase.DENOISE, 2, 8, 18.0)) == pace


def test_the_remaining_time_never_falls_below_zero():
    pace = Pace().after(at(Phase.DENOISE, 0, 3, 0.0)).after(at(Phase.DENOISE, 2, 3, 2.0))
    assert pace.remaining_s(at(Phase.DENOISE, 2, 3, 99.0)) == 0.0


def test_a_new_phase_is_measured_anew_and_unknown_totals_are_not_estimated():
    pace = Pace().after(at(Phase.DENOISE, 0, 8, 0.0)).after(at(Phase.DENOISE, 8, 8, 8.0))
    pace = pace.after(at(Phase.VIDEO_DECODE, 0, 4, 9.0))
    assert pace.remaining_s(at(Phase.VIDEO_DECODE, 0, 4, 9.0)) is None
    assert Pace(last_done=3).remaining_s(at(Phase.STARTING, 3, 0, 5.0)) is None


def test_the_remaining_time_is_shown_while_units_are_left():
    pace = Pace().after(at(Phase.DENOISE, 0, 8, 0.0)).after(at(Phase.DENOISE, 4, 8, 8.0))
    assert view(at(Phase.DENOISE, 4, 8, 8.0), pace=pace).status.timing == "8 s so far · about 8 s left in this phase"
    assert view(at(Phase.DENOISE, 8, 8, 8.0), pace=pace).status.timing == "8 s so far"


def test_form_problems_are_listed_in_the_readers_language():
    problems = (Sentence(key="problem.prompt"), Sentence(key="problem.frames", values={"frames": 0}))
    box = form_error("zh", problems)
    assert box.title == CHINESE["error.form"] and box.details[1] == "无法生成 0 帧，可以试试 22 帧。"
