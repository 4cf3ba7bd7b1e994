"""Noise levels of a clip: one base grid, warped once for picture and once for sound.

`steps` counts model evaluations; the grid has steps + 1 points and ends at 0. Other programs count grid points.

The trap: a timestep is 1 - sigma rounded to float32, and 1 - timestep is not sigma again. The sampler needs both.
Proof: tests/core/pipeline/test_schedule.py, bit for bit against the diffusers MiniMax-H3 scheduler.
"""

from dataclasses import dataclass

import numpy as np
import torch

from core.errors import RequestError


@dataclass(frozen=True, slots=True, eq=False)
class SigmaGrid:
    """One modality's noise levels: sigmas [steps + 1] float32, strictly falling from 1 to 0."""

    sigmas: np.ndarray

    @property
    def timesteps(self) -> np.ndarray:
        """Model time per evaluation, float32 [steps]: 0 is noise, 1 is clean."""
        return np.float32(1.0) - self.sigmas[:-1]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Schedule:
    """The noise levels of both modalities over `steps` evaluations."""

    steps: int
    video: SigmaGrid
    audio: SigmaGrid


def build_schedule(steps: int, *, video_shift: float, audio_shift: float) -> Schedule:
    """Schedule of `steps` evaluations; a larger shift spends more of them near pure noise.

    raises: RequestError when a shift is so large that two noise levels coincide
    """
    return Schedule(steps=steps, video=_sigma_grid(steps, video_shift), audio=_sigma_grid(steps, audio_shift))


def _sigma_grid(steps: int, shift: float) -> SigmaGrid:
    # torch.linspace counts down from the far end in its second half; NumPy's grid differs in the last bit.
    base = torch.linspace(1.0, 0.0, steps + 1, dtype=torch.float32)
    sigmas = (shift * base / (1 + (shift - 1) * base)).numpy()
    if steps < 1 or not np.all(np.diff(sigmas) < 0):
        raise RequestError(
            f"{steps} steps with shift {shift:g} give no falling row of noise levels.", hint="Use 1 to 200 steps."
        )
    return SigmaGrid(sigmas)
