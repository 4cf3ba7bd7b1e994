"""Random weights of every format, the tolerances of the native operations, and comparison with float64.

Errors are shares of what rounding can see: the sum of absolute terms for a product, the largest value elsewhere.
"""

import platform
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest
import torch

from core.kernels.bindings import ISA_VARIABLE, Library
from core.kernels.matrix import SCALED_FORMATS, Matrix, RowSpan, WeightFormat

# float32 sums of runs of 256 terms, whatever the format: weights are expanded exactly.
PRODUCT_TOLERANCE = dict.fromkeys(WeightFormat, 1e-6)
ATTENTION_TOLERANCE = 2e-6  # two products and the exponential (1 ulp)
NORM_TOLERANCE = 5e-7  # float64 statistics, at most four float32 roundings
ROWS_TOLERANCE = 0.0  # copies and exact expansion

LENGTHS = (1, 17, 193, 1023)
FORMATS = tuple(WeightFormat)
IS_X86 = platform.machine() in ("x86_64", "AMD64")
ISAS = ("generic", "avx2", "avxvnni", "avx512vnni") if IS_X86 else ("generic", "dotprod", "i8mm")

# Where the 16-bit scale, and the minimum where there is one, lie in a block.
HALVES = {
    WeightFormat.F16: (0,), WeightFormat.BF16: (0,), WeightFormat.Q8_0: (0,), WeightFormat.Q4_0: (0,),
    WeightFormat.Q4_1: (0, 2), WeightFormat.Q5_0: (0,), WeightFormat.Q5_1: (0, 2), WeightFormat.Q2_K: (80, 82),
    WeightFormat.Q3_K: (108,), WeightFormat.Q4_K: (0, 2), WeightFormat.Q5_K: (0, 2), WeightFormat.Q6_K: (208,),
}  # fmt: skip
# Integers whose high bits lie apart: (first byte of the mask, bytes, bits per element).
HIGH_BITS = {
    WeightFormat.Q5_0: (2, 4, 1), WeightFormat.Q5_1: (4, 4, 1), WeightFormat.Q3_K: (0, 32, 1),
    WeightFormat.Q5_K: (16, 32, 1), WeightFormat.Q6_K: (128, 64, 2),
}  # fmt: skip


@contextmanager
def instruction_set(name: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The kernels of this set are in use until the context ends; skips visibly where the processor lacks it."""
    if name not in Library().isas_offered():
        pytest.skip(f"this processor has no {name}")
    monkeypatch.setenv(ISA_VARIABLE, name)
    yield name
    monkeypatch.undo()
    Library()


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    """float32 standard normal values, repeatable."""
    return np.random.default_rng([seed, *shape]).standard_normal(shape, dtype=np.float32)


def width_for(format: WeightFormat, columns: int) -> int:
    """`columns` rounded up to whole blocks."""
    return -(-columns // format.block_elements) * format.block_elements


def half_scales(rng: np.random.Generator, count: int) -> np.ndarray:
    """float16 scales of either sign between 2^-9 and 2^-5, as bytes [count, 2]."""
    values = rng.uniform(2**-9, 2**-5, count) * rng.choice((-1, 1), count)
    return values.astype(np.float16).view(np.uint8).reshape(count, 2)


def random_bytes(format: WeightFormat, rows: int, columns: int, *, seed: int = 0) -> np.ndarray:
    """Stored rows as uint8 [bytes]: random integers, sane scales."""
    rng = np.random.default_rng([seed, rows, columns])
    if format is WeightFormat.F32:
        return normal(rows, columns, seed=seed).reshape(-1).view(np.uint8)
    if format is WeightFormat.F16:
        return normal(rows, columns, seed=seed).astype(np.float16).reshape(-1).view(np.uint8)
    if format is WeightFormat.BF16:
        halves = normal(rows, columns, seed=seed).view(np.uint16).reshape(-1, 2)[:, 1]
        return np.ascontiguousarray(halves).view(np.uint8)
    count = rows * format.row_bytes(columns) // format.block_bytes
    blocks = rng.integers(0, 256, (count, format.block_bytes), dtype=np.uint8)
    for at in HALVES[format]:
        blocks[:, at : at + 2] = half_scales(rng, count)
    return blocks.reshape(-1)


def with_scales(format: WeightFormat, data: np.ndarray, scale: np.float16) -> np.ndarray:
    """A copy of the blocks with every float16 scale and minimum replaced."""
    blocks = data.copy().reshape(-1, format.block_bytes)
    for at in HALVES[format]:
        blocks[:, at : at + 2] = np.array([scale]).view(np.uint8)
    return blocks.reshape(-1)


def blocks_with_one_high_bit(format: WeightFormat) -> tuple[np.ndarray, np.ndarray]:
    """(blocks uint8 [1 + bits, block_bytes], expected difference from the first [bits, block_elements]).

    The first block has scale 1 everywhere and integers 0; each other one has a single high bit set.
    """
    at, mask_bytes, width = HIGH_BITS[format]
    bits = 8 * mask_bytes
    blocks = np.zeros((1 + bits, format.block_bytes), dtype=np.uint8)
    blocks[:, HALVES[format][0] : HALVES[format][0] + 2] = np.array([1], np.float16).view(np.uint8)
    if format is WeightFormat.Q3_K:  # 6-bit scales of 33, which mean 1
        blocks[:, 96:104], blocks[:, 104:108] = 0x11, 0xAA
    if format is WeightFormat.Q5_K:
        blocks[:, 4:16] = 1
    if format is WeightFormat.Q6_K:
        blocks[:, 192:208] = 1
    expected = np.zeros((bits, format.block_elements), dtype=np.float32)
    for bit in range(bits):
        byte, place = divmod(bit, 8)
        blocks[1 + bit, at + byte] = 1 << place
        # in blocks of 256 a run of 32 bytes holds one field of each of 8 / width runs of 32 elements
        in_runs = byte // 32 * (256 // width) + place // width * 32 + byte % 32
        element = bit if format.block_elements == 32 else in_runs
        expected[bit, element] = 4 if format is WeightFormat.Q3_K else 16 << place % width
    return blocks, expected


def at_offset(data: np.ndarray, offset: int) -> np.ndarray:
    """The same bytes `offset` bytes behind a 64-byte border."""
    raw = np.empty(data.size + 128, dtype=np.uint8)
    start = -raw.ctypes.data % 64 + offset
    raw[start : start + data.size] = data
    return raw[start : start + data.size]


def random_matrix(format: WeightFormat, rows: int, columns: int, *, seed: int = 0, offset: int = 0) -> Matrix:
    """A matrix of one span at any byte offset."""
    if format in SCALED_FORMATS:
        return Matrix("weight", columns, (scheme_span(format, rows, columns, seed=seed),))
    data = at_offset(random_bytes(format, rows, columns, seed=seed), offset)
    return Matrix("weight", columns, (RowSpan(format, data, rows),))


def assert_close(
    got: np.ndarray, expected: np.ndarray, tolerance: float, *, magnitude: np.ndarray | None = None
) -> None:
    """|got - expected| <= tolerance * magnitude everywhere; magnitude is the largest |expected| unless given."""
    assert got.dtype == np.float32 and got.shape == expected.shape
    scale = np.abs(expected).max() if magnitude is None else magnitude
    error = np.abs(got.astype(np.float64) - expected)
    assert (error <= tolerance * scale).all(), f"error {np.nanmax(error / scale):.3g}, tolerance {tolerance:.3g}"


E2M1_VALUES = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6], dtype=np.float32)


def same_bits(a: np.ndarray, b: np.ndarray) -> bool:
    """Equal float32 bit patterns, except that any NaN equals any NaN."""
    return a.shape == b.shape and bool(np.all((a.view(np.uint32) == b.view(np.uint32)) | (np.isnan(a) & np.isnan(b))))


def kronecker(group: int) -> np.ndarray:
    """The rotation of `group` (a power of 4) columns as an explicit float64 matrix."""
    h4 = np.array([[1, 1, 1, -1], [1, 1, -1, 1], [1, -1, 1, 1], [-1, 1, 1, 1]])
    matrix = np.ones((1, 1))
    while len(matrix) < group:
        matrix = np.kron(h4, matrix)
    return matrix / np.sqrt(group)


def in_tiles(scales: np.ndarray) -> np.ndarray:
    """Block scales [rows, blocks] as NVFP4 files store them: zero-padded to tiles of 128 rows by 4 blocks, tiles in
    row-major order, each written as [32, 4, 4] = row % 32, row / 32, block."""
    rows, blocks = -(-scales.shape[0] // 128) * 128, -(-scales.shape[1] // 4) * 4
    padded = np.zeros((rows, blocks), dtype=np.uint8)
    padded[: scales.shape[0], : scales.shape[1]] = scales
    return padded.reshape(rows // 128, 4, 32, blocks // 4, 4).transpose(0, 3, 2, 1, 4).reshape(-1).copy()


def scheme_oracle(
    format: WeightFormat, rows: int, columns: int, *, first_row: int = 0, scale: float = 1.0, seed: int = 0
) -> tuple[RowSpan, np.ndarray]:
    """(random span of a scaled format, its float32 values): rows of a larger tensor, from `first_row` of it on.

    All codes occur, NaN apart, and the scales are of usual size. Rounding: scale of the tensor times that of the row
    or block, then times the code.
    """
    rng = np.random.default_rng([seed, rows, columns])
    total, factor = first_row + rows, np.float32(scale)
    if format is WeightFormat.NVFP4:
        codes = rng.integers(0, 16, (rows, columns), dtype=np.uint8)
        blocks = rng.integers(0x20, 0x70, (total, columns // 16), dtype=np.uint8)
        steps = torch.from_numpy(blocks[first_row:]).view(torch.float8_e4m3fn).float().numpy() * factor
        values = E2M1_VALUES[codes] * np.repeat(steps, 16, axis=1)
        data, scales = codes[:, ::2] << 4 | codes[:, 1::2], in_tiles(blocks)
    else:
        data = rng.integers(0, 256, (rows, columns), dtype=np.uint8)
        per_row = rng.uniform(2**-9, 2**-5, (total, 1)).astype(np.float32)
        if format is WeightFormat.F8_E4M3:
            data[data % 128 == 127] = 0
            values = torch.from_numpy(data).view(torch.float8_e4m3fn).float().numpy()
        else:
            values = data.view(np.int8).astype(np.float32)
        values, scales = values * (per_row[first_row:] * factor), per_row.reshape(-1).view(np.uint8)
    span = RowSpan(format, at_offset(data.reshape(-1), 3), rows, at_offset(scales, 1), first_row, scale)
    return span, values


def scheme_span(format: WeightFormat, rows: int, columns: int, *, seed: int = 0) -> RowSpan:
    """A random span of a scaled format, from an odd row of its tensor on."""
    return scheme_oracle(format, rows, columns, first_row=5, scale=0.75, seed=seed)[0]
