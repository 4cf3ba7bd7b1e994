"""Temporal clips of the video VAE: which latents make which frames.

A decode runs over windows of 7 latents, 5 apart. A window gives 28 frames p0..p27:

    p0-p2 dropped | p3-p19 frames 17k .. 17k+16 | p20-p22 dropped | p23-p27 faded into the next clip, or the end

The trap: a frame in the first 5 of a clip also contains the clip before, and frame 17k is entirely the clip before.
Lengths other than 5 n + 2 latents are refused; the model does not make them.
Proof: tests/core/model/test_video_clips.py.
"""

from collections.abc import Sequence

import numpy as np

from core import constants as c
from core.errors import RequestError

WINDOW_LATENTS = c.CLIP_LATENTS + c.CLIP_TAIL_LATENTS
KEPT_FRAMES = c.CLIP_FRAMES + c.CLIP_TAIL_FRAMES  # per window


def clip_count(latent_t: int) -> int:
    """Windows of a video latent with 5 n + 2 frames. Raises RequestError for any other length, and for n = 0."""
    clips, rest = divmod(latent_t - c.CLIP_TAIL_LATENTS, c.CLIP_LATENTS)
    if clips < 1 or rest:
        raise RequestError(
            f"A video latent of {latent_t} frames cannot be decoded; the decoder takes 7, 12, 17, ... (5 n + 2)."
        )
    return clips


def window(clip: int) -> slice:
    """Latent frames that clip number `clip` is decoded from."""
    return slice(c.CLIP_LATENTS * clip, c.CLIP_LATENTS * clip + WINDOW_LATENTS)


def kept_frames(temporal_ratio: int) -> np.ndarray:
    """Indices of the 22 frames of a decoded window that are used: 17 of this clip, then 5 to fade out."""
    leading = -c.CLIP_FRAMES % temporal_ratio
    first, second = leading, c.CLIP_LATENTS * temporal_ratio + leading
    return np.concatenate([np.arange(first, first + c.CLIP_FRAMES), np.arange(second, second + c.CLIP_TAIL_FRAMES)])


def clips_of_frame(frame: int, latent_t: int) -> range:
    """Clips that the finished frame `frame` is made of: one, or two where clips fade into each other."""
    last = min(frame // c.CLIP_FRAMES, clip_count(latent_t) - 1)
    local = frame - c.CLIP_FRAMES * last
    return range(last - (1 if last and local < c.CLIP_TAIL_FRAMES else 0), last + 1)


def denormalise_latent(latent: np.ndarray, mean: Sequence[float], std: Sequence[float]) -> np.ndarray:
    """VAE space, channels last [t, h, w, 24], of a model-space video latent [24, t, h, w]: latent * std + mean."""
    value = np.moveaxis(latent, 0, -1) * np.asarray(std, dtype=np.float32)
    value += np.asarray(mean, dtype=np.float32)
    return np.ascontiguousarray(value)


def normalise_latent(latent: np.ndarray, mean: Sequence[float], std: Sequence[float]) -> np.ndarray:
    """Model-space video latent [24, t, h, w] of a VAE-space one, channels last [t, h, w, 24]: (latent - mean) / std."""
    value = (latent - np.asarray(mean, dtype=np.float32)) / np.asarray(std, dtype=np.float32)
    return np.ascontiguousarray(np.moveaxis(value, -1, 0))
