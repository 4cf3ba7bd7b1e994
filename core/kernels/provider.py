"""How weights reach a forward pass: by block, so that a file can be read ahead and released behind.

`TensorSource` is what a checkpoint offers (core/weights implements it); `Weights` binds one to a backend. The model
asks for a block, computes, and leaves it:

    with weights.block("blocks.7") as block:
        y = backend.linear(x, block.matrix("attn.qkv_proj.weight"))
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from core.kernels.backend import Array, Backend, Weight
from core.kernels.matrix import Matrix


class TensorSource(Protocol):
    """Tensors of one component under canonical names."""

    def has(self, name: str) -> bool:
        """Whether the component has this tensor."""

    def matrix(self, name: str) -> Matrix:
        """A 2-D weight as mapped bytes; raises CheckpointError naming the tensor when it is missing."""

    def values(self, name: str) -> np.ndarray:
        """Any tensor as float32 in its stored shape (a copy unless it is stored as aligned float32)."""

    def prefetch(self, prefix: str) -> None:
        """Hint: tensors under `prefix` are needed soon. May return before they are read."""

    def release(self, prefix: str) -> None:
        """Hint: tensors under `prefix` are not needed for now; their pages may be dropped."""


@dataclass(frozen=True, slots=True)
class Block:
    """The tensors below one prefix, as the backend wants them."""

    source: TensorSource
    backend: Backend
    prefix: str

    def has(self, name: str) -> bool:
        return self.source.has(self.prefix + name)

    def matrix(self, name: str) -> Weight:
        return self.backend.weight(self.source.matrix(self.prefix + name))

    def vector(self, name: str) -> Array:
        return self.backend.from_numpy(self.source.values(self.prefix + name))

    def values(self, name: str) -> np.ndarray:
        return self.source.values(self.prefix + name)


class Weights:
    """A tensor source bound to a backend. Pass `Weights` to a model; it stays cheap to make."""

    def __init__(self, source: TensorSource, backend: Backend):
        self.source = source
        self.backend = backend

    @property
    def root(self) -> Block:
        """All tensors by full name, for the small ones outside the blocks."""
        return Block(self.source, self.backend, "")

    @contextmanager
    def block(self, prefix: str, *, ahead: str = "") -> Iterator[Block]:
        """Tensors below `prefix.`; starts reading `ahead.` meanwhile and releases `prefix.` at the end."""
        if ahead:
            self.source.prefetch(f"{ahead}.")
        try:
            yield Block(self.source, self.backend, f"{prefix}.")
        finally:
            self.source.release(f"{prefix}.")


class DictSource:
    """A tensor source over arrays in memory: for tests and for models made on the fly."""

    def __init__(self, tensors: dict[str, np.ndarray | Matrix]):
        self.tensors = tensors

    def has(self, name: str) -> bool:
        return name in self.tensors

    def matrix(self, name: str) -> Matrix:
        tensor = self.tensors[name]
        return tensor if isinstance(tensor, Matrix) else Matrix.from_float32(name, tensor)

    def values(self, name: str) -> np.ndarray:
        return np.asarray(self.tensors[name], dtype=np.float32)

    def prefetch(self, prefix: str) -> None:
        """Nothing to read ahead."""

    def release(self, prefix: str) -> None:
        """Nothing to release."""
