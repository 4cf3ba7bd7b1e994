"""The safetensors reader on files of the `safetensors` package, cut and damaged.

Tier: executed reference for the content, closed form for the refusals. Cannot catch how a 60 GB file behaves.
"""

import json
import struct

import numpy as np
import pytest
import torch
from safetensors.torch import save

from core.errors import CheckpointError
from core.kernels.matrix import WeightFormat
from core.kernels.reference_dequant import expand
from core.weights.safetensors import open_safetensors

TENSORS = {
    "w32": torch.arange(15, dtype=torch.float32).reshape(3, 5) / 7,
    "w16": torch.arange(8, dtype=torch.float32).reshape(2, 4).half() / 3,
    "wb": torch.arange(12, dtype=torch.float32).reshape(2, 2, 3).bfloat16() / 3,
    "ids": torch.arange(3, dtype=torch.int64),
    "scalar": torch.tensor(2.5),
    "none": torch.zeros(0, 4),
}
WHOLE = save(TENSORS, metadata={"config": "{}", "who": "test"})


def write(tmp_path, data: bytes):
    path = tmp_path / "model.safetensors"
    path.write_bytes(data)
    return path


def with_spaces(data: bytes, count: int) -> bytes:
    """The same file with `count` spaces behind its header, which the format allows."""
    length = struct.unpack("<Q", data[:8])[0]
    return struct.pack("<Q", length + count) + data[8 : 8 + length] + b" " * count + data[8 + length :]


def with_header(header: dict, data: bytes = b"") -> bytes:
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def one_tensor(dtype: str, shape: list, offsets: list) -> bytes:
    return with_header({"a": {"dtype": dtype, "shape": shape, "data_offsets": offsets}}, b"1234")


@pytest.mark.parametrize("misalignment", range(8))
def test_tensors_are_the_written_ones_at_any_address(tmp_path, misalignment):
    file = open_safetensors(write(tmp_path, with_spaces(WHOLE, misalignment)))
    assert file.tensors["ids"].offset % 8 == misalignment  # the first tensor of the data
    assert {n: t.shape for n, t in file.tensors.items()} == {n: tuple(t.shape) for n, t in TENSORS.items()}
    for name in ("w32", "w16", "wb", "scalar"):
        got = expand(file.tensors[name].as_matrix()).reshape(file.tensors[name].shape)
        np.testing.assert_array_equal(got, TENSORS[name].float().numpy())


def test_header_statements_and_formats_are_kept(tmp_path):
    file = open_safetensors(write(tmp_path, WHOLE))
    assert file.metadata == {"config": "{}", "who": "test"} and file.container == "safetensors"
    assert file.tensors["wb"].format is WeightFormat.BF16 and file.tensors["w16"].format is WeightFormat.F16
    assert file.tensors["ids"].format is None and file.tensors["ids"].dtype == "I64"
    assert file.tensors["none"].as_matrix().rows == 0


def test_views_read_the_mapping_and_cannot_be_written(tmp_path):
    tensor = open_safetensors(write(tmp_path, WHOLE)).tensors["w32"]
    assert tensor.data.dtype == np.uint8 and tensor.data.ndim == 1 and not tensor.data.flags.owndata
    with pytest.raises(ValueError, match="read-only"):
        tensor.data[0] = 1


@pytest.mark.parametrize("size", [9, 40, len(WHOLE) - 60, len(WHOLE) - 1])
def test_a_truncated_file_says_how_much_is_there(tmp_path, size):
    with pytest.raises(CheckpointError, match=rf"incomplete: {size} of (at least )?\d+ bytes") as caught:
        open_safetensors(write(tmp_path, WHOLE[:size]))
    assert caught.value.hint == "Download the file again."
    if size > len(WHOLE) - 100:
        assert caught.value.message == f"model.safetensors is incomplete: {size} of {len(WHOLE)} bytes."


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "model.safetensors is empty"),
        (b"abc", "is not a safetensors file"),
        (b"not a model at all, just text" * 9, "is not a safetensors file"),
        (b"\xff" * 8 + b"{" + b" " * 99, "is not a safetensors file"),
        (struct.pack("<Q", 5) + b'{"a":', "has a damaged safetensors header"),
        (struct.pack("<Q", 8) + b'{"\xff\xfe":1}', "has a damaged safetensors header"),
        (with_header({"__metadata__": []}), "has a damaged safetensors header"),
        (with_header({"a": {"dtype": "F32"}}), "the header entry of a is damaged"),
        (with_header({"a": 3}), "the header entry of a is damaged"),
        (one_tensor("F33", [1], [0, 4]), "unknown number format F33"),
        (one_tensor("F32", [2], [0, 4]), r"a is F32 \[2\], which takes 8 bytes, got 4"),
        (one_tensor("I8", [-1, -4], [0, 4]), r"a is I8 \[-1, -4\]"),
        (one_tensor("U8", [2], [2, 4]), "a starts at data byte 2, expected 0"),
        (WHOLE + b"12", "has 2 bytes behind its last tensor"),
    ],
)
def test_a_damaged_file_is_refused_with_the_reason(tmp_path, data, message):
    with pytest.raises(CheckpointError, match=message):
        open_safetensors(write(tmp_path, data))


def test_overlapping_tensors_are_refused(tmp_path):
    entry = {"dtype": "U8", "shape": [3], "data_offsets": [0, 3]}
    header = {"a": entry, "b": entry | {"data_offsets": [1, 4]}}
    with pytest.raises(CheckpointError, match="b starts at data byte 1, expected 3"):
        open_safetensors(write(tmp_path, with_header(header, b"1234")))


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(CheckpointError, match="gone.safetensors cannot be read: No such file"):
        open_safetensors(tmp_path / "gone.safetensors")


def test_content_key_follows_a_single_byte_and_ignores_the_name(tmp_path):
    keys = set()
    changed = bytearray(WHOLE)
    changed[-1] ^= 1
    for name, data in (("a", WHOLE), ("b", WHOLE), ("c", bytes(changed))):
        (tmp_path / name).write_bytes(data)
        keys.add(open_safetensors(tmp_path / name).content_key())
    assert len(keys) == 2
