"""Weight expansion against the `gguf` package, bit for bit.

Tier: executed reference (gguf) on random bytes, so scales and nibbles of every kind occur, NaN and infinite ones too.
Cannot catch a fault that gguf shares with us. Row spans and the embedding gather are closed form.
"""

import gguf
import numpy as np
import pytest

from core.errors import KernelError
from core.kernels.matrix import BLOCK_FORMATS, Matrix, RowSpan, WeightFormat
from core.kernels.reference_dequant import expand, expand_rows
from tests.native.kernel_data import HALVES, HIGH_BITS, blocks_with_one_high_bit, with_scales

GGUF_TYPES = {f: gguf.GGMLQuantizationType[f.name] for f in BLOCK_FORMATS if f is not WeightFormat.F32}
WRITABLE = {  # the package reads the others and does not write them; levels of each block, between its ends
    WeightFormat.Q8_0: 254, WeightFormat.Q4_0: 16, WeightFormat.Q4_1: 15, WeightFormat.Q5_0: 32, WeightFormat.Q5_1: 31,
}  # fmt: skip


def random_bytes(seed: int, count: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, count, dtype=np.uint8)


def same_bits(a: np.ndarray, b: np.ndarray) -> bool:
    """Equal bit patterns, except that any NaN equals any NaN."""
    return a.shape == b.shape and bool(np.all((a.view(np.uint32) == b.view(np.uint32)) | (np.isnan(a) & np.isnan(b))))


@pytest.mark.parametrize("format", GGUF_TYPES, ids=lambda f: f.label)
@pytest.mark.parametrize("blocks", [1, 3])
def test_random_bytes_expand_as_in_gguf(format, blocks):
    columns, rows = blocks * max(format.block_elements, 17), 37
    data = random_bytes(blocks, rows * format.row_bytes(columns))
    with np.errstate(all="ignore"):
        expected = gguf.dequantize(data.reshape(rows, -1), GGUF_TYPES[format]).astype(np.float32)
        got = expand(Matrix("w", columns, (RowSpan(format, data, rows),)))
    assert np.isfinite(got).any()
    assert same_bits(got, expected)


@pytest.mark.parametrize("scale", [0.0, -0.0371, 3e-7, 65504.0])
@pytest.mark.parametrize("fill", [0, 255, None], ids=["zero", "maximal", "random"])
@pytest.mark.parametrize("format", HALVES, ids=lambda f: f.label)
def test_extreme_blocks_expand_as_in_gguf(format, fill, scale):
    columns, rows = 512, 5
    data = random_bytes(7, rows * format.row_bytes(columns))
    if fill is not None:
        data[:] = fill
    data = with_scales(format, data, np.float16(scale))
    expected = gguf.dequantize(data.reshape(rows, -1), GGUF_TYPES[format])
    got = expand(Matrix("w", columns, (RowSpan(format, data, rows),)))
    assert np.array_equal(got.view(np.uint32), expected.view(np.uint32))


@pytest.mark.parametrize("format", HIGH_BITS, ids=lambda f: f.label)
def test_a_high_bit_moves_its_element_alone(format):
    blocks, expected = blocks_with_one_high_bit(format)
    got = expand(Matrix("w", format.block_elements, (RowSpan(format, blocks.reshape(-1), len(blocks)),)))
    assert np.array_equal(got[1:] - got[:1], expected)


@pytest.mark.parametrize("format", WRITABLE, ids=lambda f: f.label)
def test_quantised_values_come_back_within_one_step(format):
    values = np.random.default_rng(5).standard_normal((4, 96), dtype=np.float32)
    packed = gguf.quantize(values, GGUF_TYPES[format])
    got = expand(Matrix("w", 96, (RowSpan(format, packed.reshape(-1), 4),)))
    step = 2 * np.abs(values).reshape(4, 3, 32).max(axis=2, keepdims=True) / WRITABLE[format]
    assert np.all(np.abs(got - values).reshape(4, 3, 32) <= 1.01 * step)


def test_one_aligned_float32_span_is_a_view():
    values = np.arange(12, dtype=np.float32).reshape(3, 4)
    assert np.shares_memory(expand(Matrix.from_float32("w", values)), values)


def test_unaligned_float32_is_copied_with_equal_values():
    values = np.arange(12, dtype=np.float32).reshape(3, 4)
    buffer = np.zeros(49, dtype=np.uint8)
    buffer[1:] = values.reshape(-1).view(np.uint8)
    assert np.array_equal(expand(Matrix("w", 4, (RowSpan(WeightFormat.F32, buffer[1:], 3),))), values)


def mixed_matrix() -> Matrix:
    """Seven rows of 64 columns: q8_0, f32, q4_0."""
    spans = []
    for seed, (format, rows) in enumerate([(WeightFormat.Q8_0, 2), (WeightFormat.F32, 4), (WeightFormat.Q4_0, 1)]):
        data = random_bytes(seed, rows * format.row_bytes(64))
        if format is WeightFormat.F32:
            data = np.random.default_rng(3).standard_normal((rows, 64), dtype=np.float32).reshape(-1).view(np.uint8)
        spans.append(RowSpan(format, data, rows))
    return Matrix("w", 64, tuple(spans))


def test_spans_of_several_formats_expand_in_order():
    matrix = mixed_matrix()
    parts = [expand(Matrix("w", 64, (span,))) for span in matrix.spans]
    assert same_bits(expand(matrix), np.concatenate(parts))


def test_gathered_rows_equal_rows_of_the_whole_matrix():
    matrix = mixed_matrix()
    ids = np.array([6, 0, 3, 3, 2, 1], dtype=np.int32)
    assert same_bits(expand_rows(matrix, ids), expand(matrix)[ids])


@pytest.mark.parametrize("bad", [-1, 7])
def test_an_id_outside_the_matrix_is_refused(bad):
    with pytest.raises(KernelError, match="do not fit 7 rows"):
        expand_rows(mixed_matrix(), np.array([0, bad], dtype=np.int32))


def test_gathering_no_rows_gives_no_rows():
    assert expand_rows(mixed_matrix(), np.zeros(0, dtype=np.int32)).shape == (0, 64)
