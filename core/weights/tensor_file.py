"""One mapped weight file: named tensors as byte views of the mapping, whatever the container.

Nothing is read when a file is opened but its header; the operating system pages bytes in as kernels touch them, so a
60 GB file opens at once. The trap: the data of a published file may start at any address, so a view promises no
alignment. Proof: tests/core/weights/test_safetensors.py and test_gguf.py.
"""

import contextlib
import hashlib
import mmap
import os
from dataclasses import dataclass, field
from math import prod
from pathlib import Path

import numpy as np

from core.errors import CheckpointError
from core.kernels.matrix import Matrix, RowSpan, WeightFormat
from core.kernels.reference_dequant import expand

REDOWNLOAD_HINT = "Download the file again."
SAMPLES, SAMPLE_BYTES = 256, 4096  # pages hashed per file: all of a small one, a spread over a large one


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredTensor:
    """A tensor as it lies in its file.

    dtype:  the container's own name of the number format, for messages
    format: how to read it, or None when no kernel can
    shape:  outermost axis first
    data:   1-D uint8 view of the mapping
    offset: position of `data` in the file, bytes

    Of a weight whose scales lie in tensors of their own (core/weights/schemes.py):
    scales:    a number for each row, or the block scales of NVFP4
    scale:     one number for all
    rotation:  group of the rotation of the input, 0 for none
    pre_scale: what the columns of the input are multiplied by
    """

    name: str
    dtype: str
    format: WeightFormat | None
    shape: tuple[int, ...]
    data: np.ndarray
    offset: int
    scales: "StoredTensor | None" = None
    scale: "StoredTensor | None" = None
    rotation: int = 0
    pre_scale: "StoredTensor | None" = None

    @property
    def stored_bytes(self) -> int:
        """Bytes in the file, scales included."""
        return self.data.size + sum(side.data.size for side in (self.scales, self.scale, self.pre_scale) if side)

    @property
    def is_flattened(self) -> bool:
        """Whether quantised blocks cross the rows, so that only the whole tensor can be expanded."""
        return bool(self.shape) and self.shape[-1] % self.format.block_elements != 0

    def as_matrix(self) -> Matrix:
        """The tensor as rows along its last axis (one row of everything when blocks cross the rows)."""
        columns = prod(self.shape) if self.is_flattened else self.shape[-1] if self.shape else 1
        rows = prod(self.shape) // columns if columns else 0
        scale = 1.0 if self.scale is None else float(self.scale.floats()[0])
        span = RowSpan(self.format, self.data, rows, scales=self._scale_bytes(), scale=scale)
        pre_scale = None if self.pre_scale is None else self.pre_scale.floats()
        return Matrix(self.name, columns, (span,), rotation=self.rotation, pre_scale=pre_scale)

    def floats(self) -> np.ndarray:
        """All elements as float32 [n]."""
        return expand(self.as_matrix()).reshape(-1)

    def _scale_bytes(self) -> np.ndarray | None:
        """`scales` as a span wants them: float32 rows, or block scales as they are."""
        if self.scales is None:
            return None
        in_place = self.format is WeightFormat.NVFP4 or self.scales.format is WeightFormat.F32
        return self.scales.data if in_place else self.scales.floats().view(np.uint8)


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorFile:
    """A weight file and its header.

    metadata:      the header's own statements, values as the container has them
    header_digest: hash of the header, the same for equal statements in any order
    data_start:    where the tensors' bytes begin
    """

    path: Path
    container: str
    size_bytes: int
    header_digest: str
    data_start: int
    tensors: dict[str, StoredTensor]
    metadata: dict
    mapping: mmap.mmap = field(repr=False)

    def advise(self, option: int, start: int, stop: int) -> None:
        """Tell the kernel what happens with bytes start..stop (`mmap.MADV_*`); a hint, never an error."""
        page = mmap.PAGESIZE
        if option == mmap.MADV_DONTNEED:  # whole pages inside, so that neighbours keep theirs
            start, stop = -(-start // page) * page, stop // page * page
        else:
            start = start // page * page
        if start < stop:
            with contextlib.suppress(OSError):  # such as a file system without read-ahead
                self.mapping.madvise(option, start, min(stop, self.size_bytes) - start)

    def content_key(self) -> str:
        """Key of the file's content: header, size and evenly spaced pages of data, 1 MiB in all.

        Two trainings of one shape differ everywhere; a single changed number in a large file can go unseen.
        """
        digest = hashlib.sha256(f"{self.header_digest} {self.size_bytes}".encode())
        room = max(0, self.size_bytes - self.data_start - SAMPLE_BYTES)
        for index in range(SAMPLES):
            at = self.data_start + room * index // (SAMPLES - 1)
            digest.update(self.mapping[at : at + SAMPLE_BYTES])
        return digest.hexdigest()


def map_file(path: Path) -> mmap.mmap:
    """The whole file mapped read-only; CheckpointError when it cannot be read or is empty."""
    try:
        with path.open("rb") as file:
            if not os.fstat(file.fileno()).st_size:
                raise CheckpointError(f"{path.name} is empty.", hint=REDOWNLOAD_HINT)
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error.strerror}.") from error


def incomplete(path: Path, size: int, expected: int, *, at_least: bool = False) -> CheckpointError:
    """The error of a truncated file."""
    floor = "at least " if at_least else ""
    return CheckpointError(f"{path.name} is incomplete: {size} of {floor}{expected} bytes.", hint=REDOWNLOAD_HINT)
