"""Reader of safetensors files by mmap: an 8-byte length, a JSON header, then the tensors' bytes.

The trap: a header alone parses fine in a truncated download, so the last data offset is compared with the file size.
Proof: tests/core/weights/test_safetensors.py, files written by the `safetensors` package, cut and damaged.
"""

import hashlib
import json
from math import prod
from pathlib import Path

import numpy as np

from core.errors import CheckpointError
from core.kernels.matrix import WeightFormat
from core.weights.schemes import with_schemes
from core.weights.tensor_file import StoredTensor, TensorFile, incomplete, map_file

MAX_HEADER_BYTES = 100_000_000  # limit of the format
DTYPE_BYTES = {
    "F64": 8, "I64": 8, "U64": 8, "F32": 4, "I32": 4, "U32": 4, "F16": 2, "BF16": 2, "I16": 2, "U16": 2, "I8": 1,
    "U8": 1, "BOOL": 1, "F8_E4M3": 1, "F8_E5M2": 1, "F8_E8M0": 1,
}  # fmt: skip
FORMATS = {
    "F32": WeightFormat.F32, "F16": WeightFormat.F16, "BF16": WeightFormat.BF16, "F8_E4M3": WeightFormat.F8_E4M3,
}  # fmt: skip


def is_safetensors(head: bytes) -> bool:
    """Whether a file that starts with `head` (nine bytes or more) is of this container."""
    return head[8:9] == b"{" and 2 <= int.from_bytes(head[:8], "little") <= MAX_HEADER_BYTES


def open_safetensors(path: Path) -> TensorFile:
    """Map a file and check its header. raises: CheckpointError when it is damaged, truncated or of another kind."""
    mapping = map_file(path)
    size = len(mapping)
    if not is_safetensors(mapping[:9]):
        raise CheckpointError(f"{path.name} is not a safetensors file.")
    data_start = 8 + int.from_bytes(mapping[:8], "little")
    if data_start > size:
        raise incomplete(path, size, data_start, at_least=True)
    header = _parse_header(path, mapping[8:data_start])
    # Writers put the entries in any order, so the digest is of the sorted ones.
    digest = hashlib.sha256(json.dumps(header, sort_keys=True).encode()).hexdigest()
    metadata = header.pop("__metadata__", {})
    layout = {name: _entry(path, name, entry) for name, entry in header.items()}
    _check_extent(path, layout, data_start, size)
    view = np.frombuffer(mapping, dtype=np.uint8)
    tensors = {
        name: StoredTensor(
            name=name, dtype=dtype, format=FORMATS.get(dtype), shape=shape,
            data=view[data_start + begin : data_start + end], offset=data_start + begin,
        )
        for name, (dtype, shape, begin, end) in layout.items()
    }  # fmt: skip
    return TensorFile(
        path=path, container="safetensors", size_bytes=size, mapping=mapping, tensors=with_schemes(path, tensors),
        metadata=metadata, header_digest=digest, data_start=data_start,
    )  # fmt: skip


def _parse_header(path: Path, header_bytes: bytes) -> dict:
    try:
        header = json.loads(header_bytes)
    except ValueError as error:
        raise CheckpointError(f"{path.name} has a damaged safetensors header.") from error
    if not isinstance(header, dict) or not isinstance(header.get("__metadata__", {}), dict):
        raise CheckpointError(f"{path.name} has a damaged safetensors header.")
    return header


def _entry(path: Path, name: str, entry: dict) -> tuple[str, tuple[int, ...], int, int]:
    """(dtype, shape, begin, end) of one header entry, checked against each other."""
    try:
        dtype, shape = entry["dtype"], tuple(int(n) for n in entry["shape"])
        begin, end = (int(n) for n in entry["data_offsets"])
    except (KeyError, TypeError, ValueError) as error:
        raise CheckpointError(f"{path.name}: the header entry of {name} is damaged.") from error
    if dtype not in DTYPE_BYTES:
        raise CheckpointError(f"{path.name}: {name} has the unknown number format {dtype}.")
    expected = prod(shape) * DTYPE_BYTES[dtype]
    if min(shape, default=0) < 0 or begin < 0 or end - begin != expected:
        raise CheckpointError(
            f"{path.name}: {name} is {dtype} {list(shape)}, which takes {expected} bytes, got {end - begin}."
        )
    return dtype, shape, begin, end


def _check_extent(path: Path, layout: dict, data_start: int, size: int) -> None:
    """Tensors lie one behind the other and end where the file ends."""
    at = 0
    for name, (_, _, begin, end) in sorted(layout.items(), key=lambda item: item[1][2:]):
        if begin != at:
            raise CheckpointError(f"{path.name}: {name} starts at data byte {begin}, expected {at}.")
        at = end
    if data_start + at > size:
        raise incomplete(path, size, data_start + at)
    if data_start + at < size:
        raise CheckpointError(f"{path.name} has {size - data_start - at} bytes behind its last tensor.")
