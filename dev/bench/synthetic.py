"""Synthetic weights in file formats: random integers, scales such that a weight has a spread of about 0.02.

The trap: a weight that was just multiplied lies in a cache, the real model's never does; so every matrix exists in as
many copies as it takes for ROTATED_BYTES to pass before one comes again. And zeros run faster than random bytes.
Proof: tests/dev/bench/test_synthetic.py.
"""

from itertools import cycle

import numpy as np

from core.kernels.matrix import Matrix, RowSpan, WeightFormat

ROTATED_BYTES = 520 * 10**6
DISTINCT_ROWS = 256  # rows of a matrix repeat after so many
SPREAD = 0.02
SCALE_AT = {  # where the float16 scale of a block lies, and about the spread of its integers
    WeightFormat.Q8_0: (0, 74.0), WeightFormat.Q4_0: (0, 4.6), WeightFormat.Q4_K: (0, 4.6 * 44),
    WeightFormat.Q5_K: (0, 9.2 * 44), WeightFormat.Q6_K: (208, 18.5 * 64),
}  # fmt: skip
MIDDLE = {WeightFormat.Q4_K: 7.5, WeightFormat.Q5_K: 15.5}  # these store integers from 0 and a minimum to take off


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    """float32 standard normal values, repeatable."""
    return np.random.default_rng([seed, *shape]).standard_normal(shape, dtype=np.float32)


def matrix(weight_format: WeightFormat, rows: int, columns: int, *, seed: int = 0) -> Matrix:
    """A matrix [rows, columns]; its rows repeat after DISTINCT_ROWS."""
    distinct = min(rows, DISTINCT_ROWS)
    data = _stored(weight_format, distinct, columns, seed).reshape(distinct, -1)
    repeated = np.resize(data, (rows, data.shape[1]))
    return Matrix("weight", columns, (RowSpan(weight_format, repeated.reshape(-1), rows),))


def _stored(weight_format: WeightFormat, rows: int, columns: int, seed: int) -> np.ndarray:
    values = normal(rows, columns, seed=seed) * np.float32(SPREAD)
    if weight_format is WeightFormat.F32:
        return values.view(np.uint8)
    if weight_format is WeightFormat.F16:
        return values.astype(np.float16).view(np.uint8)
    if weight_format is WeightFormat.BF16:
        return np.ascontiguousarray(values.view(np.uint16)[:, 1::2]).view(np.uint8)
    return _blocks(weight_format, rows * columns // weight_format.block_elements, seed)


def _blocks(weight_format: WeightFormat, count: int, seed: int) -> np.ndarray:
    rng = np.random.default_rng([seed, count])
    blocks = rng.integers(0, 256, (count, weight_format.block_bytes), dtype=np.uint8)
    at, integer_spread = SCALE_AT[weight_format]
    scale = SPREAD / integer_spread * rng.uniform(0.7, 1.3, count)
    if weight_format not in MIDDLE:  # scales of either sign centre integers that reach one further down than up
        scale *= rng.choice((-1, 1), count)
    blocks[:, at : at + 2] = _half_bytes(scale)
    if weight_format in MIDDLE:  # one 6-bit scale for all eight groups of a block, and the same number as minimum
        blocks[:, 2:4] = _half_bytes(scale * MIDDLE[weight_format])
        number = rng.integers(25, 64, (count, 1), dtype=np.uint8)
        blocks[:, 4:12] = (number & 63) | (number >> 4 << 6)
        blocks[:, 12:16] = (number & 15) | (number & 15) << 4
    if weight_format is WeightFormat.Q6_K:
        sign = rng.choice(np.array([-1, 1], np.int8), (count, 16))
        blocks[:, 192:208] = (sign * rng.integers(32, 96, (count, 16), dtype=np.int8)).view(np.uint8)
    return blocks


def _half_bytes(values: np.ndarray) -> np.ndarray:
    return values.astype("<f2").view(np.uint8).reshape(-1, 2)


def copy_count(data_bytes: int) -> int:
    """How many copies of a weight pass ROTATED_BYTES."""
    return -(-ROTATED_BYTES // data_bytes)


class Rotated:
    """Copies of a weight, given out in turns. Each begins at another row, so no two are equal byte for byte."""

    def __init__(self, original: Matrix):
        (span,) = original.spans
        rows = span.data.reshape(span.rows, -1)
        self.matrices = [original]
        for i in range(1, copy_count(original.data_bytes)):
            turned = np.roll(rows, i, axis=0).reshape(-1)
            self.matrices.append(Matrix(original.name, original.columns, (RowSpan(span.format, turned, span.rows),)))
        self._turns = cycle(self.matrices)

    def next(self) -> Matrix:
        return next(self._turns)
