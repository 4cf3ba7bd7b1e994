"""Float32 weights to Q8_0 and Q4_0 in memory, and tensor sources that change the format of another one.

The trap: the quantiser divides by the unrounded block scale and rounds halves away from zero; dividing by the rounded
float16 scale, or rounding halves to even, differs from every published file in a few integers per thousand.
Proof: tests/core/weights/test_quantize.py, bit for bit against the `gguf` package.
"""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from core.errors import CheckpointError
from core.kernels.matrix import Matrix, RowSpan, WeightFormat
from core.kernels.provider import TensorSource
from core.kernels.reference_dequant import expand, restore

BLOCK_MARK = ("blocks.", "layers.")  # weights of repeated blocks; everything around them keeps its format


def quantize(matrix: Matrix, weight_format: WeightFormat) -> Matrix:
    """The matrix in another format, in memory, for the same transform of the input. F32, Q8_0 or Q4_0; whole blocks."""
    if weight_format not in _ENCODERS:
        raise CheckpointError(f"{matrix.name}: cannot be quantised to {weight_format.label}.")
    weight_format.row_bytes(matrix.columns)
    values = np.ascontiguousarray(expand(matrix), dtype=np.float32)
    data = _ENCODERS[weight_format](values.reshape(-1, weight_format.block_elements))
    return replace(matrix, spans=(RowSpan(weight_format, data.reshape(-1), matrix.rows),))


def _inverse(scale: np.ndarray) -> np.ndarray:
    """1 / scale, 0 where that is infinite: such a scale is 0 as a float16, too."""
    with np.errstate(divide="ignore", over="ignore"):
        inverse = np.float32(1) / scale
    return np.where(np.isfinite(inverse), inverse, np.float32(0))


def _half_bytes(scale: np.ndarray) -> np.ndarray:
    """Block scales [blocks, 1] as the two bytes of a float16."""
    return scale.astype("<f2").view(np.uint8)


def _f32(blocks: np.ndarray) -> np.ndarray:
    return blocks.reshape(-1).view(np.uint8)


def _q8_0(blocks: np.ndarray) -> np.ndarray:
    """Block: float16 d = max|x| / 127, then 32 signed bytes round(x / d), halves away from zero."""
    scale = np.abs(blocks).max(axis=1, keepdims=True) / np.float32(127)
    scaled = blocks * _inverse(scale)
    whole = np.floor(np.abs(scaled))
    integers = np.copysign(whole + (np.abs(scaled) - whole >= 0.5), scaled)
    return np.concatenate([_half_bytes(scale), integers.astype(np.int8).view(np.uint8)], axis=1)


def _q4_0(blocks: np.ndarray) -> np.ndarray:
    """Block: float16 d = (the x of largest |x|) / -8, then 16 bytes of two nibbles trunc(x / d + 8.5), at most 15."""
    largest = np.take_along_axis(blocks, np.abs(blocks).argmax(axis=1, keepdims=True), axis=1)
    scale = largest / np.float32(-8)
    integers = np.clip(np.trunc(blocks * _inverse(scale) + np.float32(8.5)), 0, 15).astype(np.uint8)
    return np.concatenate([_half_bytes(scale), integers[:, :16] | integers[:, 16:] << 4], axis=1)


_ENCODERS: dict[WeightFormat, Callable[[np.ndarray], np.ndarray]] = {
    WeightFormat.F32: _f32,
    WeightFormat.Q8_0: _q8_0,
    WeightFormat.Q4_0: _q4_0,
}


class QuantizedSource:
    """Another source with the weights of its blocks in `weight_format`; each is converted once and kept in memory.

    Matrices outside blocks, and those whose width is not whole blocks, pass through. `values` gives the quantised
    numbers too, so that both ways of reading a weight agree.
    """

    def __init__(self, source: TensorSource, weight_format: WeightFormat):
        self.source = source
        self.weight_format = weight_format
        self._converted: dict[str, Matrix] = {}

    def has(self, name: str) -> bool:
        return self.source.has(name)

    def matrix(self, name: str) -> Matrix:
        """The matrix, converted when it belongs to a block."""
        if name not in self._converted:
            matrix = self.source.matrix(name)
            if not self._is_converted(name, matrix):
                return matrix
            self._converted[name] = quantize(matrix, self.weight_format)
        return self._converted[name]

    def values(self, name: str) -> np.ndarray:
        """Float32 values, of the converted matrix when there is one."""
        values = self.source.values(name)
        return restore(self.matrix(name)) if values.ndim == 2 else values

    def prefetch(self, prefix: str) -> None:
        self.source.prefetch(prefix)

    def release(self, prefix: str) -> None:
        self.source.release(prefix)

    def _is_converted(self, name: str, matrix: Matrix) -> bool:
        in_block = any(name.startswith(mark) or f".{mark}" in name for mark in BLOCK_MARK)
        return in_block and matrix.columns % self.weight_format.block_elements == 0


class Float32Source(QuantizedSource):
    """Another source with every matrix expanded to float32 and kept: the reference of a quantised one."""

    def __init__(self, source: TensorSource):
        super().__init__(source, WeightFormat.F32)

    def _is_converted(self, name: str, matrix: Matrix) -> bool:
        return True
