"""Every weight format expanded to float32 with NumPy, bit for bit as its definition rounds.

The traps: the order of the roundings in the K formats (`d * scale` and `dmin * minimum` are rounded to float32 first,
then the product with the integer, then the difference), and the high bits of an integer, which run through a block in
another order than its low ones. The formats with scales apart from the rows are in reference_schemes.py.
Proof: tests/core/kernels/test_reference_dequant.py, against the `gguf` package.
"""

from collections.abc import Callable

import numpy as np

from core.errors import KernelError
from core.kernels.matrix import Matrix, RowSpan, WeightFormat
from core.kernels.reference_schemes import SCHEMES, rotate

_CHUNK_ELEMENTS = 1 << 22  # expanded at once; bounds the temporaries to some 16 MiB each


def expand(matrix: Matrix) -> np.ndarray:
    """The stored rows as float32 [rows, columns]; a view when they are one aligned float32 span.

    They are the weight itself unless the matrix expects a transformed input (see `restore`).
    """
    if len(matrix.spans) == 1:
        span = matrix.spans[0]
        if span.format is WeightFormat.F32 and span.data.ctypes.data % 4 == 0:
            return span.data.view(np.float32).reshape(span.rows, matrix.columns)
    out = np.empty((matrix.rows, matrix.columns), dtype=np.float32)
    at = 0
    for span in matrix.spans:
        _expand_span(span, out[at : at + span.rows])
        at += span.rows
    return out


def restore(matrix: Matrix) -> np.ndarray:
    """The weight as float32 [rows, columns] for an input as it is: x . restore(w)^T = transform(x) . expand(w)^T."""
    return _without_transform(matrix, expand(matrix))


def _without_transform(matrix: Matrix, rows: np.ndarray) -> np.ndarray:
    """Stored rows [n, columns] undone: the rotation is symmetric, so the rows are rotated as the input would be."""
    if matrix.rotation:
        rows = rotate(rows, matrix.rotation)
    return rows if matrix.pre_scale is None else rows * matrix.pre_scale


def expand_rows(matrix: Matrix, ids: np.ndarray) -> np.ndarray:
    """Rows `ids` (any integer type, [n]) of the weight (restored) as float32 [n, columns].

    raises: KernelError on an id outside the matrix
    """
    if ids.size and (ids.min() < 0 or ids.max() >= matrix.rows):
        raise KernelError(f"{matrix.name}: row ids {ids.min()} to {ids.max()} do not fit {matrix.rows} rows.")
    out = np.empty((ids.size, matrix.columns), dtype=np.float32)
    at = 0
    for span in matrix.spans:
        here = np.flatnonzero((ids >= at) & (ids < at + span.rows))
        if here.size:
            out[here] = _expand_bytes(span, _byte_rows(span)[ids[here] - at], ids[here] - at)
        at += span.rows
    return _without_transform(matrix, out)


def _expand_span(span: RowSpan, out: np.ndarray) -> None:
    rows, columns = _byte_rows(span), out.shape[1]
    step = max(1, _CHUNK_ELEMENTS // columns)
    for start in range(0, span.rows, step):
        ids = np.arange(start, min(start + step, span.rows))
        out[start : start + step] = _expand_bytes(span, np.ascontiguousarray(rows[start : start + step]), ids)


def _expand_bytes(span: RowSpan, rows: np.ndarray, ids: np.ndarray) -> np.ndarray:
    """Rows `ids` of the span, uint8 [n, row_bytes], as float32 [n, columns]."""
    if span.format in SCHEMES:
        return SCHEMES[span.format](span, rows, ids)
    return EXPANDERS[span.format](rows)


def _byte_rows(span: RowSpan) -> np.ndarray:
    return span.data.reshape(span.rows, -1)


def _blocks(rows: np.ndarray, block_bytes: int) -> np.ndarray:
    """Rows cut into blocks: [rows, blocks, block_bytes]."""
    return rows.reshape(rows.shape[0], -1, block_bytes)


def _halves(columns: np.ndarray) -> np.ndarray:
    """Two bytes per float16 [..., 2 n] as float32 [..., n]."""
    return np.ascontiguousarray(columns).view("<f2").astype(np.float32)


def _f32(rows: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(rows).view("<f4")


def _f16(rows: np.ndarray) -> np.ndarray:
    return _halves(rows)


def _bf16(rows: np.ndarray) -> np.ndarray:
    return (np.ascontiguousarray(rows).view("<u2").astype(np.uint32) << 16).view(np.float32)


def _q8_0(rows: np.ndarray) -> np.ndarray:
    """Block: float16 d, 32 signed bytes q. value = d * q."""
    blocks = _blocks(rows, 34)
    values = _halves(blocks[..., :2]) * blocks[..., 2:].view(np.int8).astype(np.float32)
    return values.reshape(rows.shape[0], -1)


def _fields(packed: np.ndarray, bits: int, run: int) -> np.ndarray:
    """Integers of `bits` bits in runs of `run` bytes [..., n]: the lowest of a whole run first, [..., n * 8 / bits]."""
    shifts = np.arange(0, 8, bits, dtype=np.uint8)[:, None]
    runs = packed.reshape(*packed.shape[:-1], -1, 1, run)
    return (runs >> shifts & (2**bits - 1)).reshape(*packed.shape[:-1], -1)


def _grouped(q: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """Integers [rows, blocks, 256] times their group's scale [rows, blocks, groups], as [rows, blocks, groups, n]."""
    return scale[..., None] * q.astype(np.float32).reshape(*scale.shape, -1)


def _q4_0(rows: np.ndarray) -> np.ndarray:
    """Block: float16 d, 16 bytes; low nibbles are elements 0..15, high nibbles 16..31. value = d * (q - 8)."""
    blocks = _blocks(rows, 18)
    q = _fields(blocks[..., 2:], 4, 16).astype(np.float32) - 8
    return (_halves(blocks[..., :2]) * q).reshape(rows.shape[0], -1)


def _q4_1(rows: np.ndarray) -> np.ndarray:
    """Block: float16 d, float16 m, 16 bytes as in Q4_0. value = d * q + m."""
    blocks = _blocks(rows, 20)
    q = _fields(blocks[..., 4:], 4, 16).astype(np.float32)
    return (_halves(blocks[..., :2]) * q + _halves(blocks[..., 2:4])).reshape(rows.shape[0], -1)


def _q5(high: np.ndarray, low: np.ndarray) -> np.ndarray:
    """Five-bit integers as float32: bit i of the 4 high bytes, least significant first, above nibble i."""
    fifth = np.unpackbits(high, axis=-1, bitorder="little")
    return (_fields(low, 4, 16) | fifth << 4).astype(np.float32)


def _q5_0(rows: np.ndarray) -> np.ndarray:
    """Block: float16 d, 4 bytes of high bits, 16 bytes of nibbles. value = d * (q - 16)."""
    blocks = _blocks(rows, 22)
    q = _q5(blocks[..., 2:6], blocks[..., 6:]) - 16
    return (_halves(blocks[..., :2]) * q).reshape(rows.shape[0], -1)


def _q5_1(rows: np.ndarray) -> np.ndarray:
    """Block: float16 d, float16 m, 4 bytes of high bits, 16 bytes of nibbles. value = d * q + m."""
    blocks = _blocks(rows, 24)
    q = _q5(blocks[..., 4:8], blocks[..., 8:])
    return (_halves(blocks[..., :2]) * q + _halves(blocks[..., 2:4])).reshape(rows.shape[0], -1)


def _q2_k(rows: np.ndarray) -> np.ndarray:
    """Block: 16 bytes of scale (low nibble) and minimum, 64 bytes of 2 bits, float16 d, float16 dmin; 16 groups of 16.

    Bytes 32h..32h+31 are elements 128h..128h+127, the lowest bits first. value = d * scale * q - dmin * minimum.
    """
    blocks = _blocks(rows, 84)
    scale = _halves(blocks[..., 80:82]) * (blocks[..., :16] & 15).astype(np.float32)
    minimum = _halves(blocks[..., 82:84]) * (blocks[..., :16] >> 4).astype(np.float32)
    q = _fields(blocks[..., 16:80], 2, 32)
    return (_grouped(q, scale) - minimum[..., None]).reshape(rows.shape[0], -1)


def _q3_k(rows: np.ndarray) -> np.ndarray:
    """Block: 32 bytes of high bits, 64 of 2 bits as in Q2_K, 12 of 6-bit scales, float16 d; 16 groups of 16.

    Bit b of high byte j belongs to element 32b + j. value = d * (scale - 32) * (q - 4).
    """
    blocks = _blocks(rows, 110)
    q = (_fields(blocks[..., 32:96], 2, 32) | _fields(blocks[..., :32], 1, 32) << 2).astype(np.float32) - 4
    packed = _fields(blocks[..., 96:104], 4, 8) | _fields(blocks[..., 104:108], 2, 4) << 4
    scale = _halves(blocks[..., 108:110]) * (packed.astype(np.float32) - 32)
    return _grouped(q, scale).reshape(rows.shape[0], -1)


def _q4_k(rows: np.ndarray) -> np.ndarray:
    """Block: float16 d, float16 dmin, 12 bytes of 6-bit scales and minima, 128 bytes of nibbles; 8 groups of 32.

    Groups 2p and 2p + 1 are the low and high nibbles of bytes 32p..32p+31. value = d * scale * q - dmin * minimum.
    """
    blocks = _blocks(rows, 144)
    scale, minimum = _scales_and_minima(blocks)
    q = _fields(blocks[..., 16:], 4, 32)
    return (_grouped(q, scale) - minimum[..., None]).reshape(rows.shape[0], -1)


def _q5_k(rows: np.ndarray) -> np.ndarray:
    """Block: as Q4_K with 32 bytes of high bits before the nibbles; bit g of high byte j belongs to element 32g + j."""
    blocks = _blocks(rows, 176)
    scale, minimum = _scales_and_minima(blocks)
    q = _fields(blocks[..., 48:], 4, 32) | _fields(blocks[..., 16:48], 1, 32) << 4
    return (_grouped(q, scale) - minimum[..., None]).reshape(rows.shape[0], -1)


def _q6_k(rows: np.ndarray) -> np.ndarray:
    """Block: 128 bytes of nibbles, 64 bytes of high 2 bits, 16 signed scales, float16 d; 16 groups of 16.

    Each half of the block has its own 64 and 32 bytes, lowest bits first. value = d * scale * (q - 32).
    """
    blocks = _blocks(rows, 210)
    q = (_fields(blocks[..., :128], 4, 64) | _fields(blocks[..., 128:192], 2, 32) << 4).astype(np.float32) - 32
    scale = _halves(blocks[..., 208:]) * blocks[..., 192:208].view(np.int8).astype(np.float32)
    return _grouped(q, scale).reshape(rows.shape[0], -1)


def _scales_and_minima(blocks: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """d * scale and dmin * minimum of the eight groups of Q4_K and Q5_K blocks, [..., 8] each."""
    first, second, third = blocks[..., 4:8], blocks[..., 8:12], blocks[..., 12:16]
    scale = np.concatenate((first & 63, (third & 15) | (first >> 6 << 4)), axis=-1).astype(np.float32)
    minimum = np.concatenate((second & 63, (third >> 4) | (second >> 6 << 4)), axis=-1).astype(np.float32)
    return _halves(blocks[..., :2]) * scale, _halves(blocks[..., 2:4]) * minimum


EXPANDERS: dict[WeightFormat, Callable[[np.ndarray], np.ndarray]] = {
    WeightFormat.F32: _f32,
    WeightFormat.F16: _f16,
    WeightFormat.BF16: _bf16,
    WeightFormat.Q8_0: _q8_0,
    WeightFormat.Q4_0: _q4_0,
    WeightFormat.Q4_1: _q4_1,
    WeightFormat.Q5_0: _q5_0,
    WeightFormat.Q5_1: _q5_1,
    WeightFormat.Q2_K: _q2_k,
    WeightFormat.Q3_K: _q3_k,
    WeightFormat.Q4_K: _q4_k,
    WeightFormat.Q5_K: _q5_k,
    WeightFormat.Q6_K: _q6_k,
}
