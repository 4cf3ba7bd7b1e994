"""The formats with scales of their own and the rotation in the library, against the descriptions and float64.

Tier: executed reference (torch.float8_e4m3fn), independent transcription (E2M1 values, tiles by reshaping, the explicit
Kronecker matrix). Cannot catch a misread of the order of the two nibbles.
"""

import numpy as np
import pytest

from core.kernels.backend import Activation
from core.kernels.matrix import SCALED_FORMATS, Matrix, WeightFormat
from core.kernels.native import NativeBackend
from core.kernels.reference_dequant import expand, restore
from tests.native.kernel_data import (
    PRODUCT_TOLERANCE,
    assert_close,
    kronecker,
    normal,
    random_matrix,
    same_bits,
    scheme_oracle,
    scheme_span,
)

pytestmark = pytest.mark.native
PRE_SCALE = np.random.default_rng(13).uniform(0.5, 2, 512).astype(np.float32)


def all_rows(matrix: Matrix) -> np.ndarray:
    return NativeBackend(threads=2).embedding(np.arange(matrix.rows, dtype=np.int32), matrix)


@pytest.mark.parametrize("first_row", [0, 95, 200])
@pytest.mark.parametrize("columns", [16, 48, 64, 272])
@pytest.mark.parametrize("format", SCALED_FORMATS, ids=lambda f: f.label)
def test_rows_expand_to_the_bits_of_the_description(format, columns, first_row):
    span, expected = scheme_oracle(format, 150, columns, first_row=first_row, scale=0.371)
    assert same_bits(all_rows(Matrix("w", columns, (span,))), expected)


@pytest.mark.parametrize("format", SCALED_FORMATS, ids=lambda f: f.label)
def test_ranges_and_piles_keep_their_scales(format):
    whole = Matrix("w", 64, (scheme_span(format, 300, 64),))
    pile = Matrix.stack("w", [whole.row_range(190, 300), whole.row_range(1, 130)])
    assert same_bits(all_rows(pile), expand(pile))


def test_a_table_stored_rotated_and_scaled_gives_its_true_rows():
    table = Matrix("w", 512, (scheme_span(WeightFormat.I8_ROW, 9, 512),), rotation=256, pre_scale=PRE_SCALE)
    assert_close(all_rows(table), restore(table).astype(np.float64), 1e-6)


@pytest.mark.parametrize("scaled", [False, True])
@pytest.mark.parametrize("group", [4, 16, 64, 256])
def test_rotated_rows_are_those_of_the_kronecker_matrix(group, scaled):
    x, scale = normal(37, 512), PRE_SCALE if scaled else None
    y = np.empty_like(x)
    NativeBackend(threads=2).run("h3k_rotate_rows", {"x": x, "pre_scale": scale, "y": y}, {"group": group})
    given = x.astype(np.float64) * (PRE_SCALE if scaled else 1)
    expected = (given.reshape(-1, group) @ kronecker(group)).reshape(x.shape)
    assert_close(y, expected, 10 * 2**-24)  # ten roundings at most, of values below the largest


@pytest.mark.parametrize("activation", [Activation.NONE, Activation.SILU, Activation.SWIGLU], ids=lambda a: a.value)
def test_linear_transforms_the_input_of_any_weight(activation):
    """Rows of two formats, so that the gate and value halves are multiplied one by one."""
    parts = [random_matrix(WeightFormat.F32, 10, 512), random_matrix(WeightFormat.Q8_0, 20, 512)]
    spans = tuple(span for part in parts for span in part.spans)
    weight = Matrix("w", 512, spans, rotation=64, pre_scale=PRE_SCALE)
    x, bias = normal(7, 512), normal(30)
    given = x.copy()
    rotated = ((x * PRE_SCALE).astype(np.float64).reshape(-1, 64) @ kronecker(64)).reshape(x.shape)
    stored = expand(weight).astype(np.float64)
    y = rotated @ stored.T + bias
    magnitude = np.abs(rotated) @ np.abs(stored).T + np.abs(bias)
    if activation is Activation.SILU:
        y = y / (1 + np.exp(-y))
    if activation is Activation.SWIGLU:
        y = y[:, :15] / (1 + np.exp(-y[:, :15])) * y[:, 15:]
        magnitude = magnitude[:, :15] * magnitude[:, 15:]
    got = NativeBackend(threads=2).linear(x, weight, bias=bias, activation=activation)
    assert_close(got, y, 2 * PRODUCT_TOLERANCE[WeightFormat.F32], magnitude=magnitude)
    assert np.array_equal(x, given)
