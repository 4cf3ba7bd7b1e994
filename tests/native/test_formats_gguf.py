"""The library expands GGUF blocks to the very bits that the `gguf` package gives.

Tier: executed reference (gguf's NumPy dequantisation). Cannot catch a format that gguf itself has wrong.
"""

import gguf
import numpy as np
import pytest

from core.kernels.matrix import Matrix, RowSpan, WeightFormat
from core.kernels.native import NativeBackend
from tests.native.kernel_data import at_offset, random_bytes

pytestmark = pytest.mark.native

TYPES = {
    WeightFormat.F16: gguf.GGMLQuantizationType.F16,
    WeightFormat.BF16: gguf.GGMLQuantizationType.BF16,
    WeightFormat.Q8_0: gguf.GGMLQuantizationType.Q8_0,
    WeightFormat.Q4_0: gguf.GGMLQuantizationType.Q4_0,
    WeightFormat.Q4_K: gguf.GGMLQuantizationType.Q4_K,
}
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


def with_scales(format: WeightFormat, data: np.ndarray, scale: np.float16) -> np.ndarray:
    blocks = data.copy().reshape(-1, format.block_bytes)
    blocks[:, :2] = np.array([scale]).view(np.uint8)
    if format is WeightFormat.Q4_K:
        blocks[:, 2:4] = np.array([scale]).view(np.uint8)
    return blocks.reshape(-1)


@pytest.mark.parametrize("make", [random, zero, maximal, negative_scale, subnormal_scale], ids=lambda f: f.__name__)
@pytest.mark.parametrize("format", TYPES, ids=lambda f: f.label)
def test_rows_expand_to_the_bits_of_gguf(format, make):
    data = make(format)
    expected = gguf.quants.dequantize(data.reshape(ROWS, -1), TYPES[format])
    matrix = Matrix("table", COLUMNS, (RowSpan(format, at_offset(data, 3), ROWS),))
    got = NativeBackend(threads=2).embedding(np.arange(ROWS, dtype=np.int32), matrix)
    assert expected.dtype == np.float32 and got.shape == expected.shape
    assert np.array_equal(got.view(np.uint32), expected.view(np.uint32))
