"""The large stage: an invitation, the rough preview as it comes, or the finished video.

Everything a person typed is escaped here. The preview travels inside the page as a data address, so no preview file is
ever written; it is enlarged smoothly here, because browsers enlarge a handful of pixels with visible facets.
"""

import base64
import io
from html import escape
from urllib.parse import quote

import gradio as gr
from PIL import Image, ImageFilter

from ui.view_state import StageEmpty, StagePreview, StageVideo

FILE_ROUTE = "/gradio_api/file="
PICTURE_SIDE_PX = 256
SOFTNESS = 0.4  # blur radius in preview pixels: hides the facets, keeps the shapes


def build_stage() -> gr.HTML:
    """The stage widget; its first content comes with the page's load event."""
    return gr.HTML("", elem_id="stage", apply_default_css=False)


def render_stage(stage: StageEmpty | StagePreview | StageVideo) -> str:
    """HTML of the stage."""
    match stage:
        case StagePreview():
            return _frame("preview", _preview(stage))
        case StageVideo():
            return _frame("video", _video(stage))
        case _:
            return _frame("empty", f"<p class='v-big'>{escape(stage.title)}</p><p>{escape(stage.hint)}</p>")


def _frame(kind: str, content: str) -> str:
    return f"<div class='v-stage v-stage-{kind}' data-stage='{kind}'>{content}</div>"


def _preview(stage: StagePreview) -> str:
    caption = escape(stage.caption)
    return (
        f"<img id='preview-picture' data-step='{stage.step}' alt='{caption}' src='{picture_address(stage)}'>"
        f"<span class='v-chip'>{caption}</span>"
    )


def _video(stage: StageVideo) -> str:
    return (
        f"<video id='result-video' controls loop autoplay playsinline preload='auto' "
        f"aria-label='{escape(stage.caption)}' src='{escape(file_address(stage.path))}'></video>"
    )


def picture_address(stage: StagePreview) -> str:
    """Data address of the preview, its longer side at least `PICTURE_SIDE_PX`."""
    picture = Image.frombytes("RGB", (stage.width, stage.height), stage.rgb)
    factor = -(-PICTURE_SIDE_PX // max(stage.width, stage.height))
    buffer = io.BytesIO()
    large = picture.resize((stage.width * factor, stage.height * factor), Image.Resampling.BILINEAR)
    large.filter(ImageFilter.GaussianBlur(factor * SOFTNESS)).save(buffer, format="JPEG", quality=90)
    return "data:image/jpeg;base64," + base64.b64encode(buffer.getvalue()).decode("ascii")


def file_address(path: str) -> str:
    """Address under which the server hands out the file at `path` (absolute) without copying it."""
    return FILE_ROUTE + quote(path)
