"""From a click to a request to the job manager, and from the job's snapshots to what the widgets show.

The trap: a generator that Gradio runs ends with its browser tab, so none of them owns the job. Each only watches a job
of the job manager; loading the page watches the current one again, and Stop goes to the manager. Proof: tests/ui/
test_handlers.py, and reload and Stop in a real browser in tests/browser.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import gradio as gr

from core.request import GenerationRequest
from core.worker.events import JobKind
from core.worker.jobs import JobManager, JobSnapshot, JobState
from ui import form, messages, view_state
from ui.components.progress import render_error, render_result, render_status
from ui.components.stage import render_stage
from ui.reveal import show_in_folder
from ui.view_state import Pace, View

DOUBLE_CLICK_S = 0.5
CLOCK_S = 1.0  # how often the elapsed time moves when nothing else does
Updates = dict[gr.components.Component, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Widgets:
    """Everything the handlers read or write. `form` has the widgets by the names of `form.FormValues`.

    `own_seed` remembers, for each page, the seed we put into the form ourselves.
    """

    form: dict[str, gr.components.Component]
    own_seed: gr.State
    generate: gr.Button
    stop: gr.Button
    stage: gr.HTML
    status: gr.HTML
    error: gr.HTML
    result: gr.HTML
    reveal: gr.Button

    def settings(self) -> set[gr.components.Component]:
        """The form and what is remembered with it."""
        return {*self.form.values(), self.own_seed}

    def seed(self) -> set[gr.components.Component]:
        """What changes with the seed."""
        return {self.form["seed"], self.form["seed_lock"], self.own_seed}

    def shown(self) -> set[gr.components.Component]:
        """What a job changes."""
        return {self.generate, self.stop, self.stage, self.status, self.error, self.result, self.reveal}


class Handlers:
    """The functions Gradio calls. `output_path` names the file of a new clip."""

    def __init__(self, widgets: Widgets, jobs: JobManager, output_path: Callable[[GenerationRequest], str]):
        self._widgets = widgets
        self._jobs = jobs
        self._output_path = output_path
        self._notices: dict[str, tuple[form.Sentence, ...]] = {}

    def load(self, request: gr.Request) -> Iterator[Updates]:
        """A page was opened or reloaded: show the clip being made or made last, or the invitation."""
        language = language_of(request)
        job = self._active() or self._latest()
        if job is None:
            yield self._changes(None, view_state.idle_view(language))
            return
        yield from self._watch(job.job_id, language)

    def restore(self) -> Updates:
        """A page was opened or reloaded: put the settings of that clip back into the form."""
        job = self._active() or self._latest()
        values = form.FormValues() if job is None else form.fill(GenerationRequest.from_json(job.payload))
        updates = {self._widgets.form[name]: getattr(values, name) for name in form.FIELD_NAMES}
        return updates | self._seed_updates(values.seed, False)

    def generate(self, data: dict, request: gr.Request) -> Iterator[Updates]:
        """Start the clip the form describes and show it as it comes; or say what is wrong with the form."""
        language = language_of(request)
        if (job := self._active()) is not None:
            self._note_attached(job)
            yield from self._watch(job.job_id, language)
            return
        values = self._values(data)
        reading = form.read(values)
        if reading.request is None:
            yield {self._widgets.error: render_error(view_state.form_error(language, reading.problems))}
            return
        job_id = self._jobs.submit(reading.request, self._output_path(reading.request))
        self._notices[job_id] = reading.notices
        yield self._seed_updates(str(reading.request.seed), values.seed_lock)
        yield from self._watch(job_id, language)

    def stop(self) -> Updates:
        """Ask for the end of the clip being made; the watching generator shows what comes of it.

        The second half of a double click on Generate lands on Stop and is not meant.
        """
        if (job := self._active()) is None or just_started(job):
            return {self._widgets.stop: gr.skip()}
        self._jobs.cancel(job.job_id)
        return {self._widgets.stop: gr.update(interactive=False)}

    def reveal(self, request: gr.Request) -> Updates:
        """Show the latest clip in the system's file manager."""
        job = self._latest()
        if job is None or show_in_folder(job.output_path):
            return {self._widgets.error: gr.skip()}
        language = language_of(request)
        words = messages.text(language, "reveal.failed", path=job.output_path)
        return {self._widgets.error: render_error(messages.ErrorText(title=words, details=(), hint=""))}

    def dice(self) -> Updates:
        """A new seed that stays."""
        return self._seed_updates(form.new_seed(), True)

    def keep_typed_seed(self, seed: str) -> bool:
        """A seed somebody types is meant to stay; an emptied field is not."""
        return bool(seed.strip())

    def example_of(self, number: int) -> Callable[[gr.Request], str]:
        """Handler that gives the prompt of an example in the reader's language."""

        def example(request: gr.Request) -> str:
            return messages.text(language_of(request), f"example.{number}")

        return example

    # ---- inside
    def _active(self) -> JobSnapshot | None:
        """The clip being made or waiting to be made."""
        return next((job for job in self._clips() if not job.over), None)

    def _latest(self) -> JobSnapshot | None:
        """The clip asked for last."""
        return next(reversed(self._clips()), None)

    def _clips(self) -> list[JobSnapshot]:
        return [job for job in self._jobs.jobs() if job.kind == JobKind.GENERATE.value]

    def _note_attached(self, job: JobSnapshot) -> None:
        """Say that another clip was in the way; a double click is no wish for another one."""
        attached, known = form.Sentence(key="notice.attached"), self._notices.get(job.job_id, ())
        if attached not in known and not just_started(job):
            self._notices[job.job_id] = (*known, attached)

    def _watch(self, job_id: str, language: str) -> Iterator[Updates]:
        """Only what changed since the last look, until the job is over."""
        shown, pace = None, Pace()
        for job in self._jobs.watch(job_id, tick_s=CLOCK_S):
            pace = pace.after(job)
            view = view_state.job_view(job, pace, language, self._notices.get(job_id, ()))
            if changes := self._changes(shown, view):
                yield changes
            shown = view

    def _changes(self, old: View | None, new: View) -> Updates:
        """Updates that turn the window from `old` into `new`; everything when nothing was shown yet."""
        w, changes = self._widgets, {}
        if old is None or (old.busy, old.stopping) != (new.busy, new.stopping):
            changes[w.generate] = gr.update(visible=not new.busy)
            changes[w.stop] = gr.update(visible=new.busy, interactive=not new.stopping)
        if old is None or old.stage != new.stage:
            changes[w.stage] = render_stage(new.stage)
        if old is None or old.status != new.status:
            changes[w.status] = render_status(new.status)
        if old is None or old.error != new.error:
            changes[w.error] = render_error(new.error)
        if old is None or old.result != new.result:
            changes[w.result] = render_result(new.result)
            changes[w.reveal] = gr.update(visible=new.result is not None)
        return changes

    def _values(self, data: dict) -> form.FormValues:
        """The form by names. A seed that is not our own was typed or pasted, so it counts as kept.

        A text field nobody has seen yet, in the closed accordion, arrives as None.
        """
        found = {name: data[self._widgets.form[name]] for name in form.FIELD_NAMES}
        values = form.FormValues(**{name: "" if value is None else value for name, value in found.items()})
        foreign = values.seed.strip() not in ("", data[self._widgets.own_seed])
        return replace(values, seed_lock=values.seed_lock or foreign)

    def _seed_updates(self, seed: str, locked: bool) -> Updates:
        w = self._widgets
        return {w.form["seed"]: seed, w.form["seed_lock"]: locked, w.own_seed: seed}


def just_started(job: JobSnapshot) -> bool:
    """Whether a click now may be the second half of the double click that started the job."""
    return job.state is JobState.RUNNING and job.elapsed_s < DOUBLE_CLICK_S


def language_of(request: gr.Request) -> str:
    """The language the browser asks for."""
    return messages.choose_language(request.headers.get("accept-language"))
