"""Noise levels.

Tier: executed reference (the diffusers MiniMax-H3 scheduler), bit for bit; published values as an anchor.
"""

import numpy as np
import pytest
from diffusers import MiniMaxH3Scheduler

from core.errors import RequestError
from core.pipeline.schedule import build_schedule


@pytest.mark.parametrize("shift", [12.0, 3.0, 6.0, 1.0])
@pytest.mark.parametrize("steps", [1, 2, 3, 4, 5, 7, 8, 20, 49, 50, 200])
def test_grids_equal_diffusers_with_one_more_grid_point(steps, shift):
    scheduler = MiniMaxH3Scheduler(shift=shift)
    scheduler.set_timesteps(steps + 1)
    schedule = build_schedule(steps, video_shift=shift, audio_shift=shift)
    for grid in (schedule.video, schedule.audio):
        assert grid.sigmas.dtype == grid.timesteps.dtype == np.float32
        assert np.array_equal(grid.sigmas, scheduler.sigmas.numpy())
        assert np.array_equal(grid.timesteps, scheduler.timesteps.numpy())
        assert len(grid.timesteps) == schedule.steps == steps


def test_each_modality_has_its_own_shift():
    schedule = build_schedule(4, video_shift=12.0, audio_shift=3.0)
    assert schedule.video.sigmas == pytest.approx([1.0, 0.972973, 0.923077, 0.8, 0.0], abs=1e-6)
    assert schedule.audio.sigmas == pytest.approx([1.0, 0.9, 0.75, 0.5, 0.0], abs=1e-6)


def test_a_schedule_starts_at_pure_noise_and_ends_clean():
    grid = build_schedule(20, video_shift=12.0, audio_shift=3.0).video
    assert (grid.timesteps[0], grid.sigmas[0], grid.sigmas[-1]) == (0.0, 1.0, 0.0)


@pytest.mark.parametrize(("steps", "shift"), [(0, 12.0), (50, 1e9), (4, 0.0), (4, -1.0)])
def test_a_grid_that_does_not_fall_is_refused(steps, shift):
    with pytest.raises(RequestError, match="no falling row"):
        build_schedule(steps, video_shift=shift, audio_shift=3.0)
