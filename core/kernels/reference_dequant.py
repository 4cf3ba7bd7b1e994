"""Every weight format expanded to float32 with NumPy, bit for bit as the GGUF formats define it.

The trap is the order of the roundings in Q4_K: `d * scale` and `dmin * minimum` are rounded to float32 first, then the
product with the integer, then the difference. Proof: tests/core/kernels/test_reference_dequant.py, against the `gguf`
package.
"""

from collections.abc import Callable

import numpy as np

from core.errors import KernelError
from core.kernels.matrix import Matrix, RowSpan, WeightFormat

_CHUNK_ELEMENTS = 1 << 22  # expanded at once; bounds the temporaries to some 16 MiB each


def expand(matrix: Matrix) -> np.ndarray:
    """The whole matrix as float32 [rows, columns]; a view when it is one aligned float32 span."""
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


def expand_rows(matrix: Matrix, ids: np.ndarray) -> np.ndarray:
    """Rows `ids` (any integer type, [n]) as float32 [n, columns]; raises KernelError on an id outside the matrix."""
    if ids.size and (ids.min() < 0 or ids.max() >= matrix.rows):
        raise KernelError(f"{matrix.name}: row ids {ids.min()} to {ids.max()} do not fit {matrix.rows} rows.")
    out = np.empty((ids.size, matrix.columns), dtype=np.float32)
    at = 0
    for span in matrix.spans:
        here = np.flatnonzero((ids >= at) & (ids < at + span.rows))
        if here.size:
            out[here] = EXPANDERS[span.format](_byte_rows(span)[ids[here] - at])
        at += span.rows
    return out


def _expand_span(span: RowSpan, out: np.ndarray) -> None:
    rows, columns = _byte_rows(span), out.shape[1]
    step = max(1, _CHUNK_ELEMENTS // columns)
    for start in range(0, span.rows, step):
        out[start : start + step] = EXPANDERS[span.format](np.ascontiguousarray(rows[start : start + step]))


def _byte_rows(span: RowSpan) -> np.ndarray:
    return span.data.reshape(span.rows, -1)


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
    blocks = rows.reshape(rows.shape[0], -1, 34)
    values = _halves(blocks[..., :2]) * blocks[..., 2:].view(np.int8).astype(np.float32)
    return values.reshape(rows.shape[0], -1)


def _q4_0(rows: np.ndarray) -> np.ndarray:
    """Block: float16 d, 16 bytes; low nibbles are elements 0..15, high nibbles 16..31. value = d * (q - 8)."""
    blocks = rows.reshape(rows.shape[0], -1, 18)
    packed = blocks[..., 2:]
    q = np.concatenate((packed & 15, packed >> 4), axis=-1).astype(np.float32) - 8
    return (_halves(blocks[..., :2]) * q).reshape(rows.shape[0], -1)


def _q4_k(rows: np.ndarray) -> np.ndarray:
    """Block: float16 d, float16 dmin, 12 bytes of 6-bit scales and minima, 128 bytes of nibbles; 8 groups of 32.

    Groups 2p and 2p + 1 are the low and high nibbles of bytes 32p..32p+31. value = d * scale * q - dmin * minimum.
    """
    blocks = rows.reshape(rows.shape[0], -1, 144)
    scale, minimum = _q4_k_scales(blocks[..., 4:16])
    scale = _halves(blocks[..., :2]) * scale
    minimum = _halves(blocks[..., 2:4]) * minimum
    packed = blocks[..., 16:].reshape(*blocks.shape[:2], 4, 1, 32)
    q = np.concatenate((packed & 15, packed >> 4), axis=-2).reshape(*blocks.shape[:2], 8, 32).astype(np.float32)
    return (scale[..., None] * q - minimum[..., None]).reshape(rows.shape[0], -1)


def _q4_k_scales(packed: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The eight 6-bit scales and minima of packed bytes [..., 12], as float32 [..., 8] each."""
    first, second, third = packed[..., 0:4], packed[..., 4:8], packed[..., 8:12]
    scale = np.concatenate((first & 63, (third & 15) | (first >> 6 << 4)), axis=-1)
    minimum = np.concatenate((second & 63, (third >> 4) | (second >> 6 << 4)), axis=-1)
    return scale.astype(np.float32), minimum.astype(np.float32)


EXPANDERS: dict[WeightFormat, Callable[[np.ndarray], np.ndarray]] = {
    WeightFormat.F32: _f32,
    WeightFormat.F16: _f16,
    WeightFormat.BF16: _bf16,
    WeightFormat.Q8_0: _q8_0,
    WeightFormat.Q4_0: _q4_0,
    WeightFormat.Q4_K: _q4_k,
}
