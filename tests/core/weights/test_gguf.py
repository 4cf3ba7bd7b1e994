"""The GGUF reader on files of the `gguf` package, and on hand-written ones without metadata.

Tier: executed reference for content and block formats, closed form for refusals. Cannot catch a later version.
"""

import struct

import gguf
import numpy as np
import pytest

from core.errors import CheckpointError
from core.kernels.matrix import BLOCK_FORMATS, WeightFormat
from core.kernels.reference_dequant import expand
from core.weights.gguf import TYPES, open_gguf
from tests.native.kernel_data import random_bytes

RNG = np.random.default_rng(1)
VALUES = RNG.standard_normal((3, 512), dtype=np.float32)
Type = gguf.GGMLQuantizationType


def random_blocks(kind: Type, rows: int, columns: int) -> np.ndarray:
    """Random bytes with sane scales, [rows, row_bytes]: the package reads the K formats and does not write them."""
    return random_bytes(WeightFormat[kind.name], rows, columns).reshape(rows, -1)


def encoded(kind: Type) -> np.ndarray:
    return random_blocks(kind, *VALUES.shape) if kind.name.endswith("_K") else gguf.quantize(VALUES, kind)


def write(path, tensors: dict, *, keys: dict | None = None, **options):
    writer = gguf.GGUFWriter(path, "wan", **options)
    for key, value in (keys or {}).items():
        {str: writer.add_string, int: writer.add_uint32, list: writer.add_array}[type(value)](key, value)
    for name, (data, kind) in tensors.items():
        writer.add_tensor(name, data, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def bare(tensors: dict[str, tuple[tuple[int, ...], int, bytes]], version: int = 3) -> bytes:
    """A file without any metadata, as stable-diffusion.cpp writes it."""
    head = b"GGUF" + struct.pack("<IQQ", version, len(tensors), 0)
    data = b""
    for name, (shape, kind, content) in tensors.items():
        head += struct.pack("<Q", len(name)) + name.encode() + struct.pack("<I", len(shape))
        head += struct.pack(f"<{len(shape)}Q", *shape[::-1]) + struct.pack("<IQ", kind, len(data))
        data += content + b"\0" * (-len(content) % 32)
    return head + b"\0" * (-len(head) % 32) + data


FORMATS = {Type[weight_format.name]: weight_format for weight_format in BLOCK_FORMATS}


@pytest.mark.parametrize(("kind", "expected_format"), FORMATS.items(), ids=lambda item: item.name)
def test_every_readable_type_has_the_values_of_the_package(tmp_path, kind, expected_format):
    data = encoded(kind)
    file = open_gguf(write(tmp_path / "m.gguf", {"first": (VALUES[:1], Type.F32), "w": (data, kind)}))
    tensor = file.tensors["w"]
    assert tensor.format is expected_format and tensor.shape == (3, 512) and file.container == "gguf"
    np.testing.assert_array_equal(expand(tensor.as_matrix()), gguf.dequantize(data, kind))


def test_type_sizes_are_those_of_the_package():
    for type_id, (label, elements, size, _) in TYPES.items():
        kind = Type(type_id)
        assert kind.name.lower() == label and gguf.GGML_QUANT_SIZES[kind] == (elements, size)


def test_metadata_is_read_and_long_arrays_are_skipped(tmp_path):
    keys = {
        "config": "{}", "general.alignment": 64, "list": [3, 4], "tokens": [f"t{i}" for i in range(100)],
        "scores": [float(i) for i in range(100)], "general.name": "näme",
    }  # fmt: skip
    file = open_gguf(write(tmp_path / "m.gguf", {"w": (VALUES, Type.F32)}, keys=keys))
    assert file.metadata["config"] == "{}" and file.metadata["list"] == [3, 4]
    assert file.metadata["tokens"] is None and file.metadata["scores"] is None
    assert file.metadata["general.name"] == "näme"
    assert file.tensors["w"].offset % 64 == 0
    np.testing.assert_array_equal(expand(file.tensors["w"].as_matrix()), VALUES)


@pytest.mark.parametrize("version", [2, 3])
def test_a_file_without_metadata_is_read(tmp_path, version):
    path = tmp_path / "bare.gguf"
    path.write_bytes(bare({"a": ((5,), 0, VALUES[0, :5].tobytes()), "b": ((3, 512), 0, VALUES.tobytes())}, version))
    file = open_gguf(path)
    assert file.metadata == {} and file.tensors["a"].shape == (5,)
    np.testing.assert_array_equal(expand(file.tensors["b"].as_matrix()), VALUES)


def test_a_flattened_matrix_gets_its_real_shape(tmp_path):
    flat = encoded(Type.Q4_K).reshape(6, -1)  # six rows of 256
    keys = {"comfy.gguf.orig_shape.w": [16, 96]}
    tensor = open_gguf(write(tmp_path / "m.gguf", {"w": (flat, Type.Q4_K)}, keys=keys)).tensors["w"]
    assert tensor.shape == (16, 96) and tensor.is_flattened
    np.testing.assert_array_equal(
        expand(tensor.as_matrix()).reshape(16, 96), gguf.dequantize(flat, Type.Q4_K).reshape(16, 96)
    )


def test_a_flattened_matrix_of_another_size_is_refused(tmp_path):
    path = write(tmp_path / "m.gguf", {"w": (VALUES, Type.F32)}, keys={"comfy.gguf.orig_shape.w": [16, 97]})
    with pytest.raises(CheckpointError, match=r"w has 1536 elements, but its real shape is \[16, 97\]"):
        open_gguf(path)


@pytest.mark.parametrize("cut", [1, 100, "header", 20])
def test_a_truncated_file_says_how_much_is_there(tmp_path, cut):
    path = write(tmp_path / "m.gguf", {"a": (VALUES, Type.F32), "b": (VALUES, Type.F32)})
    whole = path.read_bytes()
    size = {"header": 90, 20: 20}.get(cut) or len(whole) - cut
    path.write_bytes(whole[:size])
    with pytest.raises(CheckpointError, match=rf"incomplete: {size} of (at least )?\d+ bytes") as caught:
        open_gguf(path)
    assert caught.value.hint == "Download the file again."
    if size > 100:
        assert caught.value.message == f"m.gguf is incomplete: {size} of {len(whole)} bytes."


def test_other_files_are_refused_with_the_reason(tmp_path):
    big = write(tmp_path / "big.gguf", {"w": (VALUES, Type.F32)}, endianess=gguf.GGUFEndian.BIG)
    with pytest.raises(CheckpointError, match="big.gguf is a big-endian GGUF file"):
        open_gguf(big)
    cases = {
        b"GGUX" + b"\0" * 40: "is not a GGUF file",
        b"GGUF" + struct.pack("<IQQ", 1, 0, 0): "is GGUF version 1; versions 2 and 3 can be read",
        b"GGUF" + struct.pack("<IQQ", 3, 1 << 60, 0): r"incomplete: 24 of at least",
        bare({"w": ((4,), 77, b"1234")}): "w has the unknown GGUF type 77",
        bare({"w": ((33,), 8, b"1234")}): "w has 33 elements, not a multiple of 32",
        b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + struct.pack("<Q1sI", 1, b"k", 99): "metadata of the unknown type 99",
    }
    for content, message in cases.items():
        path = tmp_path / "other.gguf"
        path.write_bytes(content)
        with pytest.raises(CheckpointError, match=message):
            open_gguf(path)


def test_types_without_a_kernel_are_kept_by_name(tmp_path):
    data = RNG.integers(0, 255, (2, 136), dtype=np.uint8)
    tensor = open_gguf(write(tmp_path / "m.gguf", {"w": (data, Type.IQ4_XS)})).tensors["w"]
    assert tensor.format is None and tensor.dtype == "iq4_xs" and tensor.shape == (2, 256)
