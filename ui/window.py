"""Composes the page from its components and joins their events to the handlers. No logic of its own."""

from collections.abc import Callable

import gradio as gr

from core.request import GenerationRequest
from core.worker.jobs import JobManager
from ui.components.progress import build_progress
from ui.components.prompt import EXAMPLES, build_buttons, build_prompt
from ui.components.settings import build_settings
from ui.components.stage import build_stage
from ui.handlers import Handlers, Widgets
from ui.messages import page_translations

TITLE = "Vignette"
CACHE_SWEEP_S, CACHE_KEEP_S = 3600, 86_400


def translations() -> gr.I18n:
    """The labels the page translates by itself."""
    return gr.I18n(**page_translations())


def build_window(jobs: JobManager, output_path: Callable[[GenerationRequest], str], i18n: gr.I18n) -> gr.Blocks:
    """The page: a narrow column with the form on the left, the stage and the progress on the right."""
    with gr.Blocks(title=TITLE, analytics_enabled=False, delete_cache=(CACHE_SWEEP_S, CACHE_KEEP_S)) as window:
        with gr.Row(elem_id="columns"):
            with gr.Column(scale=0, min_width=360, elem_id="controls"):
                gr.Markdown(f"# {TITLE}", elem_id="title")
                gr.Markdown(i18n("app.tagline"), elem_id="tagline")
                prompt, examples = build_prompt(i18n)
                generate, stop = build_buttons(i18n)
                settings = build_settings(i18n)
            with gr.Column(scale=1, min_width=480, elem_id="theatre"):
                stage = build_stage()
                progress = build_progress(i18n)
        dice = settings.pop("dice")
        widgets = Widgets(
            form={"prompt": prompt, **settings},
            own_seed=gr.State(""),
            generate=generate,
            stop=stop,
            stage=stage,
            status=progress.status,
            error=progress.error,
            result=progress.result,
            reveal=progress.reveal,
        )
        handlers = Handlers(widgets, jobs, output_path)
        _join_job_events(window, widgets, handlers)
        _join_form_events(widgets, handlers, dice, examples)
    return window


def _join_job_events(window: gr.Blocks, w: Widgets, handlers: Handlers) -> None:
    """Watchers are many (one for each page) and only wait, so none of them may hold up another."""
    watch = {"show_progress": "hidden", "concurrency_limit": None, "api_visibility": "private"}
    at_once = {"show_progress": "hidden", "queue": False, "api_visibility": "private"}
    window.load(handlers.restore, outputs=w.settings(), **at_once)
    window.load(handlers.load, outputs=w.shown(), **watch)
    # "multiple": the event of the clip before ends a moment after its last update, and a click in between must count
    w.generate.click(
        handlers.generate, inputs=w.settings(), outputs=w.shown() | w.seed(), trigger_mode="multiple", **watch
    )
    w.stop.click(handlers.stop, outputs={w.stop}, **at_once)
    w.reveal.click(handlers.reveal, outputs={w.error}, **at_once)


def _join_form_events(w: Widgets, handlers: Handlers, dice: gr.Button, examples: tuple[gr.Button, ...]) -> None:
    at_once = {"show_progress": "hidden", "queue": False, "api_visibility": "private"}
    seed, lock = w.form["seed"], w.form["seed_lock"]
    dice.click(handlers.dice, outputs=w.seed(), **at_once)
    seed.input(handlers.keep_typed_seed, inputs=[seed], outputs=[lock], **at_once)
    for number, example in zip(EXAMPLES, examples, strict=True):
        example.click(handlers.example_of(number), outputs=[w.form["prompt"]], **at_once)
