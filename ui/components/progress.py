"""Beneath the stage: phase words with the step, the times, notices, a persistent error box, and the saved file.

The rail shows one segment for each phase; a segment fills by counted units only (steps, clips), never by a guess.
Everything is escaped here.
"""

from dataclasses import dataclass
from html import escape
from pathlib import Path

import gradio as gr

from ui.components.stage import file_address
from ui.messages import ErrorText
from ui.view_state import RailItem, ResultText, StatusText

MARKS = {"done": "✓", "active": "●", "todo": "○"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgressWidgets:
    status: gr.HTML
    error: gr.HTML
    result: gr.HTML
    reveal: gr.Button


def build_progress(i18n: gr.I18n) -> ProgressWidgets:
    """The widgets beneath the stage, all empty."""
    error = gr.HTML("", elem_id="error", apply_default_css=False)
    status = gr.HTML("", elem_id="status", apply_default_css=False)
    with gr.Row(elem_id="result-row"):
        result = gr.HTML("", elem_id="result", apply_default_css=False, scale=5)
        reveal = gr.Button(i18n("app.reveal"), size="sm", visible=False, scale=0, min_width=130, elem_id="reveal")
    return ProgressWidgets(status=status, error=error, result=result, reveal=reveal)


def render_status(status: StatusText) -> str:
    """Headline, times, rail and notices."""
    rail = "".join(_rail_item(item) for item in status.rail)
    notices = "".join(f"<li>{escape(sentence)}</li>" for sentence in status.notices)
    return (
        f"<div class='v-status' data-state='{status.state}'>"
        f"<div class='v-line' role='status' aria-live='polite'>"
        f"<span class='v-headline'>{escape(status.headline)}</span>"
        f"<span class='v-timing'>{escape(status.timing)}</span></div>"
        + (f"<ol class='v-rail'>{rail}</ol>" if rail else "")
        + (f"<ul class='v-notices'>{notices}</ul>" if notices else "")
        + "</div>"
    )


def _rail_item(item: RailItem) -> str:
    width = 100 if item.state == "done" else round(100 * item.done / item.total) if item.total else 0
    waiting = " v-unknown" if item.state == "active" and not item.total else ""
    return (
        f"<li class='v-{item.state}{waiting}'><span class='v-bar'><span style='width:{width}%'></span></span>"
        f"<span class='v-mark' aria-hidden='true'>{MARKS[item.state]}</span> {escape(item.words)}</li>"
    )


def render_error(error: ErrorText | None) -> str:
    """The error box, which stays until the next start; empty when there is nothing to say."""
    if error is None:
        return ""
    details = "".join(f"<li>{escape(detail)}</li>" for detail in error.details)
    return (
        f"<div class='v-error' role='alert'><p class='v-error-title'><span aria-hidden='true'>⚠</span> "
        f"{escape(error.title)}</p>"
        + (f"<ul>{details}</ul>" if details else "")
        + (f"<p>{escape(error.hint)}</p>" if error.hint else "")
        + "</div>"
    )


def render_result(result: ResultText | None) -> str:
    """Where the file is, what it is, and a link that downloads it."""
    if result is None:
        return ""
    name, address = escape(Path(result.path).name), escape(file_address(result.path))
    return (
        f"<div class='v-result'><p>{escape(result.saved)} <code id='result-path'>{escape(result.path)}</code></p>"
        f"<p class='v-facts'><span>{escape(result.facts)}</span> "
        f"<a id='download' href='{address}' download='{name}'>{escape(result.download)}</a></p>"
        "</div>"
    )
