"""The weight formats of safetensors files whose scales lie in tensors of their own, and the transform of the input.

The traps: NVFP4 files of ComfyUI keep the even element of a pair in the high nibble, and their block scales in the
tiles that tensor cores read, where neighbouring rows are 16 bytes apart. A rotated weight without a rotated input gives
noise and no error. Proof: tests/core/kernels/test_reference_schemes.py, against torch's float8 and explicit tables.
"""

from collections.abc import Callable
from functools import cache

import numpy as np

from core.kernels.matrix import NVFP4_TILE_BLOCKS, NVFP4_TILE_ROWS, Matrix, RowSpan, WeightFormat

# sign, two bits of exponent with bias 1, one bit of mantissa
E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6], dtype=np.float32)
H4 = np.array([[1, 1, 1, -1], [1, 1, -1, 1], [1, -1, 1, 1], [-1, 1, 1, 1]], dtype=np.float32) / 2
NVFP4_BLOCK = WeightFormat.NVFP4.block_elements


@cache
def e4m3_table() -> np.ndarray:
    """float32 [256]: sign, four bits of exponent with bias 7, three of mantissa; all ones is NaN, no infinity."""
    code = np.arange(128)
    exponent, mantissa = code >> 3, code & 7
    value = np.where(exponent == 0, mantissa / 8 * 2.0**-6, (1 + mantissa / 8) * 2.0 ** (exponent - 7))
    value[127] = np.nan
    return np.concatenate([value, -value]).astype(np.float32)


def _row_scales(span: RowSpan, ids: np.ndarray) -> np.ndarray:
    """float32 [n, 1]: scale of the tensor times that of each row."""
    scale = np.float32(span.scale)
    if span.scales is None:
        return np.full((len(ids), 1), scale)
    rows = span.scales[: span.scales.size // 4 * 4].reshape(-1, 4)[span.first_row + ids]
    return np.ascontiguousarray(rows).view("<f4") * scale


def _i8_row(span: RowSpan, rows: np.ndarray, ids: np.ndarray) -> np.ndarray:
    return rows.view(np.int8).astype(np.float32) * _row_scales(span, ids)


def _f8_e4m3(span: RowSpan, rows: np.ndarray, ids: np.ndarray) -> np.ndarray:
    return e4m3_table()[rows] * _row_scales(span, ids)


def swizzled(rows: np.ndarray, blocks: np.ndarray, blocks_per_row: int) -> np.ndarray:
    """Byte of each (row, block) among the block scales.

    Tiles of 128 rows by 4 blocks follow each other along the rows first; in a tile, the 4 bytes of row r are at
    16 (r % 32) + 4 (r / 32).
    """
    tiles_per_row = -(-blocks_per_row // NVFP4_TILE_BLOCKS)
    tile = rows // NVFP4_TILE_ROWS * tiles_per_row + blocks // NVFP4_TILE_BLOCKS
    inside = rows % 32 * 16 + rows % NVFP4_TILE_ROWS // 32 * 4 + blocks % NVFP4_TILE_BLOCKS
    return tile * NVFP4_TILE_ROWS * NVFP4_TILE_BLOCKS + inside


def _nvfp4(span: RowSpan, rows: np.ndarray, ids: np.ndarray) -> np.ndarray:
    """Block: 8 bytes, elements 2j and 2j + 1 in the high and low nibble. value = q * (scale * block scale)."""
    count = rows.shape[1] * 2 // NVFP4_BLOCK
    at = swizzled((span.first_row + ids)[:, None], np.arange(count)[None], count)
    scales = np.float32(span.scale) * e4m3_table()[span.scales[at]]
    values = E2M1[np.stack((rows >> 4, rows & 15), axis=-1)].reshape(len(rows), count, NVFP4_BLOCK)
    return (values * scales[..., None]).reshape(len(rows), -1)


SCHEMES: dict[WeightFormat, Callable[[RowSpan, np.ndarray, np.ndarray], np.ndarray]] = {
    WeightFormat.I8_ROW: _i8_row,
    WeightFormat.F8_E4M3: _f8_e4m3,
    WeightFormat.NVFP4: _nvfp4,
}  # (span, uint8 [n, row_bytes], row of the span [n]) -> float32 [n, columns]


@cache
def rotation_matrix(group: int) -> np.ndarray:
    """float32 [group, group]: H4 (x) H4 (x) ..., orthogonal and symmetric; exact, as all entries are 2^-n."""
    matrix = H4
    while len(matrix) < group:
        matrix = np.kron(matrix, H4)
    return matrix


def rotate(x: np.ndarray, group: int) -> np.ndarray:
    """Every run of `group` (a power of 4) columns of x [rows, columns] times the rotation matrix, float32."""
    return (x.reshape(-1, group) @ rotation_matrix(group)).reshape(x.shape)


def transform(matrix: Matrix, x: np.ndarray) -> np.ndarray:
    """The input that the stored rows expect, float32 [rows, columns]; x itself when they expect no other."""
    if matrix.pre_scale is not None:
        x = x * matrix.pre_scale
    return rotate(x, matrix.rotation) if matrix.rotation else x
