"""The VAE's pixel space.

Tier: closed form, and torch's own arithmetic for the float32 steps. Cannot tell whether the mean and std are the right
ones; they come from the released configuration.
"""

import numpy as np
import pytest
import torch

from core import constants as c
from core.errors import KernelError
from core.model.pixels import denormalise_pixels, normalise_pixels

EVERY_VALUE = np.stack([np.arange(256)] * 3, axis=-1).astype(np.uint8).reshape(1, 16, 16, 3)


def test_every_8_bit_value_survives_a_round_trip():
    back = denormalise_pixels(normalise_pixels(EVERY_VALUE), np.empty_like(EVERY_VALUE))
    assert np.array_equal(back, EVERY_VALUE)


def test_normalising_has_the_bits_of_torch():
    mean, std = torch.tensor(c.PIXEL_MEAN), torch.tensor(c.PIXEL_STD)
    expected = (torch.from_numpy(EVERY_VALUE).float() / 255.0 - mean) / std
    assert np.array_equal(normalise_pixels(EVERY_VALUE), expected.numpy())


def test_denormalising_has_the_bits_of_torch_and_rounds_halves_to_even():
    x = np.random.default_rng(5).normal(0, 2, (2, 9, 7, 3)).astype(np.float32)
    y = (torch.from_numpy(x) * torch.tensor(c.PIXEL_STD) + torch.tensor(c.PIXEL_MEAN)).clamp(0, 1)
    expected = (y * 255).round().to(torch.uint8).numpy()
    assert {0, 255} <= set(expected.flat)  # the clamp is at work on both sides
    assert np.array_equal(denormalise_pixels(x, np.empty(x.shape, np.uint8)), expected)


@pytest.mark.parametrize(("level", "expected"), [(-7.0, 0), (-0.2, 0), (1.2, 255), (40.0, 255)])
def test_values_outside_the_range_are_clamped_and_never_wrap_around(level, expected):
    x = (np.full((1, 1, 1, 3), level, np.float32) - np.array(c.PIXEL_MEAN)) / np.array(c.PIXEL_STD)
    assert np.all(denormalise_pixels(x.astype(np.float32), np.empty(x.shape, np.uint8)) == expected)


def test_pixels_that_are_not_numbers_are_refused():
    x = np.zeros((2, 4, 4, 3), np.float32)
    x[1, 2, 3, 0] = np.nan
    with pytest.raises(KernelError, match="not numbers"):
        denormalise_pixels(x, np.empty(x.shape, np.uint8))
