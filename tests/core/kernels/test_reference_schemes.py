"""The formats with scales of their own against torch's float8 and tables written from the format description.

Tier: executed reference (torch.float8_e4m3fn), independent transcription (E2M1 values, the tile order by reshaping,
the rotation as an explicit Kronecker matrix in float64). Cannot catch a misread of the order of the two nibbles.
"""

import numpy as np
import pytest
import torch

from core.kernels.backend import Activation
from core.kernels.matrix import Matrix, RowSpan, WeightFormat
from core.kernels.reference import ReferenceBackend
from core.kernels.reference_dequant import expand, expand_rows, restore
from core.kernels.reference_schemes import e4m3_table, rotate, rotation_matrix, transform
from tests.native.kernel_data import kronecker, same_bits, scheme_oracle, scheme_span

SCALED = (WeightFormat.I8_ROW, WeightFormat.F8_E4M3, WeightFormat.NVFP4)
RNG = np.random.default_rng(12)


def test_every_f8_e4m3_code_has_torchs_value():
    codes = np.arange(256, dtype=np.uint8)
    expected = torch.from_numpy(codes).view(torch.float8_e4m3fn).float().numpy()
    assert same_bits(e4m3_table(), expected)
    assert np.isnan(expected).sum() == 2


@pytest.mark.parametrize("first_row", [0, 1, 95, 200])
@pytest.mark.parametrize("columns", [16, 48, 64, 272])
@pytest.mark.parametrize("format", SCALED, ids=lambda f: f.label)
def test_rows_have_the_values_of_the_description(format, columns, first_row):
    span, expected = scheme_oracle(format, 150, columns, first_row=first_row, scale=0.371)
    assert same_bits(expand(Matrix("w", columns, (span,))), expected)


@pytest.mark.parametrize("format", SCALED, ids=lambda f: f.label)
def test_gathered_rows_equal_rows_of_the_whole_matrix(format):
    spans = [scheme_span(format, rows, 64, seed=rows) for rows in (40, 30)]
    whole = Matrix("w", 64, tuple(spans))
    ids = np.array([69, 0, 41, 40, 39, 3, 3], dtype=np.int32)
    assert same_bits(expand_rows(whole, ids), expand(whole)[ids])
    rotated = Matrix("w", 64, tuple(spans), rotation=16)
    np.testing.assert_allclose(expand_rows(rotated, ids), restore(rotated)[ids], rtol=0, atol=1e-5)


@pytest.mark.parametrize("format", [WeightFormat.I8_ROW, WeightFormat.F8_E4M3], ids=lambda f: f.label)
def test_one_scale_may_serve_the_whole_tensor(format):
    codes = np.arange(256, dtype=np.uint8)
    values = codes.view(np.int8).astype(np.float32) if format is WeightFormat.I8_ROW else e4m3_table()
    got = expand(Matrix("w", 32, (RowSpan(format, codes, 8, scale=0.3),)))
    assert same_bits(got, (values * np.float32(0.3)).reshape(8, 32))


@pytest.mark.parametrize("group", [4, 16, 64, 256])
def test_rotation_is_the_explicit_kronecker_matrix(group):
    expected = kronecker(group)
    assert np.array_equal(rotation_matrix(group), expected)
    assert np.array_equal(expected @ expected, np.eye(group)) and np.array_equal(expected, expected.T)
    x = RNG.standard_normal((3, 2 * group)).astype(np.float32)
    got = rotate(x, group).reshape(-1, group)
    np.testing.assert_allclose(got, x.astype(np.float64).reshape(-1, group) @ expected, rtol=0, atol=4e-6)


def test_the_input_is_scaled_before_it_is_rotated():
    x, scale = RNG.standard_normal((5, 32)).astype(np.float32), RNG.uniform(0.5, 2, 32).astype(np.float32)
    matrix = Matrix("w", 32, (scheme_span(WeightFormat.I8_ROW, 3, 32),), rotation=16, pre_scale=scale)
    expected = (x * scale).astype(np.float64).reshape(-1, 16) @ kronecker(16)
    np.testing.assert_allclose(transform(matrix, x), expected.reshape(5, 32), rtol=0, atol=2e-6)
    assert transform(matrix.as_stored(), x) is x


@pytest.mark.parametrize("activation", [Activation.NONE, Activation.SWIGLU], ids=lambda a: a.value)
def test_linear_transforms_the_input_and_equals_the_product_with_the_restored_weight(activation):
    x = RNG.standard_normal((7, 128)).astype(np.float32)
    scale = RNG.uniform(0.5, 2, 128).astype(np.float32)
    matrix = Matrix("w", 128, (scheme_span(WeightFormat.I8_ROW, 20, 128),), rotation=64, pre_scale=scale)
    weight = expand(matrix).astype(np.float64)
    rotated = np.einsum("...ij,jk->...ik", weight.reshape(20, -1, 64), kronecker(64)).reshape(20, 128)
    y = (x * scale).astype(np.float64) @ rotated.T
    gate, value = y[:, :10], y[:, 10:]
    expected = y if activation is Activation.NONE else gate / (1 + np.exp(-gate)) * value
    backend, given = ReferenceBackend(), x.copy()
    for stored in (matrix, Matrix.from_float32("w", restore(matrix))):
        got = backend.linear(torch.from_numpy(x), stored, activation=activation).numpy()
        np.testing.assert_allclose(got, expected, rtol=0, atol=2e-6 * np.abs(expected).max())
    assert np.array_equal(x, given)
