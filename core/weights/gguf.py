"""Reader of GGUF files by mmap: counts, key-value metadata, tensor descriptions, then aligned data.

The traps: the published denoiser files carry no metadata at all, so nothing may be concluded from it; axes are stored
innermost first; and matrices whose width is no multiple of 256 are flattened before quantising, their real shape then
stands in `comfy.gguf.orig_shape.<name>`. Proof: tests/core/weights/test_gguf.py, files written by the `gguf` package.
"""

import hashlib
import mmap
import struct
from math import prod
from pathlib import Path

import numpy as np

from core.errors import CheckpointError
from core.kernels.matrix import WeightFormat
from core.weights.tensor_file import StoredTensor, TensorFile, incomplete, map_file

MAGIC = b"GGUF"
DEFAULT_ALIGNMENT = 32
ORIG_SHAPE = "comfy.gguf.orig_shape."
SHORT_ARRAY = 64  # longer metadata arrays (a language model's vocabulary) are skipped
SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
STRING, ARRAY = 8, 9
READABLE = {
    0: WeightFormat.F32, 1: WeightFormat.F16, 30: WeightFormat.BF16, 2: WeightFormat.Q4_0, 3: WeightFormat.Q4_1,
    6: WeightFormat.Q5_0, 7: WeightFormat.Q5_1, 8: WeightFormat.Q8_0, 10: WeightFormat.Q2_K, 11: WeightFormat.Q3_K,
    12: WeightFormat.Q4_K, 13: WeightFormat.Q5_K, 14: WeightFormat.Q6_K,
}  # fmt: skip
TYPES = {  # id: (name, elements per block, bytes per block, format); ggml's type table
    **{type_id: (*weight_format.value, weight_format) for type_id, weight_format in READABLE.items()},
    16: ("iq2_xxs", 256, 66, None), 17: ("iq2_xs", 256, 74, None), 18: ("iq3_xxs", 256, 98, None),
    19: ("iq1_s", 256, 50, None), 20: ("iq4_nl", 32, 18, None), 21: ("iq3_s", 256, 110, None),
    22: ("iq2_s", 256, 82, None), 23: ("iq4_xs", 256, 136, None), 24: ("i8", 1, 1, None), 25: ("i16", 1, 2, None),
    26: ("i32", 1, 4, None), 27: ("i64", 1, 8, None), 28: ("f64", 1, 8, None), 29: ("iq1_m", 256, 56, None),
    39: ("mxfp4", 32, 17, None), 40: ("nvfp4", 64, 36, None),
}  # fmt: skip


class _Cursor:
    """Reads little-endian values from a mapping; a read past the end means a truncated file."""

    def __init__(self, path: Path, mapping: mmap.mmap):
        self.path, self.mapping, self.at = path, mapping, 0

    def take(self, count: int) -> bytes:
        self.skip(count)
        return self.mapping[self.at - count : self.at]

    def skip(self, count: int) -> None:
        self.at += count
        if self.at > len(self.mapping):
            raise incomplete(self.path, len(self.mapping), self.at, at_least=True)

    def number(self, code: str):
        return struct.unpack("<" + code, self.take(struct.calcsize("<" + code)))[0]

    def text(self) -> str:
        return self.take(self.number("Q")).decode("utf-8", errors="replace")


def is_gguf(head: bytes) -> bool:
    """Whether a file that starts with `head` is of this container."""
    return head[:4] == MAGIC


def open_gguf(path: Path) -> TensorFile:
    """Map a file and check its header. raises: CheckpointError when it is damaged, truncated or of another kind."""
    mapping = map_file(path)
    cursor = _Cursor(path, mapping)
    tensor_count, entry_count = _counts(cursor)
    metadata = dict(_entry(cursor) for _ in range(entry_count))
    layout = [_description(cursor) for _ in range(tensor_count)]
    alignment = metadata.get("general.alignment", DEFAULT_ALIGNMENT)
    if not isinstance(alignment, int) or alignment < 1:
        raise CheckpointError(f"{path.name} states the alignment {alignment!r}.")
    data_start = -(-cursor.at // alignment) * alignment
    needed = max((data_start + offset + _size(path, *item) for *item, offset in layout), default=0)
    if needed > len(mapping):
        raise incomplete(path, len(mapping), needed)
    view = np.frombuffer(mapping, dtype=np.uint8)
    tensors = {item[0]: _tensor(path, view, data_start, item, metadata) for item in layout}
    return TensorFile(
        path=path, container="gguf", size_bytes=len(mapping), mapping=mapping, tensors=tensors, metadata=metadata,
        header_digest=hashlib.sha256(mapping[: cursor.at]).hexdigest(), data_start=data_start,
    )  # fmt: skip


def _counts(cursor: _Cursor) -> tuple[int, int]:
    """(tensors, metadata entries), with the version checked."""
    name = cursor.path.name
    if not is_gguf(cursor.take(4)):
        raise CheckpointError(f"{name} is not a GGUF file.")
    version = cursor.number("I")
    if version not in (2, 3):
        if int.from_bytes(version.to_bytes(4, "little"), "big") in (2, 3):
            raise CheckpointError(f"{name} is a big-endian GGUF file.", hint="Use the little-endian file.")
        raise CheckpointError(f"{name} is GGUF version {version}; versions 2 and 3 can be read.")
    counts = cursor.number("Q"), cursor.number("Q")
    if max(counts) > len(cursor.mapping):  # every description takes more than a byte
        raise incomplete(cursor.path, len(cursor.mapping), max(counts), at_least=True)
    return counts


def _entry(cursor: _Cursor) -> tuple[str, object]:
    key = cursor.text()
    return key, _value(cursor, cursor.number("I"))


def _value(cursor: _Cursor, kind: int):
    """One metadata value; a long array becomes None."""
    if kind in SCALARS:
        return cursor.number(SCALARS[kind])
    if kind == STRING:
        return cursor.text()
    if kind != ARRAY:
        raise CheckpointError(f"{cursor.path.name} has metadata of the unknown type {kind}.")
    item_kind, count = cursor.number("I"), cursor.number("Q")
    if count <= SHORT_ARRAY:
        return [_value(cursor, item_kind) for _ in range(count)]
    if item_kind in SCALARS:
        cursor.skip(count * struct.calcsize("<" + SCALARS[item_kind]))
    else:
        for _ in range(count):
            _value(cursor, item_kind)
    return None


def _description(cursor: _Cursor) -> tuple[str, tuple[int, ...], int, int]:
    """(name, shape outermost first, type id, offset in the data) of one tensor."""
    name = cursor.text()
    shape = tuple(cursor.number("Q") for _ in range(cursor.number("I")))[::-1]
    return name, shape, cursor.number("I"), cursor.number("Q")


def _size(path: Path, name: str, shape: tuple[int, ...], type_id: int) -> int:
    """Bytes of one tensor."""
    if type_id not in TYPES:
        raise CheckpointError(f"{path.name}: {name} has the unknown GGUF type {type_id}.")
    _, block_elements, block_bytes, _ = TYPES[type_id]
    if prod(shape) % block_elements:
        raise CheckpointError(f"{path.name}: {name} has {prod(shape)} elements, not a multiple of {block_elements}.")
    return prod(shape) // block_elements * block_bytes


def _tensor(path: Path, view: np.ndarray, data_start: int, item: tuple, metadata: dict) -> StoredTensor:
    """View of one tensor's bytes, its real shape taken from the metadata when it was flattened."""
    name, shape, type_id, offset = item
    start = data_start + offset
    stop = start + _size(path, name, shape, type_id)
    original = metadata.get(ORIG_SHAPE + name)
    if original is not None:
        if prod(original) != prod(shape):
            raise CheckpointError(
                f"{path.name}: {name} has {prod(shape)} elements, but its real shape is {original}."
            )
        shape = tuple(original)
    label, _, _, weight_format = TYPES[type_id]
    return StoredTensor(
        name=name, dtype=label, format=weight_format, shape=shape, data=view[start:stop], offset=start
    )
