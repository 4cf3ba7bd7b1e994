"""Mapped tensors as matrices and values, page advice, weight norm.

Tier: closed form and torch as the reference of the fold. Cannot catch what the operating system does with the advice.
"""

import mmap

import gguf
import numpy as np
import pytest
import torch

from core.errors import CheckpointError
from core.kernels.matrix import WeightFormat
from core.kernels.native import NativeBackend
from core.kernels.provider import Weights
from core.kernels.reference_dequant import expand
from core.weights.components import SPECS, ComponentKind
from core.weights.gguf import open_gguf
from core.weights.names import NameTable, Rows, Rule
from core.weights.safetensors import open_safetensors
from core.weights.source import MappedSource, canonical_tensors, fold_weight_norm
from core.weights.tensor_file import TensorFile
from tests.core.weights import toys
from tests.core.weights.test_gguf import encoded, write
from tests.core.weights.test_safetensors import with_spaces

DENOISER = SPECS[ComponentKind.DENOISER].table
EVERYTHING = NameTable.compile((Rule("swap.*", "swap.*", Rows.SWAPPED), Rule("*", "*")))
RNG = np.random.default_rng(2)


def open_source(path, table=EVERYTHING, heads=0):
    return MappedSource(canonical_tensors([open_safetensors(path)], table), heads)


def test_matrices_are_views_of_the_mapping_with_one_span_per_head(tmp_path):
    stored = toys.per_head(toys.canonical_denoiser(), 4, ("qkv_proj",))
    source = open_source(toys.save(tmp_path / "m", stored), DENOISER, heads=16)
    matrix = source.matrix("blocks.1.attn.qkv_proj.weight")
    assert len(matrix.spans) == 12 and {span.rows for span in matrix.spans} == {16}
    assert not any(span.data.flags.owndata or span.data.flags.writeable for span in matrix.spans)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_values_are_exact(tmp_path, dtype):
    values = {"w": RNG.standard_normal((3, 7), dtype=np.float32), "swap.b": RNG.standard_normal(6, dtype=np.float32)}
    source = open_source(toys.save(tmp_path / "m", values, dtype=dtype))
    rounded = {name: torch.from_numpy(value).to(dtype).float().numpy() for name, value in values.items()}
    np.testing.assert_array_equal(source.values("w"), rounded["w"])
    np.testing.assert_array_equal(expand(source.matrix("w")), rounded["w"])
    np.testing.assert_array_equal(source.values("swap.b"), np.r_[rounded["swap.b"][3:], rounded["swap.b"][:3]])


def test_quantised_rows_are_reordered_without_expanding(tmp_path):
    values = RNG.standard_normal((96, 256), dtype=np.float32)
    data = gguf.quantize(values, gguf.GGMLQuantizationType.Q8_0)
    path = write(tmp_path / "m.gguf", {"swap.w": (data, gguf.GGMLQuantizationType.Q8_0)})
    matrix = MappedSource(canonical_tensors([open_gguf(path)], EVERYTHING)).matrix("swap.w")
    assert {span.format for span in matrix.spans} == {WeightFormat.Q8_0} and len(matrix.spans) == 2
    expected = gguf.dequantize(data, gguf.GGMLQuantizationType.Q8_0)
    np.testing.assert_array_equal(expand(matrix), np.concatenate([expected[48:], expected[:48]]))


def test_blocks_across_rows_are_expanded_whole(tmp_path):
    kind = gguf.GGMLQuantizationType.Q4_K
    flat = encoded(kind).reshape(6, -1)
    path = write(tmp_path / "m.gguf", {"w": (flat, kind)}, keys={"comfy.gguf.orig_shape.w": [16, 96]})
    source = MappedSource(canonical_tensors([open_gguf(path)], EVERYTHING))
    expected = gguf.dequantize(flat, kind).reshape(16, 96)
    assert source.matrix("w").spans[0].format is WeightFormat.F32
    np.testing.assert_array_equal(expand(source.matrix("w")), expected)
    np.testing.assert_array_equal(source.values("w"), expected)


@pytest.mark.parametrize("shape", [(5, 3, 7), (1, 8, 7), (6, 4)])
def test_weight_norm_is_folded_as_torch_does_it(shape):
    v = RNG.standard_normal(shape, dtype=np.float32)
    g = RNG.uniform(0.1, 3, (shape[0], *[1] * (len(shape) - 1))).astype(np.float32)
    expected = torch._weight_norm(torch.from_numpy(v), torch.from_numpy(g), 0).numpy()
    got = fold_weight_norm(g, v)
    assert got.dtype == np.float32
    np.testing.assert_allclose(got, expected, rtol=4e-7, atol=0)  # the order of the sum may differ by an ulp


def test_advice_covers_the_tensors_of_the_prefix(tmp_path, monkeypatch):
    tensors = {f"blocks.{i}.{leaf}": np.full((64, 1024), i, np.float32) for i in (0, 1, 10) for leaf in "ab"}
    source = open_source(toys.save(tmp_path / "m", tensors))
    calls = []
    monkeypatch.setattr(TensorFile, "advise", lambda self, option, start, stop: calls.append((option, start, stop)))
    source.prefetch("blocks.1.")
    source.release("blocks.1.")
    parts = [source.tensors[f"blocks.1.{leaf}"].parts[0].tensor for leaf in "ab"]
    covered = (min(part.offset for part in parts), max(part.offset + part.data.size for part in parts))
    assert calls == [(mmap.MADV_WILLNEED, *covered), (mmap.MADV_DONTNEED, *covered)]


def test_released_tensors_are_read_again(tmp_path):
    large, small = RNG.standard_normal((256, 1024), dtype=np.float32), np.ones((2, 2), np.float32)
    values = {"blocks.0.w": large, "blocks.1.w": small}
    source = open_source(toys.save(tmp_path / "m", values))
    kept = source.matrix("blocks.0.w")
    np.testing.assert_array_equal(expand(kept), values["blocks.0.w"])
    for prefix in ("blocks.0.", "blocks.1.", "nothing."):
        source.prefetch(prefix)
        source.release(prefix)
    np.testing.assert_array_equal(expand(kept), values["blocks.0.w"])
    np.testing.assert_array_equal(source.values("blocks.1.w"), values["blocks.1.w"])


@pytest.mark.native
@pytest.mark.parametrize("misalignment", [0, 1, 5])
def test_native_kernels_read_the_mapping_at_any_address(tmp_path, misalignment):
    tensors = toys.canonical_denoiser()
    path = toys.save(tmp_path / "m", toys.per_head(tensors, 4, ("qkv_proj",)))
    path.write_bytes(with_spaces(path.read_bytes(), misalignment))
    block = Weights(open_source(path, DENOISER, heads=16), NativeBackend()).root
    x = RNG.standard_normal((3, 24), dtype=np.float32)
    normed = block.backend.rms_norm(x, block.vector("blocks.0.norm1.weight"), 1e-5)
    got = block.backend.linear(normed, block.matrix("blocks.0.attn.qkv_proj.weight"))
    scale = np.sqrt((x.astype(np.float64) ** 2).mean(axis=1, keepdims=True) + 1e-5)
    weight = tensors["blocks.0.attn.qkv_proj.weight"].astype(np.float64)
    expected = (x / scale * tensors["blocks.0.norm1.weight"]) @ weight.T
    np.testing.assert_allclose(got, expected, atol=1e-5)


def test_missing_and_unfit_tensors_are_named(tmp_path):
    source = open_source(toys.save(tmp_path / "m", {"w": np.zeros((2, 3, 4), np.float32)}))
    with pytest.raises(CheckpointError, match="The tensor blocks.9.x is missing"):
        source.matrix("blocks.9.x")
    with pytest.raises(CheckpointError, match="The tensor blocks.9.x is missing"):
        source.values("blocks.9.x")
    with pytest.raises(CheckpointError, match=r"w has the shape \[2, 3, 4\], expected a matrix"):
        source.matrix("w")
    assert source.has("w") and not source.has("blocks.9.x")


def test_unreadable_formats_are_named_on_use(tmp_path):
    data = RNG.integers(0, 255, (2, 136), dtype=np.uint8)
    path = write(tmp_path / "m.gguf", {"w": (data, gguf.GGMLQuantizationType.IQ4_XS)})
    with pytest.raises(CheckpointError, match="w is stored as iq4_xs, which cannot be read"):
        MappedSource(canonical_tensors([open_gguf(path)], EVERYTHING)).matrix("w")


def test_a_lonely_part_and_a_tensor_stored_twice_are_refused(tmp_path):
    zeros = np.zeros((4, 4), np.float32)
    names = {f"transformer_blocks.0.attn.to_{part}.weight": zeros for part in "qv"}
    with pytest.raises(CheckpointError, match="blocks.0.attn.qkv_proj.weight is made of 3 stored tensors, found only"):
        open_source(toys.save(tmp_path / "a", names), DENOISER)
    twice = {"proj_in.weight": zeros, "video_patch_proj.weight": zeros}
    with pytest.raises(CheckpointError, match="video_patch_proj.weight is stored twice: proj_in.weight in b, v"):
        open_source(toys.save(tmp_path / "b", twice), DENOISER)
    uneven = names | {"transformer_blocks.0.attn.to_k.weight": np.zeros((4, 5), np.float32)}
    with pytest.raises(CheckpointError, match=r"shapes \[4, 4\], \[4, 5\], \[4, 4\] cannot be stacked"):
        open_source(toys.save(tmp_path / "c", uneven), DENOISER)
