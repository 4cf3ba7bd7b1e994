"""The library expands GGUF blocks to the very bits that the `gguf` package gives.

Tier: executed reference (gguf's NumPy dequantisation). Cannot catch a format that gguf itself has wrong.
"""

import gguf
import numpy as np
import pytest

from core.kernels.matrix import BLOCK_FORMATS, Matrix, RowSpan, WeightFormat
from core.kernels.native import NativeBackend
from tests.native.kernel_data import HIGH_BITS, at_offset, blocks_with_one_high_bit, random_bytes, with_scales

pytestmark = pytest.mark.native

TYPES = {f: gguf.GGMLQuantizationType[f.name] for f in BLOCK_FORMATS if f is not WeightFormat.F32}
ROWS, COLUMNS = 19, 768


def random(format: WeightFormat) -> np.ndarray:
    return random_bytes(format, ROWS, COLUMNS)


def zero(format: WeightFormat) -> np.ndarray:
    return np.zeros_like(random(format))


def maximal(format: WeightFormat) -> np.ndarray:
    """All integers at their largest, scales 65504."""
    data = np.full_like(random(format), 0xFF)
    return with_scales(format, data, np.float16(65504))


def negative_scale(format: WeightFormat) -> np.ndarray:
    return with_scales(format, random(format), np.float16(-0.0371))


def subnormal_scale(format: WeightFormat) -> np.ndarray:
    return with_scales(format, random(format), np.float16(3e-7))


@pytest.mark.parametrize("make", [random, zero, maximal, negative_scale, subnormal_scale], ids=lambda f: f.__name__)
@pytest.mark.parametrize("format", TYPES, ids=lambda f: f.label)
def test_rows_expand_to_the_bits_of_gguf(format, make):
    data = make(format)
    expected = gguf.quants.dequantize(data.reshape(ROWS, -1), TYPES[format])
    matrix = Matrix("table", COLUMNS, (RowSpan(format, at_offset(data, 3), ROWS),))
    got = NativeBackend(threads=2).embedding(np.arange(ROWS, dtype=np.int32), matrix)
    assert expected.dtype == np.float32 and got.shape == expected.shape
    assert np.array_equal(got.view(np.uint32), expected.view(np.uint32))


@pytest.mark.parametrize("format", HIGH_BITS, ids=lambda f: f.label)
def test_a_high_bit_moves_its_element_alone(format):
    blocks, expected = blocks_with_one_high_bit(format)
    table = Matrix("table", format.block_elements, (RowSpan(format, blocks.reshape(-1), len(blocks)),))
    got = NativeBackend(threads=1).embedding(np.arange(len(blocks), dtype=np.int32), table)
    assert np.array_equal(got[1:] - got[:1], expected)
