"""Noise of a clip.

Tier: executed reference (the latent steps of diffusers MiniMax-H3), bit for bit. Holds for one torch version: another
one may draw other numbers from the same seed, which is what the golden values at the end would show.
"""

import numpy as np
import pytest
import torch
from diffusers import MiniMaxH3Scheduler
from diffusers.modular_pipelines.minimax_h3.before_denoise import (
    MiniMaxH3PrepareConditionLatentsStep,
    MiniMaxH3PrepareLatentsStep,
)

from core.geometry import LatentGrid
from core.model.layout import patchify
from core.pipeline.noise import NOISE_RULE_VERSION, draw_noise, noised_condition
from tests.oracles.portable import normal_like

GRID = LatentGrid(latent_t=7, latent_h=4, latent_w=6, audio_latents=37)
SIZES = dict(num_latent_frames=7, latent_height=4, latent_width=6, num_audio_latents=37)
CONDITIONS = [(1, 6, 4), (7, 4, 4)]


@pytest.mark.parametrize("seed", [0, 7, 2**32, 2**63 - 1])
def test_target_noise_equals_diffusers(seed):
    state = MiniMaxH3PrepareLatentsStep().init_pipeline()(generator=torch.Generator().manual_seed(seed), **SIZES)
    noise = draw_noise(seed, GRID).target
    assert noise.video.dtype == noise.audio.dtype == np.float32
    assert np.array_equal(noise.video, state.get("latents").numpy())
    assert np.array_equal(noise.audio, state.get("audio_latents").numpy())


def test_conditions_are_drawn_first_and_noised_as_in_diffusers():
    clean = [normal_like(f"condition{i}", 24, *shape) for i, shape in enumerate(CONDITIONS)]
    generator = torch.Generator().manual_seed(11)
    conditions = MiniMaxH3PrepareConditionLatentsStep().init_pipeline()
    conditions.update_components(scheduler=MiniMaxH3Scheduler(shift=12.0))
    rows = conditions(
        generator=generator, num_condition_video_rows=6 + 28,
        condition_latents=[torch.from_numpy(latent)[None] for latent in clean],
    ).get("condition_rows")  # fmt: skip
    target = MiniMaxH3PrepareLatentsStep().init_pipeline()(generator=generator, **SIZES)

    noise = draw_noise(11, GRID, condition_shapes=CONDITIONS)
    noised = [noised_condition(x, e) for x, e in zip(clean, noise.conditions, strict=True)]
    assert np.array_equal(np.concatenate([patchify(latent) for latent in noised]), rows.numpy())
    assert np.array_equal(noise.target.video, target.get("latents").numpy())
    assert np.array_equal(noise.target.audio, target.get("audio_latents").numpy())


def test_seeds_differ_and_repeat():
    first, again, other = (draw_noise(seed, GRID).target for seed in (3, 3, 4))
    assert np.array_equal(first.video, again.video) and np.array_equal(first.audio, again.audio)
    assert abs(np.corrcoef(first.video.ravel(), other.video.ravel())[0, 1]) < 0.1
    assert abs(np.corrcoef(first.audio.ravel(), other.audio.ravel())[0, 1]) < 0.1


def test_rule_version_1_stands_for_these_numbers():
    noise = draw_noise(7, GRID).target
    assert NOISE_RULE_VERSION == 1
    assert noise.video[0, :3] == pytest.approx([-0.8201345, 0.39563116, -0.6410915], abs=1e-6)
    assert noise.audio[0, :3] == pytest.approx([-2.2671652, 0.4076865, -0.36501282], abs=1e-6)
