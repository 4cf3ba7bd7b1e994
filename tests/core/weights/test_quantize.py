"""Quantisers against the `gguf` package, bit for bit, and the sources built on them.

Tier: executed reference. Cannot catch how much a quantised model loses; dev/mini measures that.
"""

import gguf
import numpy as np
import pytest

from core.errors import CheckpointError
from core.kernels.matrix import Matrix, WeightFormat
from core.kernels.provider import DictSource
from core.kernels.reference_dequant import expand
from core.weights.quantize import Float32Source, QuantizedSource, quantize

RNG = np.random.default_rng(4)
CASES = {
    "normal": RNG.standard_normal((37, 96), dtype=np.float32),
    "halves": (RNG.integers(-254, 255, (64, 32)) / 2).astype(np.float32),
    "ties": np.tile(np.r_[127.0, np.arange(31) - 15.5].astype(np.float32), (3, 1)),
    "zeros": np.zeros((2, 64), np.float32),
    "tiny": RNG.standard_normal((4, 32), dtype=np.float32) * np.float32(1e-30),
    "huge": RNG.standard_normal((4, 32), dtype=np.float32) * np.float32(1e4),
    "one": np.eye(32, dtype=np.float32) * -3,
    "below": np.tile(np.r_[127.0, np.full(31, 0.49999997)].astype(np.float32), (1, 1)),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("weight_format", [WeightFormat.Q8_0, WeightFormat.Q4_0])
def test_bytes_equal_the_gguf_package(case, weight_format):
    values = CASES[case]
    got = quantize(Matrix.from_float32("w", values), weight_format)
    expected = gguf.quantize(values, gguf.GGMLQuantizationType[weight_format.name])
    assert got.rows == len(values) and got.columns == values.shape[1]
    np.testing.assert_array_equal(got.spans[0].data, expected.reshape(-1))


def test_many_random_blocks_are_equal():
    values = RNG.standard_normal((4000, 128), dtype=np.float32) * RNG.uniform(1e-3, 30, (4000, 1)).astype(np.float32)
    for weight_format in (WeightFormat.Q8_0, WeightFormat.Q4_0):
        got = quantize(Matrix.from_float32("w", values), weight_format).spans[0].data
        expected = gguf.quantize(values, gguf.GGMLQuantizationType[weight_format.name])
        np.testing.assert_array_equal(got, expected.reshape(-1))


def test_a_block_too_small_for_its_scale_becomes_zero():
    values = np.full((1, 32), 1e-44, np.float32)
    for weight_format in (WeightFormat.Q8_0, WeightFormat.Q4_0):
        np.testing.assert_array_equal(expand(quantize(Matrix.from_float32("w", values), weight_format)), 0)


def test_impossible_conversions_are_refused():
    with pytest.raises(CheckpointError, match="q8_0 row of 33 elements is not a whole number of blocks"):
        quantize(Matrix.from_float32("w", np.zeros((2, 33), np.float32)), WeightFormat.Q8_0)
    with pytest.raises(CheckpointError, match="w: cannot be quantised to q4_k"):
        quantize(Matrix.from_float32("w", np.zeros((2, 256), np.float32)), WeightFormat.Q4_K)


TENSORS = {
    "blocks.0.mlp.fc1.weight": RNG.standard_normal((8, 64), dtype=np.float32),
    "token_refiner.blocks.0.mlp.fc2.weight": RNG.standard_normal((8, 32), dtype=np.float32),
    "blocks.0.adaln_proj.linear.weight": RNG.standard_normal((8, 12), dtype=np.float32),
    "blocks.0.norm1.weight": RNG.standard_normal(64, dtype=np.float32),
    "video_patch_proj.weight": RNG.standard_normal((8, 96), dtype=np.float32),
    "embed_tokens.weight": RNG.standard_normal((8, 64), dtype=np.float32),
    "layers.1.self_attn.q_proj.weight": RNG.standard_normal((8, 64), dtype=np.float32),
}


def test_quantised_source_converts_block_weights_and_nothing_else():
    source = QuantizedSource(DictSource(TENSORS), WeightFormat.Q8_0)
    formats = {name: source.matrix(name).spans[0].format for name, value in TENSORS.items() if value.ndim == 2}
    assert {name for name, used in formats.items() if used is WeightFormat.Q8_0} == {
        "blocks.0.mlp.fc1.weight", "token_refiner.blocks.0.mlp.fc2.weight", "layers.1.self_attn.q_proj.weight"
    }  # fmt: skip
    np.testing.assert_array_equal(source.values("blocks.0.norm1.weight"), TENSORS["blocks.0.norm1.weight"])
    error = np.abs(source.values("blocks.0.mlp.fc1.weight") - TENSORS["blocks.0.mlp.fc1.weight"]).max()
    assert 0 < error < 0.02
    assert source.matrix("blocks.0.mlp.fc1.weight") is source.matrix("blocks.0.mlp.fc1.weight")
    assert source.has("blocks.0.norm1.weight") and not source.has("blocks.1.norm1.weight")


def test_float32_source_expands_every_matrix():
    inner = QuantizedSource(DictSource(TENSORS), WeightFormat.Q4_0)
    source = Float32Source(inner)
    for name in ("blocks.0.mlp.fc1.weight", "embed_tokens.weight", "blocks.0.adaln_proj.linear.weight"):
        assert source.matrix(name).spans[0].format is WeightFormat.F32
        np.testing.assert_array_equal(expand(source.matrix(name)), expand(inner.matrix(name)))
        np.testing.assert_array_equal(source.values(name), inner.values(name))
