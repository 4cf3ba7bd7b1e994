"""The random numbers of a clip: which are drawn, from what, in which order.

One torch CPU generator per clip: first the noise of each picture condition in packed order, then the target video as a
latent, then the target audio as rows. The same seed gives the same clip only under the same rule, so a change of
anything here is a new NOISE_RULE_VERSION.

The trap: audio is drawn as rows [2 * A, 32], not as a latent [2, 32, A]; the numbers are the same, their places differ.
Proof: tests/core/pipeline/test_noise.py, bit for bit against diffusers MiniMax-H3.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import torch

from core import constants as c
from core.geometry import LatentGrid
from core.model.layout import LatentRows, patchify

NOISE_RULE_VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ClipNoise:
    """Standard normal float32: `target` rows, and one latent [24, t, h, w] per picture condition."""

    target: LatentRows
    conditions: tuple[np.ndarray, ...]


def draw_noise(seed: int, grid: LatentGrid, *, condition_shapes: Iterable[tuple[int, int, int]] = ()) -> ClipNoise:
    """Noise of a clip. condition_shapes: (latent_t, latent_h, latent_w) of each picture condition, in packed order."""
    generator = torch.Generator(device="cpu").manual_seed(seed)

    def normal(*shape: int) -> np.ndarray:
        return torch.randn(shape, generator=generator, dtype=torch.float32).numpy()

    conditions = tuple(normal(c.VIDEO_LATENT_CHANNELS, *shape) for shape in condition_shapes)
    video = normal(c.VIDEO_LATENT_CHANNELS, grid.latent_t, grid.latent_h, grid.latent_w)
    audio = normal(grid.audio_rows, c.AUDIO_LATENT_CHANNELS)
    return ClipNoise(target=LatentRows(patchify(video), audio), conditions=conditions)


def noised_condition(clean: np.ndarray, noise: np.ndarray) -> np.ndarray:
    """A picture condition at its fixed timestep 0.999, float32; it enters every step like this."""
    t = np.float32(c.VISUAL_CONDITION_TIMESTEP)
    return t * clean + (np.float32(1.0) - t) * noise
