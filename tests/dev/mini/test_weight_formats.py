"""Encoders of the weight formats, read back by the application's own expansion.

Tier: closed form. The expected errors are those of each format on Gaussian weights, as published for its reference
encoder to two digits; a scale or an integer at the wrong place gives errors near 1. Says nothing about real weights.
"""

import numpy as np
import pytest

from core.kernels.matrix import Matrix, WeightFormat
from core.kernels.provider import DictSource
from core.kernels.reference_dequant import expand, restore
from dev.mini.weight_formats import EncodedSource, encode

EXPECTED = {  # relative L2
    "f32": 0, "f16": 2.1e-4, "bf16": 1.7e-3, "q8_0": 5.4e-3, "q6_k": 1.8e-2, "q5_k": 3.6e-2, "q5_1": 3.9e-2,
    "q5_0": 4.3e-2, "q4_k": 7.2e-2, "q4_1": 7.9e-2, "q4_0": 8.6e-2, "q3_k": 0.15, "q2_k": 0.28,
    "i8_row": 8e-3, "f8_e4m3": 2.6e-2, "nvfp4": 9.5e-2,
}  # fmt: skip


def gaussian(rows: int = 64, columns: int = 512) -> np.ndarray:
    return np.random.default_rng(4).standard_normal((rows, columns)).astype(np.float32) * np.float32(0.02)


def coded(values: np.ndarray, weight_format: WeightFormat) -> np.ndarray:
    return restore(encode(Matrix.from_float32("weight", values), weight_format))


@pytest.mark.parametrize("weight_format", list(WeightFormat), ids=lambda f: f.label)
def test_errors_are_those_of_the_format(weight_format):
    values = gaussian()
    error = np.linalg.norm(coded(values, weight_format) - values) / np.linalg.norm(values)
    expected = EXPECTED[weight_format.label]
    assert 0.85 * expected <= error <= 1.05 * expected


K_FORMATS = [f for f in WeightFormat if f.label.endswith("_k")]


@pytest.mark.parametrize("weight_format", K_FORMATS, ids=lambda f: f.label)
def test_zeros_stay_zero_and_small_groups_beside_an_outlier_stay_finite(weight_format):
    values = np.zeros((2, 512), np.float32)
    values[1, 300] = 50.0
    values[1, 301:310] = 1e-6
    got = coded(values, weight_format)
    assert not got[0].any() and not got[1, :256].any()
    assert got[1, 300] == pytest.approx(50.0, rel=0.02) and np.isfinite(got).all()


@pytest.mark.parametrize("weight_format", K_FORMATS, ids=lambda f: f.label)
def test_every_number_takes_the_nearest_of_the_levels_its_group_uses(weight_format):
    values = gaussian(2, 256)
    got = coded(values, weight_format)
    groups = 16 if weight_format in (WeightFormat.Q2_K, WeightFormat.Q3_K, WeightFormat.Q6_K) else 8
    for row in range(2):
        for x, y in zip(np.split(values[row], groups), np.split(got[row], groups), strict=True):
            levels = np.unique(y)
            nearest = levels[np.abs(x[:, None] - levels[None]).argmin(1)]
            assert np.abs(x - y) == pytest.approx(np.abs(x - nearest), abs=1e-6)


def test_a_source_codes_the_weights_of_blocks_once_and_leaves_the_rest():
    source = DictSource({"blocks.0.fc1.weight": gaussian(4, 256), "condition_proj.weight": gaussian(4, 256)})
    seen = EncodedSource(source, WeightFormat.Q4_K)
    inside = seen.matrix("blocks.0.fc1.weight")
    assert inside.spans[0].format is WeightFormat.Q4_K and seen.matrix("blocks.0.fc1.weight") is inside
    assert seen.matrix("condition_proj.weight").spans[0].format is WeightFormat.F32
    assert np.array_equal(seen.values("blocks.0.fc1.weight"), expand(inside))
