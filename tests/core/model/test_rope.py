"""Rotary angles.

Tier: executed reference (the diffusers MiniMax-H3 module), exact for angles, one unit in the last place for cos and
sin, which NumPy and torch round differently. Cannot catch a wrong pairing of channels: that is `qk_norm_rope`'s test.
"""

import numpy as np
import pytest
import torch
from diffusers.models.transformers.transformer_minimax_h3 import MiniMaxH3RotaryPosEmbed

from core.geometry import Canvas, latent_grid
from core.kernels.reference import ReferenceBackend
from core.model.config import DenoiserConfig
from core.model.layout import pack
from core.model.rope import angles, build_rope, inverse_frequencies

LAYOUT = pack([1] * 300, latent_grid(Canvas(width=320, height=128), 107))


@pytest.mark.parametrize("count", [4, 8, 16])
def test_frequencies_equal_the_stored_ones(count):
    module = MiniMaxH3RotaryPosEmbed(rope_freq_dim=count)
    config = DenoiserConfig(rope_freq_dim=count)
    assert np.array_equal(inverse_frequencies(config), module.inv_freq.numpy())


def test_cos_and_sin_equal_diffusers():
    module = MiniMaxH3RotaryPosEmbed(rope_freq_dim=16)
    cos, sin = (table[:, :48].numpy() for table in module(torch.from_numpy(LAYOUT.positions)))
    rope = build_rope(ReferenceBackend(), LAYOUT.positions, inverse_frequencies(DenoiserConfig()))
    assert rope.cos.shape == rope.sin.shape == (LAYOUT.seq_len, 48)
    assert np.abs(rope.cos.numpy() - cos).max() <= 2**-23
    assert np.abs(rope.sin.numpy() - sin).max() <= 2**-23


def test_axes_follow_each_other_as_time_height_width():
    positions = np.array([[2.0, 3.0, 5.0]], dtype=np.float32)
    inv_freq = np.array([1.0, 0.5], dtype=np.float32)
    assert angles(positions, inv_freq).tolist() == [[2.0, 1.0, 3.0, 1.5, 5.0, 2.5]]


def test_halved_space_leaves_time_alone():
    inv_freq = inverse_frequencies(DenoiserConfig())
    full, halved = (angles(LAYOUT.positions, inv_freq, halve_space=flag) for flag in (False, True))
    assert np.array_equal(halved[:, :16], full[:, :16])
    assert np.array_equal(halved[:, 16:], full[:, 16:] * np.float32(0.5))
    assert np.abs(full[:, 16:]).max() > 1
