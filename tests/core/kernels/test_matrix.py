"""A matrix keeps the scales and the input transform of its rows through every cut and pile.

Tier: closed form. Cannot catch what a format's scales mean; test_reference_schemes.py does.
"""

import numpy as np
import pytest

from core.errors import CheckpointError
from core.kernels.matrix import Matrix, RowSpan, WeightFormat
from core.kernels.reference_dequant import expand

RNG = np.random.default_rng(11)
PRE_SCALE = RNG.uniform(0.5, 2, 64).astype(np.float32)


def random_bytes(count: int) -> np.ndarray:
    return RNG.integers(0, 120, count, dtype=np.uint8)  # below 120 no f8_e4m3 is NaN


def span(format: WeightFormat, rows: int = 300, columns: int = 64, scale: float = 0.5) -> RowSpan:
    data = random_bytes(rows * format.row_bytes(columns))
    if format is WeightFormat.NVFP4:
        return RowSpan(format, data, rows, scales=random_bytes(3 * 512), scale=scale)
    scales = RNG.uniform(0.5, 2, rows).astype(np.float32).view(np.uint8)
    return RowSpan(format, data, rows, scales=scales, scale=scale)


def matrix(format: WeightFormat, **transform) -> Matrix:
    return Matrix("w", 64, (span(format),), **transform)


SCALED = (WeightFormat.I8_ROW, WeightFormat.F8_E4M3, WeightFormat.NVFP4)


@pytest.mark.parametrize("format", SCALED, ids=lambda f: f.label)
def test_rows_of_a_range_are_those_of_the_whole(format):
    whole = matrix(format)
    part = whole.row_range(100, 290).row_range(31, 180)
    assert np.array_equal(expand(part), expand(whole)[131:280])
    assert part.spans[0].scales is whole.spans[0].scales and part.spans[0].first_row == 131


@pytest.mark.parametrize("format", SCALED, ids=lambda f: f.label)
def test_a_pile_of_ranges_has_their_rows_in_order(format):
    one, two = matrix(format), matrix(WeightFormat.I8_ROW)
    pile = Matrix.stack("pile", [one.row_range(150, 300), two, one.row_range(0, 150)])
    assert pile.name == "pile" and pile.rows == 600
    assert np.array_equal(expand(pile), np.concatenate([expand(one)[150:], expand(two), expand(one)[:150]]))


def test_the_input_transform_goes_with_ranges_and_piles():
    whole = matrix(WeightFormat.I8_ROW, rotation=16, pre_scale=PRE_SCALE)
    equal = matrix(WeightFormat.I8_ROW, rotation=16, pre_scale=PRE_SCALE.copy())
    for made in (whole.row_range(3, 5), Matrix.stack("w", [whole, equal])):
        assert made.rotation == 16 and made.pre_scale is PRE_SCALE and made.is_transformed
    assert not whole.as_stored().is_transformed and whole.as_stored().spans is whole.spans
    plain = matrix(WeightFormat.I8_ROW)
    assert not plain.is_transformed and plain.as_stored() is plain


@pytest.mark.parametrize(
    "other", [{}, {"rotation": 4}, {"rotation": 16}, {"rotation": 16, "pre_scale": PRE_SCALE + 1}], ids=str
)
def test_matrices_of_different_input_transforms_make_no_pile(other):
    one = matrix(WeightFormat.I8_ROW, rotation=16, pre_scale=PRE_SCALE)
    with pytest.raises(CheckpointError, match="transformed in different ways"):
        Matrix.stack("pile", [one, matrix(WeightFormat.I8_ROW, **other)])


@pytest.mark.parametrize("group", [-4, 1, 2, 3, 8, 32, 256])
def test_a_rotation_is_a_power_of_four_that_divides_the_columns(group):
    with pytest.raises(CheckpointError, match=f"groups of {group}, expected a power of 4 that divides 64"):
        matrix(WeightFormat.I8_ROW, rotation=group)


@pytest.mark.parametrize("pre_scale", [np.ones(63, np.float32), np.ones(64), np.ones((1, 64), np.float32)])
def test_a_pre_scale_is_one_float32_per_column(pre_scale):
    with pytest.raises(CheckpointError, match=r"pre-scale is float(32|64) .*, expected float32 \[64\]"):
        matrix(WeightFormat.I8_ROW, pre_scale=pre_scale)


@pytest.mark.parametrize(
    ("format", "scales", "first_row"),
    [
        (WeightFormat.NVFP4, None, 0),
        (WeightFormat.NVFP4, np.zeros(511, np.uint8), 0),
        (WeightFormat.NVFP4, np.zeros(512, np.uint8), 127),
        (WeightFormat.I8_ROW, np.zeros(7, np.uint8), 0),
        (WeightFormat.I8_ROW, np.zeros(8, np.uint8), 1),
        (WeightFormat.I8_ROW, np.zeros(8, np.uint8), -1),
        (WeightFormat.F8_E4M3, np.zeros(8, np.float32), 0),
        (WeightFormat.F32, np.zeros(8, np.uint8), 0),
    ],
)
def test_scales_that_do_not_fit_are_refused(format, scales, first_row):
    data = np.zeros(2 * format.row_bytes(64), np.uint8)
    with pytest.raises(CheckpointError, match="w: .*scales"):
        Matrix("w", 64, (RowSpan(format, data, 2, scales=scales, first_row=first_row),))


def test_a_format_without_scales_takes_no_factor():
    with pytest.raises(CheckpointError, match="scales do not fit the format f32"):
        Matrix("w", 64, (RowSpan(WeightFormat.F32, np.zeros(256, np.uint8), 1, scale=2.0),))
