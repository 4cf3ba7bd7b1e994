"""A weight matrix as it lies in the file: row ranges over mapped bytes, never copied or expanded here.

Every published row order (QKV per head or in thirds, split q/k/v, swapped feed-forward halves) becomes the canonical
one by listing row spans in the canonical order. Rows of all formats are whole bytes, so a span is a plain byte range.

The traps: the scales of some formats lie in a tensor of their own, whose tiles mix rows, so a span keeps all of it and
the row it starts at; and a weight may be stored for a transformed input, so that its rows alone are not the weight.
Proof: tests/core/kernels/test_matrix.py.
"""

from dataclasses import dataclass, replace
from enum import Enum

import numpy as np

from core.errors import CheckpointError


class WeightFormat(Enum):
    """Storage format of one matrix: (name, elements per block, bytes per block)."""

    F32 = ("f32", 1, 4)
    F16 = ("f16", 1, 2)
    BF16 = ("bf16", 1, 2)
    Q8_0 = ("q8_0", 32, 34)
    Q4_0 = ("q4_0", 32, 18)
    Q4_1 = ("q4_1", 32, 20)
    Q5_0 = ("q5_0", 32, 22)
    Q5_1 = ("q5_1", 32, 24)
    Q2_K = ("q2_k", 256, 84)
    Q3_K = ("q3_k", 256, 110)
    Q4_K = ("q4_k", 256, 144)
    Q5_K = ("q5_k", 256, 176)
    Q6_K = ("q6_k", 256, 210)
    I8_ROW = ("i8_row", 1, 1)  # value = q * row scale
    F8_E4M3 = ("f8_e4m3", 1, 1)  # value = q * row scale
    NVFP4 = ("nvfp4", 16, 8)  # value = q * (scale of the tensor * scale of the block)

    @property
    def label(self) -> str:
        return self.value[0]

    @property
    def block_elements(self) -> int:
        return self.value[1]

    @property
    def block_bytes(self) -> int:
        return self.value[2]

    def row_bytes(self, columns: int) -> int:
        """Bytes of one row of `columns` elements; raises when the row is not a whole number of blocks."""
        if columns % self.block_elements:
            raise CheckpointError(
                f"A {self.label} row of {columns} elements is not a whole number of blocks of {self.block_elements}."
            )
        return columns // self.block_elements * self.block_bytes


SCALED_FORMATS = (WeightFormat.I8_ROW, WeightFormat.F8_E4M3, WeightFormat.NVFP4)  # scales lie apart from the rows
BLOCK_FORMATS = tuple(f for f in WeightFormat if f not in SCALED_FORMATS)  # rows need nothing beside them
NVFP4_TILE_ROWS, NVFP4_TILE_BLOCKS = 128, 4  # block scales are stored in tiles of this size, one byte each


def nvfp4_scales_bytes(rows: int, columns: int) -> int:
    """Bytes of the block scales of an NVFP4 tensor, padded to whole tiles."""
    blocks = -(-columns // WeightFormat.NVFP4.block_elements)
    tiles = -(-rows // NVFP4_TILE_ROWS) * -(-blocks // NVFP4_TILE_BLOCKS)
    return tiles * NVFP4_TILE_ROWS * NVFP4_TILE_BLOCKS


@dataclass(frozen=True, slots=True)
class RowSpan:
    """Consecutive rows of one stored tensor. `data` is a 1-D uint8 view, usually of a file mapping, any alignment.

    Scaled formats only:
    scales:    the stored scales of the whole tensor, 1-D uint8 of any alignment: a float32 per row, or for NVFP4 one
               f8_e4m3 per block in swizzled tiles; None where `scale` is all there is
    first_row: the row of the scales that belongs to the first row of `data`
    scale:     factor of the whole tensor
    """

    format: WeightFormat
    data: np.ndarray
    rows: int
    scales: np.ndarray | None = None
    first_row: int = 0
    scale: float = 1.0

    def scales_bytes(self, columns: int) -> int:
        """Bytes of `scales` that the rows of this span reach into."""
        rows = self.first_row + self.rows
        return nvfp4_scales_bytes(rows, columns) if self.format is WeightFormat.NVFP4 else 4 * rows


@dataclass(frozen=True, slots=True)
class Matrix:
    """Weight [rows, columns] in canonical row order, as spans. `name` is the canonical tensor name, for messages.

    The stored rows act on a transformed input: y = rotate(x * pre_scale) . rows^T.
    rotation:  group size of the block Hadamard rotation, a power of 4; 0 for none
    pre_scale: float32 [columns] or None
    """

    name: str
    columns: int
    spans: tuple[RowSpan, ...]
    rotation: int = 0
    pre_scale: np.ndarray | None = None

    def __post_init__(self):
        self._check_transform()
        for span in self.spans:
            self._check_scales(span)
            expected = span.rows * span.format.row_bytes(self.columns)
            if span.data.dtype != np.uint8 or span.data.ndim != 1 or span.data.size != expected:
                raise CheckpointError(
                    f"{self.name}: {span.rows} rows of {self.columns} {span.format.label} elements take {expected} "
                    f"bytes, got {span.data.size}."
                )

    def _check_transform(self) -> None:
        group, scale = self.rotation, self.pre_scale
        if group and (group < 4 or group & (group - 1) or group.bit_length() % 2 == 0 or self.columns % group):
            raise CheckpointError(
                f"{self.name}: rotation in groups of {group}, expected a power of 4 that divides {self.columns}."
            )
        if scale is not None and (scale.dtype != np.float32 or scale.shape != (self.columns,)):
            raise CheckpointError(
                f"{self.name}: pre-scale is {scale.dtype} {list(scale.shape)}, expected float32 [{self.columns}]."
            )

    def _check_scales(self, span: RowSpan) -> None:
        scaled, scales = span.format in SCALED_FORMATS, span.scales
        if scales is None:
            if span.format is WeightFormat.NVFP4 or (not scaled and span.scale != 1.0):
                raise CheckpointError(f"{self.name}: scales do not fit the format {span.format.label}.")
            return
        needed = span.scales_bytes(self.columns)
        if not scaled or scales.dtype != np.uint8 or scales.ndim != 1 or scales.size < needed or span.first_row < 0:
            raise CheckpointError(
                f"{self.name}: {scales.size} bytes of scales for {span.rows} {span.format.label} rows from row "
                f"{span.first_row} on, expected {needed if scaled else 0} or more."
            )

    @property
    def is_transformed(self) -> bool:
        """Whether the input is transformed before the product."""
        return self.rotation != 0 or self.pre_scale is not None

    def as_stored(self) -> "Matrix":
        """The rows without the transform of the input: for a product with an input that has undergone it."""
        return replace(self, rotation=0, pre_scale=None) if self.is_transformed else self

    @property
    def rows(self) -> int:
        return sum(span.rows for span in self.spans)

    @property
    def data_bytes(self) -> int:
        return sum(span.data.size for span in self.spans)

    def row_range(self, start: int, stop: int) -> "Matrix":
        """Rows start..stop as another view of the same bytes."""
        spans, at = [], 0
        for span in self.spans:
            low, high = max(start, at) - at, min(stop, at + span.rows) - at
            if low < high:
                row_bytes = span.format.row_bytes(self.columns)
                data = span.data[low * row_bytes : high * row_bytes]
                spans.append(replace(span, data=data, rows=high - low, first_row=span.first_row + low))
            at += span.rows
        return replace(self, spans=tuple(spans))

    @staticmethod
    def stack(name: str, parts: "list[Matrix]") -> "Matrix":
        """Rows of several matrices of equal width and input transform, one below the other, without a copy."""
        columns = {part.columns for part in parts}
        if len(columns) != 1:
            raise CheckpointError(f"{name}: cannot stack matrices of widths {sorted(columns)}.")
        first = parts[0]
        if not all(first.has_transform_of(part) for part in parts):
            raise CheckpointError(f"{name}: cannot stack matrices stored for inputs transformed in different ways.")
        return replace(first, name=name, spans=tuple(span for part in parts for span in part.spans))

    def has_transform_of(self, other: "Matrix") -> bool:
        """Whether both matrices expect the same transform of the input."""
        if self.rotation != other.rotation:
            return False
        one, two = self.pre_scale, other.pre_scale
        return one is two or (one is not None and two is not None and np.array_equal(one, two))

    @staticmethod
    def from_float32(name: str, values: np.ndarray) -> "Matrix":
        """Matrix [rows, columns] over a float32 array (kept alive by the view)."""
        values = np.ascontiguousarray(values, dtype=np.float32)
        rows, columns = values.shape
        return Matrix(name, columns, (RowSpan(WeightFormat.F32, values.reshape(-1).view(np.uint8), rows),))
