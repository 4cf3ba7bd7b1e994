"""Random weights of every format, the tolerances of the native operations, and comparison with float64.

Errors are shares of what rounding can see: the sum of absolute terms for a product, the largest value elsewhere.
"""

import numpy as np

from core.kernels.matrix import Matrix, RowSpan, WeightFormat

# float32 sums of runs of 256 terms, whatever the format: weights are expanded exactly.
PRODUCT_TOLERANCE = dict.fromkeys(WeightFormat, 1e-6)
ATTENTION_TOLERANCE = 2e-6  # two products and the exponential (1 ulp)
NORM_TOLERANCE = 5e-7  # float64 statistics, at most four float32 roundings
ROWS_TOLERANCE = 0.0  # copies and exact expansion

LENGTHS = (1, 17, 193, 1023)
FORMATS = tuple(WeightFormat)


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
    blocks[:, :2] = half_scales(rng, count)
    if format is WeightFormat.Q4_K:
        blocks[:, 2:4] = half_scales(rng, count)
    return blocks.reshape(-1)


def at_offset(data: np.ndarray, offset: int) -> np.ndarray:
    """The same bytes `offset` bytes behind a 64-byte border."""
    raw = np.empty(data.size + 128, dtype=np.uint8)
    start = -raw.ctypes.data % 64 + offset
    raw[start : start + data.size] = data
    return raw[start : start + data.size]


def random_matrix(format: WeightFormat, rows: int, columns: int, *, seed: int = 0, offset: int = 0) -> Matrix:
    """A matrix of one span at any byte offset."""
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
