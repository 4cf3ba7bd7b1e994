"""Receptive fields and blocks.

Tier: closed form in float64 on plain NumPy convolutions, and the released numbers of the model. That the model's own
layers have these fields is shown in test_audio_decoder.py and test_audio_encoder.py by moving single samples.
"""

import numpy as np
import pytest

from core.model.audio_blocks import BlockPlan, Span, residual_radius, run_in_blocks
from core.model.audio_decoder import tail_plan
from core.model.audio_encoder import trunk_plan
from core.model.config import AudioVaeConfig

RNG = np.random.default_rng(21)


def strided(x: np.ndarray, kernel: np.ndarray, stride: int, padding: int) -> np.ndarray:
    padded = np.pad(x, padding)
    return np.array([padded[i : i + len(kernel)] @ kernel for i in range(0, len(padded) - len(kernel) + 1, stride)])


def transposed(x: np.ndarray, kernel: np.ndarray, stride: int, padding: int) -> np.ndarray:
    full = np.zeros((len(x) - 1) * stride + len(kernel))
    for i, value in enumerate(x):
        full[i * stride : i * stride + len(kernel)] += value * kernel
    return full[padding : len(full) - padding]


@pytest.mark.parametrize(("layer", "before"), [(strided, Span.before_conv), (transposed, Span.before_transposed)])
@pytest.mark.parametrize(("kernel", "stride", "padding"), [(10, 5, 3), (8, 4, 2), (4, 2, 1), (9, 5, 2)])
def test_an_interval_holds_exactly_the_samples_an_output_sees(layer, before, kernel, stride, padding):
    taps, x = RNG.uniform(1, 2, kernel), RNG.normal(size=40)
    whole = layer(x, taps, stride, padding)
    first, last = len(whole) // 2, len(whole) // 2 + 1
    span = before(Span(first, last), kernel, stride, padding)
    seen = []
    for i in range(len(x)):
        moved = x.copy()
        moved[i] += 1.0
        if np.any(layer(moved, taps, stride, padding)[first : last + 1] != whole[first : last + 1]):
            seen.append(i)
    assert (seen[0], seen[-1]) == (span.first, span.last)


@pytest.mark.parametrize("block", [1, 3, 7, 100])
def test_blocks_with_enough_halo_are_exact_and_with_less_are_not(block):
    taps = RNG.uniform(1, 2, 8)
    x = RNG.normal(size=(40, 1))

    def run(part):  # 4 samples to 1, sees -2 .. 5 around its own first sample
        return strided(part[:, 0], taps, 4, 2)[:, None]

    def blocks(halo):
        plan = BlockPlan(block=block, halo_before=halo, halo_after=halo, unit_in=4, unit_out=1)
        return run_in_blocks(run, x, plan)

    assert np.array_equal(blocks(1), run(x))
    assert np.array_equal(blocks(0), run(x)) == (block >= 10)


def test_finished_units_are_reported():
    seen = []
    plan = BlockPlan(block=4, halo_before=1, halo_after=1)
    run_in_blocks(lambda part: part, np.zeros((10, 2)), plan, advance=seen.append)
    assert seen == [4, 4, 2]


def test_released_decoder_needs_89_samples_at_1_khz():
    assert residual_radius(11, (1, 3, 5)) == 90
    plan = tail_plan(AudioVaeConfig())
    assert (plan.halo_before, plan.halo_after, plan.unit_out) == (89, 89, 32)


def test_released_encoder_needs_12_latents():
    plan = trunk_plan(AudioVaeConfig())
    assert (plan.halo_before, plan.halo_after, plan.unit_in) == (12, 12, 800)
