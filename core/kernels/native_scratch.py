"""Memory the kernels work in: allocated here, never by a kernel."""

from collections.abc import Sequence
from math import prod

import numpy as np

from core.errors import KernelError

ALIGN_BYTES = 64  # one cache line


def aligned_empty(shape: Sequence[int], dtype: type = np.float32) -> np.ndarray:
    """Uninitialised array whose first element lies on a cache line."""
    size = prod(shape) * np.dtype(dtype).itemsize
    raw = np.empty(size + ALIGN_BYTES, dtype=np.uint8)
    start = -raw.ctypes.data % ALIGN_BYTES
    return raw[start : start + size].view(dtype).reshape(tuple(shape))


class Scratch:
    """Working memory of the kernels, owned by whoever makes it; grows on demand up to `limit_bytes`, if given."""

    def __init__(self, limit_bytes: int | None = None):
        self.limit_bytes = limit_bytes
        self._buffer = np.empty(0, dtype=np.uint8)

    @property
    def bytes(self) -> int:
        """What is allocated now."""
        return self._buffer.nbytes

    def take(self, size_bytes: int) -> np.ndarray:
        """uint8 array of at least `size_bytes`; its contents are not kept from one call to the next."""
        if self.limit_bytes is not None and size_bytes > self.limit_bytes:
            raise KernelError(f"A kernel needs {size_bytes} bytes of scratch, expected at most {self.limit_bytes}.")
        if size_bytes > self._buffer.nbytes:
            self._buffer = np.empty(0, dtype=np.uint8)
            self._buffer = aligned_empty((size_bytes,), np.uint8)
        return self._buffer
