"""A weight matrix as it lies in the file: row ranges over mapped bytes, never copied or expanded here.

Every published row order (QKV per head or in thirds, split q/k/v, swapped feed-forward halves) becomes the canonical
one by listing row spans in the canonical order. Rows of all formats are whole bytes, so a span is a plain byte range.
"""

from dataclasses import dataclass
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


@dataclass(frozen=True, slots=True)
class RowSpan:
    """Consecutive rows of one stored tensor. `data` is a 1-D uint8 view, usually of a file mapping, any alignment."""

    format: WeightFormat
    data: np.ndarray
    rows: int


@dataclass(frozen=True, slots=True)
class Matrix:
    """Weight [rows, columns] in canonical row order, as spans. `name` is the canonical tensor name, for messages."""

    name: str
    columns: int
    spans: tuple[RowSpan, ...]

    def __post_init__(self):
        for span in self.spans:
            expected = span.rows * span.format.row_bytes(self.columns)
            if span.data.dtype != np.uint8 or span.data.ndim != 1 or span.data.size != expected:
                raise CheckpointError(
                    f"{self.name}: {span.rows} rows of {self.columns} {span.format.label} elements take {expected} "
                    f"bytes, got {span.data.size}."
                )

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
                spans.append(RowSpan(span.format, span.data[low * row_bytes : high * row_bytes], high - low))
            at += span.rows
        return Matrix(self.name, self.columns, tuple(spans))

    @staticmethod
    def stack(name: str, parts: "list[Matrix]") -> "Matrix":
        """Rows of several matrices of equal width, one below the other, without a copy."""
        columns = {part.columns for part in parts}
        if len(columns) != 1:
            raise CheckpointError(f"{name}: cannot stack matrices of widths {sorted(columns)}.")
        return Matrix(name, columns.pop(), tuple(span for part in parts for span in part.spans))

    @staticmethod
    def from_float32(name: str, values: np.ndarray) -> "Matrix":
        """Matrix [rows, columns] over a float32 array (kept alive by the view)."""
        values = np.ascontiguousarray(values, dtype=np.float32)
        rows, columns = values.shape
        return Matrix(name, columns, (RowSpan(WeightFormat.F32, values.reshape(-1).view(np.uint8), rows),))
