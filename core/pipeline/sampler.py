"""From noise to a clip: Euler steps along the velocity that the model gives, both modalities side by side.

The model's velocity points towards the data: x0 = x + (1 - t) * v, and the next latent is the blend
r * x + (1 - r) * x0 with r = sigma_next / sigma. No noise is added on the way.

The trap: the same update as x + (sigma - sigma_next) * v is equal on paper and drifts in float32.
Proof: tests/core/pipeline/test_sampler.py, against the diffusers MiniMax-H3 loop for all three tasks.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from core.errors import KernelError
from core.model.layout import LatentRows
from core.pipeline.schedule import Schedule, SigmaGrid

Predict = Callable[[int, LatentRows], LatentRows]  # (step from 0, current rows) -> velocity


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SamplerState:
    """Where sampling stands: `done` evaluations of the schedule, and the rows they led to. Enough to go on from."""

    done: int
    latents: LatentRows


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SampledStep:
    """After one evaluation: the new state, and the clean clip as estimated from it (for previews)."""

    state: SamplerState
    clean: LatentRows


def sample(predict: Predict, schedule: Schedule, state: SamplerState) -> Iterator[SampledStep]:
    """Yield after each evaluation until the schedule is done; the last `state.latents` is the clip.

    raises: KernelError when the model returns a number that is not finite
    """
    while state.done < schedule.steps:
        step = state.done
        velocity = predict(step, state.latents)
        _check_finite(step, velocity)
        video, clean_video = euler_step(schedule.video, step, state.latents.video, velocity.video)
        audio, clean_audio = euler_step(schedule.audio, step, state.latents.audio, velocity.audio)
        state = SamplerState(done=step + 1, latents=LatentRows(video, audio))
        yield SampledStep(state=state, clean=LatentRows(clean_video, clean_audio))


def euler_step(grid: SigmaGrid, step: int, x: np.ndarray, velocity: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(next rows, estimated clean rows), float32 in the operation order of the reference."""
    one = np.float32(1.0)
    clean = x + (one - grid.timesteps[step]) * velocity
    ratio = grid.sigmas[step + 1] / grid.sigmas[step]
    return ratio * x + (one - ratio) * clean, clean


def _check_finite(step: int, velocity: LatentRows) -> None:
    for name, rows in (("video", velocity.video), ("audio", velocity.audio)):
        bad = rows.size - int(np.count_nonzero(np.isfinite(rows)))
        if bad:
            raise KernelError(
                f"The denoiser returned {bad} of {rows.size} {name} numbers that are not finite in step {step + 1}.",
                hint="Verify the weight file.",
            )
