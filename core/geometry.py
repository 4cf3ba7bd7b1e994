"""Seconds, frames, latents and rows: pure arithmetic, no arrays.

The trap: frame counts are 17 n + 5 and canvases are multiples of 32, so almost every popular size is illegal and must
be snapped with a notice. Equal to diffusers' `align_num_frames`, `video_latent_num_frames`
and `audio_latent_num_frames` (pinned by tests/core/test_geometry.py).
"""

import math
from dataclasses import dataclass

from core import constants as c
from core.errors import RequestError


@dataclass(frozen=True, slots=True, kw_only=True)
class Canvas:
    """Pixel size of the clip; both sides are multiples of 32."""

    width: int
    height: int

    def __post_init__(self):
        for name, value in (("width", self.width), ("height", self.height)):
            if value < c.CANVAS_MULTIPLE_PX or value % c.CANVAS_MULTIPLE_PX:
                raise RequestError(
                    f"Canvas {name} is {value} px; it must be a positive multiple of {c.CANVAS_MULTIPLE_PX} px.",
                    hint=f"Use {snap_side(value)} px.",
                )

    @property
    def latent_h(self) -> int:
        return self.height // c.LATENT_STRIDE_PX

    @property
    def latent_w(self) -> int:
        return self.width // c.LATENT_STRIDE_PX

    @property
    def rows_per_latent_frame(self) -> int:
        return (self.latent_h // c.PATCH_SPATIAL) * (self.latent_w // c.PATCH_SPATIAL)


@dataclass(frozen=True, slots=True, kw_only=True)
class LatentGrid:
    """Latent sizes of one clip: video [24, latent_t, latent_h, latent_w], audio [2, 32, audio_latents]."""

    latent_t: int
    latent_h: int
    latent_w: int
    audio_latents: int

    @property
    def rows_per_frame(self) -> int:
        return (self.latent_h // c.PATCH_SPATIAL) * (self.latent_w // c.PATCH_SPATIAL)

    @property
    def video_rows(self) -> int:
        return self.latent_t * self.rows_per_frame

    @property
    def audio_rows(self) -> int:
        return c.AUDIO_CHANNELS * self.audio_latents


def snap_side(value: float) -> int:
    """Nearest legal canvas side in px, ties upwards, at least 32."""
    step = c.CANVAS_MULTIPLE_PX
    return max(step, (int(value) + step // 2) // step * step)


def snap_canvas(width: int, height: int) -> tuple[int, int]:
    """Nearest legal (width, height) in px; one of more than CANVAS_MAX_AREA_PX is made smaller, in proportion."""
    legal_w, legal_h = snap_side(width), snap_side(height)
    if legal_w * legal_h <= c.CANVAS_MAX_AREA_PX:
        return legal_w, legal_h
    scale = math.sqrt(c.CANVAS_MAX_AREA_PX / (legal_w * legal_h))
    legal_w, legal_h = snap_side(legal_w * scale), snap_side(legal_h * scale)
    if legal_w * legal_h > c.CANVAS_MAX_AREA_PX:  # both were rounded up: the longer side gives way, of a square both
        fitting = c.CANVAS_MAX_AREA_PX // min(legal_w, legal_h) // c.CANVAS_MULTIPLE_PX * c.CANVAS_MULTIPLE_PX
        return (fitting if legal_w >= legal_h else legal_w), (fitting if legal_h >= legal_w else legal_h)
    return legal_w, legal_h


def snap_frame_count(frame_count: int) -> int:
    """Next decodable frame count 17 n + 5, within 22..362."""
    clips = max(1, math.ceil((frame_count - c.CLIP_TAIL_FRAMES) / c.CLIP_FRAMES))
    return min(c.MAX_FRAME_COUNT, clips * c.CLIP_FRAMES + c.CLIP_TAIL_FRAMES)


def latent_frame_count(frame_count: int) -> int:
    """Latent frames 5 n + 2 of a legal frame count 17 n + 5."""
    clips, rest = divmod(frame_count - c.CLIP_TAIL_FRAMES, c.CLIP_FRAMES)
    if clips < 1 or rest:
        raise RequestError(
            f"{frame_count} frames cannot be decoded; the model makes 22, 39, 56, ... (17 n + 5) frames.",
            hint=f"Use {snap_frame_count(frame_count)} frames.",
        )
    return clips * c.CLIP_LATENTS + c.CLIP_TAIL_LATENTS


def audio_latent_count(frame_count: int) -> int:
    """Audio latents per channel that cover `frame_count` frames at 24 fps."""
    return round(frame_count * c.AUDIO_LATENTS_PER_S / c.FPS)


def latent_grid(canvas: Canvas, frame_count: int) -> LatentGrid:
    """Latent sizes of a clip on `canvas` with a legal `frame_count`."""
    return LatentGrid(
        latent_t=latent_frame_count(frame_count),
        latent_h=canvas.latent_h,
        latent_w=canvas.latent_w,
        audio_latents=audio_latent_count(frame_count),
    )


def frame_count_for_seconds(seconds: float) -> int:
    """Legal frame count that covers at least `seconds` of video (within the model's limits)."""
    return snap_frame_count(math.ceil(seconds * c.FPS))


def latent_index_of_frame(frame: int) -> int:
    """Latent frame that carries pixel frame `frame`: 17 k -> 5 k, 17 k + 4 i - 3 .. 17 k + 4 i -> 5 k + i."""
    clip, local = divmod(frame, c.CLIP_FRAMES)
    return clip * c.CLIP_LATENTS + (local + 3) // 4
