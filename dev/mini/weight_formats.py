"""Float32 weights in every format the application reads, for measuring what a format costs.

core/weights/quantize.py writes Q8_0 and Q4_0, the `gguf` package the other formats without super-blocks. The K formats
have no encoder in Python, so they are written here: for each group a scale (and a minimum) is searched that leaves the
least squared error, then scales are rounded to the block's own, and the integers are chosen last, for the rounded
scales. Published files come from such a search as well, some with weights learnt from data, which do a little better.
The formats with scales in tensors of their own are written in their plainest form: int8 rows rotated in groups of 256,
FP8 with a scale per row, NVFP4 without a scale of the input.

The trap: the integers must be chosen for the rounded scales; those of the search fit scales that are not in the file.
Proof: tests/dev/mini/test_weight_formats.py, through the application's own expansion.
"""

from collections.abc import Callable

import gguf
import numpy as np
import torch

from core.kernels.matrix import NVFP4_TILE_BLOCKS, NVFP4_TILE_ROWS, SCALED_FORMATS, Matrix, RowSpan, WeightFormat
from core.kernels.reference_dequant import expand
from core.kernels.reference_schemes import E2M1, e4m3_table, rotate, swizzled
from core.weights.quantize import QuantizedSource, quantize

SUPER_BLOCK = 256
SEARCH = np.linspace(0.8, 1.2, 17)  # factors tried on the scale that spans a group exactly
TINY = np.float32(1e-20)
ROTATED = 256  # columns rotated together
E4M3_MAX, E2M1_MAX = 448.0, 6.0
OWN = (WeightFormat.F32, WeightFormat.Q8_0, WeightFormat.Q4_0)


def encode(matrix: Matrix, weight_format: WeightFormat) -> Matrix:
    """The matrix in any format; its width must be whole blocks."""
    if weight_format in OWN:
        return quantize(matrix, weight_format)
    values = np.ascontiguousarray(expand(matrix), dtype=np.float32)
    if weight_format in SCALED_FORMATS:
        return _SCALED_ENCODERS[weight_format](matrix.name, values)
    if weight_format in _K_ENCODERS:
        data = _K_ENCODERS[weight_format](values.reshape(-1, SUPER_BLOCK))
    elif weight_format is WeightFormat.F16:
        data = values.astype("<f2").view(np.uint8)
    else:
        data = gguf.quants.quantize(values, gguf.GGMLQuantizationType[weight_format.name]).view(np.uint8)
    return Matrix(matrix.name, matrix.columns, (RowSpan(weight_format, data.reshape(-1), matrix.rows),))


class EncodedSource(QuantizedSource):
    """Another source with the weights of its blocks in any format, converted once and kept in memory."""

    def matrix(self, name: str) -> Matrix:
        if name not in self._converted:
            matrix = self.source.matrix(name)
            if not self._is_converted(name, matrix):
                return matrix
            self._converted[name] = encode(matrix, self.weight_format)
        return self._converted[name]


# ---- searching the scales; groups are [blocks, groups, n], scales [blocks, groups]
def _divided(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """a / b, 0 where b is (nearly) 0."""
    return np.where(np.abs(b) > TINY, a / np.where(np.abs(b) > TINY, b, 1), 0).astype(np.float32)


def _rounded(x: np.ndarray, scale: np.ndarray, low: int, high: int) -> np.ndarray:
    """Integers low..high nearest to x / scale."""
    return np.clip(np.rint(_divided(x, np.broadcast_to(scale[..., None], x.shape))), low, high)


def _symmetric_scale(groups: np.ndarray, low: int, high: int) -> np.ndarray:
    """Scale of x = scale * q, low <= q <= high, with the least squared error; the extreme value lies near `low`."""
    extreme = np.take_along_axis(groups, np.abs(groups).argmax(-1, keepdims=True), -1)[..., 0]
    best, least = np.zeros_like(extreme), np.full(extreme.shape, np.inf, np.float32)
    for factor in SEARCH.astype(np.float32):
        q = _rounded(groups, extreme * factor / low, low, high)
        scale = _divided((groups * q).sum(-1), (q * q).sum(-1))
        error = ((groups - scale[..., None] * q) ** 2).sum(-1)
        best, least = np.where(error < least, scale, best), np.minimum(error, least)
    return best


def _affine_scale(groups: np.ndarray, high: int) -> tuple[np.ndarray, np.ndarray]:
    """(scale, minimum) of x = scale * q - minimum, 0 <= q <= high and both >= 0, with the least squared error."""
    bottom, top = np.minimum(groups.min(-1), 0), groups.max(-1)
    best, lowest = np.zeros_like(top), -bottom
    least = np.full(top.shape, np.inf, np.float32)
    for factor in SEARCH.astype(np.float32):
        q = _rounded(groups - bottom[..., None], (top - bottom) * factor / high, 0, high)
        mean_x, mean_q = groups.mean(-1), q.mean(-1)
        covariance = ((groups - mean_x[..., None]) * (q - mean_q[..., None])).sum(-1)
        scale = np.maximum(_divided(covariance, ((q - mean_q[..., None]) ** 2).sum(-1)), 0)
        minimum = np.maximum(scale * mean_q - mean_x, 0)
        error = ((groups - scale[..., None] * q + minimum[..., None]) ** 2).sum(-1)
        better = error < least
        best, lowest = np.where(better, scale, best), np.where(better, minimum, lowest)
        least = np.minimum(error, least)
    return best, lowest


def _block_scale(scales: np.ndarray, limit: int) -> tuple[np.ndarray, np.ndarray]:
    """(d [blocks, 1] as a float16 holds it, integers |k| <= limit) with scales about d * k."""
    extreme = np.take_along_axis(scales, np.abs(scales).argmax(-1, keepdims=True), -1)
    d = (extreme / limit).astype("<f2").astype(np.float32)
    return d, np.clip(np.rint(_divided(scales, np.broadcast_to(d, scales.shape))), -limit, limit)


# ---- packing
def _half_bytes(d: np.ndarray) -> np.ndarray:
    return d.astype("<f2").view(np.uint8)


def _packed(q: np.ndarray, bits: int, run: int) -> np.ndarray:
    """Integers [blocks, n] of `bits` bits as bytes: each run of `run` bytes holds its first `run` integers lowest."""
    fields = q.astype(np.uint8).reshape(len(q), -1, 8 // bits, run)
    shifts = np.arange(0, 8, bits, dtype=np.uint8)[:, None]
    return np.bitwise_or.reduce(fields << shifts, axis=2).reshape(len(q), -1)


def _affine_block(blocks: np.ndarray, groups: int, bits: int, scale_limit: int):
    """(d, dmin, scales, minima, integers [blocks, 256]) of the formats with minima."""
    x = blocks.reshape(len(blocks), groups, -1)
    scale, minimum = _affine_scale(x, 2**bits - 1)
    (d, scales), (d_min, minima) = _block_scale(scale, scale_limit), _block_scale(minimum, scale_limit)
    q = _rounded(x + (d_min * minima)[..., None], d * scales, 0, 2**bits - 1)
    return d, d_min, scales.astype(np.uint8), minima.astype(np.uint8), q.reshape(len(blocks), -1).astype(np.uint8)


def _q2_k(blocks: np.ndarray) -> np.ndarray:
    d, d_min, scales, minima, q = _affine_block(blocks, 16, 2, 15)
    return np.concatenate([scales | minima << 4, _packed(q, 2, 32), _half_bytes(d), _half_bytes(d_min)], axis=1)


def _q3_k(blocks: np.ndarray) -> np.ndarray:
    x = blocks.reshape(len(blocks), 16, -1)
    d, scales = _block_scale(_symmetric_scale(x, -4, 3), 31)
    q = (_rounded(x, d * scales, -4, 3) + 4).reshape(len(blocks), -1).astype(np.uint8)
    stored = (scales + 32).astype(np.uint8)
    parts = [_packed(q >> 2, 1, 32), _packed(q & 3, 2, 32), _packed(stored & 15, 4, 8), _packed(stored >> 4, 2, 4)]
    return np.concatenate([*parts, _half_bytes(d)], axis=1)


def _six_bit_pairs(scales: np.ndarray, minima: np.ndarray) -> np.ndarray:
    """The 12 bytes that hold eight 6-bit scales and eight 6-bit minima."""
    first = scales[:, :4] | scales[:, 4:] >> 4 << 6
    second = minima[:, :4] | minima[:, 4:] >> 4 << 6
    return np.concatenate([first, second, scales[:, 4:] & 15 | (minima[:, 4:] & 15) << 4], axis=1)


def _q4_k(blocks: np.ndarray) -> np.ndarray:
    d, d_min, scales, minima, q = _affine_block(blocks, 8, 4, 63)
    parts = [_half_bytes(d), _half_bytes(d_min), _six_bit_pairs(scales, minima), _packed(q, 4, 32)]
    return np.concatenate(parts, axis=1)


def _q5_k(blocks: np.ndarray) -> np.ndarray:
    d, d_min, scales, minima, q = _affine_block(blocks, 8, 5, 63)
    parts = [_half_bytes(d), _half_bytes(d_min), _six_bit_pairs(scales, minima)]
    return np.concatenate([*parts, _packed(q >> 4, 1, 32), _packed(q & 15, 4, 32)], axis=1)


def _q6_k(blocks: np.ndarray) -> np.ndarray:
    x = blocks.reshape(len(blocks), 16, -1)
    d, scales = _block_scale(_symmetric_scale(x, -32, 31), 127)
    q = (_rounded(x, d * scales, -32, 31) + 32).reshape(len(blocks), -1).astype(np.uint8)
    parts = [_packed(q & 15, 4, 64), _packed(q >> 4, 2, 32), scales.astype(np.int8).view(np.uint8)]
    return np.concatenate([*parts, _half_bytes(d)], axis=1)


_K_ENCODERS: dict[WeightFormat, Callable[[np.ndarray], np.ndarray]] = {
    WeightFormat.Q2_K: _q2_k,
    WeightFormat.Q3_K: _q3_k,
    WeightFormat.Q4_K: _q4_k,
    WeightFormat.Q5_K: _q5_k,
    WeightFormat.Q6_K: _q6_k,
}


# ---- formats whose scales lie apart from the rows
def _i8_row(name: str, values: np.ndarray) -> Matrix:
    rows, columns = values.shape
    turned = rotate(values, ROTATED)
    scale = np.abs(turned).max(1, keepdims=True) / np.float32(127)
    q = np.clip(np.rint(_divided(turned, np.broadcast_to(scale, turned.shape))), -127, 127).astype(np.int8)
    span = RowSpan(WeightFormat.I8_ROW, _bytes(q), rows, scales=_bytes(scale))
    return Matrix(name, columns, (span,), rotation=ROTATED)


def _e4m3(x: np.ndarray) -> np.ndarray:
    """Nearest FP8 codes, uint8."""
    return torch.from_numpy(np.ascontiguousarray(x, np.float32)).to(torch.float8_e4m3fn).view(torch.uint8).numpy()


def _f8_e4m3(name: str, values: np.ndarray) -> Matrix:
    rows, columns = values.shape
    scale = np.abs(values).max(1, keepdims=True) / np.float32(E4M3_MAX)
    q = _e4m3(_divided(values, np.broadcast_to(scale, values.shape)))
    return Matrix(name, columns, (RowSpan(WeightFormat.F8_E4M3, _bytes(q), rows, scales=_bytes(scale)),))


def _nvfp4(name: str, values: np.ndarray) -> Matrix:
    rows, columns = values.shape
    blocks = values.reshape(rows, -1, WeightFormat.NVFP4.block_elements)
    largest = np.abs(blocks).max(-1)
    scale = np.float32(largest.max() / (E4M3_MAX * E2M1_MAX))
    codes = _e4m3(_divided(largest / np.float32(E2M1_MAX), np.full_like(largest, scale)))
    real = scale * e4m3_table()[codes]
    wanted = _divided(blocks, np.broadcast_to(real[..., None], blocks.shape)).reshape(rows, columns)
    q = np.abs(wanted[..., None] - E2M1).argmin(-1).astype(np.uint8)
    return Matrix(name, columns, (RowSpan(
        WeightFormat.NVFP4, _bytes(q[:, ::2] << 4 | q[:, 1::2]), rows, scales=_in_tiles(codes), scale=float(scale)
    ),))  # fmt: skip


def _in_tiles(codes: np.ndarray) -> np.ndarray:
    """Block scales [rows, blocks] in the stored order, 1-D."""
    rows, blocks = codes.shape
    tiles = -(-rows // NVFP4_TILE_ROWS) * -(-blocks // NVFP4_TILE_BLOCKS)
    stored = np.zeros(tiles * NVFP4_TILE_ROWS * NVFP4_TILE_BLOCKS, np.uint8)
    stored[swizzled(np.arange(rows)[:, None], np.arange(blocks)[None], blocks)] = codes
    return stored


def _bytes(values: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(values).reshape(-1).view(np.uint8)


_SCALED_ENCODERS: dict[WeightFormat, Callable[[str, np.ndarray], Matrix]] = {
    WeightFormat.I8_ROW: _i8_row,
    WeightFormat.F8_E4M3: _f8_e4m3,
    WeightFormat.NVFP4: _nvfp4,
}
