"""Canonical tensors over mapped files: the `TensorSource` that core/model reads through.

Row orders are corrected by listing byte ranges, never by copying; only weight-normalised convolutions and matrices
whose quantised blocks cross the rows are expanded, when they are asked for. The trap: views stay valid after `release`,
the next use reads the file again. Proof: tests/core/weights/test_source.py and test_names.py.
"""

import mmap
from dataclasses import dataclass

import numpy as np

from core.errors import CheckpointError
from core.kernels.matrix import Matrix
from core.kernels.reference_dequant import restore
from core.weights.names import NameTable, Rows, Rule, without_prefix
from core.weights.tensor_file import StoredTensor, TensorFile

MERGE_GAP_BYTES = 1 << 16  # ranges closer than this are advised together


@dataclass(frozen=True, slots=True)
class Part:
    """A stored tensor and the file it lies in."""

    file: TensorFile
    tensor: StoredTensor


@dataclass(frozen=True, slots=True)
class CanonicalTensor:
    """One tensor of the canonical form, made of stored parts."""

    name: str
    rows: Rows
    parts: tuple[Part, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        shapes = [part.tensor.shape for part in self.parts]
        if self.rows is Rows.WEIGHT_NORM:
            return shapes[-1]
        return shapes[0] if len(shapes) == 1 else (sum(shape[0] for shape in shapes), *shapes[0][1:])

    @property
    def stored_bytes(self) -> int:
        return sum(part.tensor.stored_bytes for part in self.parts)

    @property
    def unreadable(self) -> str:
        """The number format that no kernel reads, or empty."""
        return next((part.tensor.dtype for part in self.parts if part.tensor.format is None), "")


def canonical_tensors(files: list[TensorFile], table: NameTable) -> dict[str, CanonicalTensor]:
    """Tensors of the files under canonical names; unknown names are left out.

    raises: CheckpointError when one tensor is stored twice or a part of one is missing
    """
    found: dict[str, dict[int, Part]] = {}
    rules: dict[str, Rule] = {}
    for file in files:
        for stored in file.tensors.values():
            match = table.canonical(without_prefix(stored.name))
            if match is None:
                continue
            name, rule = match
            parts = found.setdefault(name, {})
            if rule.part in parts:
                other = parts[rule.part]
                raise CheckpointError(
                    f"{name} is stored twice: {other.tensor.name} in {other.file.path.name}, "
                    f"{stored.name} in {file.path.name}."
                )
            parts[rule.part] = Part(file, stored)
            rules[name] = rule
    return {name: _assemble(name, rules[name], parts) for name, parts in found.items()}


def _assemble(name: str, rule: Rule, parts: dict[int, Part]) -> CanonicalTensor:
    if sorted(parts) != list(range(rule.parts)):
        have = ", ".join(part.tensor.name for part in parts.values())
        raise CheckpointError(f"{name} is made of {rule.parts} stored tensors, found only {have}.")
    ordered = tuple(parts[index] for index in sorted(parts))
    if rule.rows is Rows.AS_STORED and len({part.tensor.shape[1:] for part in ordered}) > 1:
        shapes = ", ".join(str(list(part.tensor.shape)) for part in ordered)
        raise CheckpointError(f"{name}: tensors of the shapes {shapes} cannot be stacked.")
    return CanonicalTensor(name, rule.rows, ordered)


class MappedSource:
    """`TensorSource` over the mapped files of one component.

    tensors:           canonical name -> tensor
    interleaved_heads: width of one head when query, key and value rows are stored head by head; 0 for thirds
    """

    def __init__(self, tensors: dict[str, CanonicalTensor], interleaved_heads: int = 0):
        self.tensors = tensors
        self.interleaved_heads = interleaved_heads
        self._ranges: dict[str, list[tuple[TensorFile, int, int]]] = {}

    def has(self, name: str) -> bool:
        return name in self.tensors

    def matrix(self, name: str) -> Matrix:
        """A 2-D weight as spans of the mapping; expanded to float32 when quantised blocks cross its rows."""
        tensor = self._readable(name)
        if len(tensor.shape) != 2:
            raise CheckpointError(f"{name} has the shape {list(tensor.shape)}, expected a matrix.")
        if tensor.rows is Rows.WEIGHT_NORM or any(part.tensor.is_flattened for part in tensor.parts):
            return Matrix.from_float32(name, self.values(name))
        whole = Matrix.stack(name, [part.tensor.as_matrix() for part in tensor.parts])
        ranges = self._row_ranges(tensor, whole.rows)
        return Matrix.stack(name, [whole.row_range(*rows) for rows in ranges]) if len(ranges) > 1 else whole

    def values(self, name: str) -> np.ndarray:
        """A tensor as float32 in its canonical shape; an aligned float32 tensor is a read-only view of the file."""
        tensor = self._readable(name)
        stored = [restore(part.tensor.as_matrix()).reshape(part.tensor.shape) for part in tensor.parts]
        if tensor.rows is Rows.WEIGHT_NORM:
            return fold_weight_norm(*stored)
        whole = stored[0] if len(stored) == 1 else np.concatenate(stored)
        ranges = self._row_ranges(tensor, len(whole) if whole.ndim else 1)
        return np.concatenate([whole[start:stop] for start, stop in ranges]) if len(ranges) > 1 else whole

    def prefetch(self, prefix: str) -> None:
        """Start reading the tensors under `prefix`; returns at once."""
        for file, start, stop in self._byte_ranges(prefix):
            file.advise(mmap.MADV_WILLNEED, start, stop)

    def release(self, prefix: str) -> None:
        """Let the pages of the tensors under `prefix` go; a later read gets them from the file again."""
        for file, start, stop in self._byte_ranges(prefix):
            file.advise(mmap.MADV_DONTNEED, start, stop)

    def _readable(self, name: str) -> CanonicalTensor:
        tensor = self.tensors.get(name)
        if tensor is None:
            raise CheckpointError(f"The tensor {name} is missing.")
        if tensor.unreadable:
            raise CheckpointError(f"{name} is stored as {tensor.unreadable}, which cannot be read.")
        return tensor

    def _row_ranges(self, tensor: CanonicalTensor, rows: int) -> list[tuple[int, int]]:
        """Stored row ranges in canonical order."""
        if tensor.rows is Rows.SWAPPED:
            return [(rows // 2, rows), (0, rows // 2)]
        if tensor.rows is Rows.QKV and self.interleaved_heads:
            width = self.interleaved_heads
            starts = [start + part * width for part in range(3) for start in range(0, rows, 3 * width)]
            return [(start, start + width) for start in starts]
        return [(0, rows)]

    def _byte_ranges(self, prefix: str) -> list[tuple[TensorFile, int, int]]:
        """Merged file ranges of the tensors under `prefix`."""
        if prefix not in self._ranges:
            parts = [part for name, t in self.tensors.items() if name.startswith(prefix) for part in t.parts]
            spans = sorted(
                ((part.file, part.tensor.offset, part.tensor.offset + part.tensor.data.size) for part in parts),
                key=lambda item: (str(item[0].path), item[1]),
            )
            merged: list[tuple[TensorFile, int, int]] = []
            for file, start, stop in spans:
                if merged and merged[-1][0] is file and start - merged[-1][2] <= MERGE_GAP_BYTES:
                    merged[-1] = (file, merged[-1][1], stop)
                else:
                    merged.append((file, start, stop))
            self._ranges[prefix] = merged
        return self._ranges[prefix]


def fold_weight_norm(g: np.ndarray, v: np.ndarray) -> np.ndarray:
    """v * (g / |v|), the norm over all axes but the first, in float32 as torch does it."""
    norm = np.sqrt(np.square(v).reshape(len(v), -1).sum(axis=1, dtype=np.float32))
    return v * (g / norm.reshape(-1, *[1] * (v.ndim - 1)))
