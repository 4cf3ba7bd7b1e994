"""Whole models in ComfyUI's quantised schemes: every weight has its meant values, and computes as they do.

Tier: self-consistency over files of the `safetensors` package, quantised by tests/core/weights/comfy.py, whose reading
of the formats test_reference_schemes.py shares. Cannot catch a statement of real files that nobody has described.
"""

import json
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch

from core.errors import CheckpointError
from core.kernels.matrix import WeightFormat
from core.kernels.native import NativeBackend
from core.kernels.provider import DictSource, Weights
from core.kernels.reference import ReferenceBackend
from core.model.text_encoder import TextEncoder
from core.weights.checkpoint import open_model_set
from core.weights.quantize import Float32Source
from core.weights.safetensors import open_safetensors
from tests.core.weights import comfy, toys

DENOISER = replace(toys.DENOISER, hidden_size=32, ffn_dim=48)
DENOISER_STATED = toys.DENOISER_STATED | {"hidden_size": 32, "ffn_hidden_size": 48}
LINEARS = [
    f"blocks.{block}.{leaf}.weight" for block in range(2)
    for leaf in ("attn.qkv_proj", "attn.out_proj", "mlp.fc1", "mlp.fc2")
]  # fmt: skip
TEXT = replace(toys.TEXT, hidden_size=32, num_heads=4, ffn_dim=48)
TEXT_STATED = toys.TEXT_STATED | {"hidden_size": 32, "num_attention_heads": 4, "intermediate_size": 48}
PROJECTIONS = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "mlp.gate_proj", "mlp.up_proj")
FORMATS = {
    comfy.int8: WeightFormat.I8_ROW, comfy.rotated_int8: WeightFormat.I8_ROW, comfy.fp8: WeightFormat.F8_E4M3,
    comfy.nvfp4: WeightFormat.NVFP4,
}  # fmt: skip
RNG = np.random.default_rng(14)
BACKENDS = [pytest.param(NativeBackend, marks=pytest.mark.native), ReferenceBackend]


def linear_values(source, name: str, backend, x: np.ndarray) -> np.ndarray:
    return backend.to_numpy(backend.linear(backend.from_numpy(x), backend.weight(source.matrix(name))))


@pytest.mark.parametrize("make_backend", BACKENDS, ids=["native", "reference"])
@pytest.mark.parametrize("scheme", FORMATS, ids=lambda f: f.__name__)
def test_a_denoiser_in_each_scheme_has_the_meant_weights(tmp_path, scheme, make_backend):
    stored, meant = comfy.quantised(toys.canonical_denoiser(DENOISER), dict.fromkeys(LINEARS, scheme))
    folder, metadata = toys.save_model(tmp_path), toys.DENOISER_METADATA | {"config": json.dumps(DENOISER_STATED)}
    toys.save(folder / "transformer.safetensors", stored, metadata)
    config, source = open_model_set(folder).denoiser
    assert config == DENOISER
    backend = make_backend()
    for name in LINEARS:
        matrix = source.matrix(name)
        assert {span.format for span in matrix.spans} == {FORMATS[scheme]}
        assert not any(span.data.flags.owndata for span in matrix.spans)
        largest = np.abs(meant[name]).max()
        np.testing.assert_allclose(source.values(name), meant[name], rtol=0, atol=1e-6 * largest)
        x = RNG.standard_normal((3, matrix.columns), dtype=np.float32)
        expected = x.astype(np.float64) @ meant[name].astype(np.float64).T
        magnitude = np.abs(x) @ np.abs(meant[name]).T
        assert np.all(np.abs(linear_values(source, name, backend, x) - expected) <= 2e-6 * magnitude.max())
    np.testing.assert_array_equal(source.values("blocks.1.norm1.weight"), meant["blocks.1.norm1.weight"])


def text_model(tmp_path):
    """NVFP4 with scaled inputs of two projections in each layer and an int8 embedding, as published."""
    tensors = toys.canonical_text(TEXT)
    chosen = {"embed_tokens.weight": comfy.int8}
    for layer in range(TEXT.num_layers):
        chosen |= {f"layers.{layer}.{leaf}.weight": comfy.nvfp4 for leaf in PROJECTIONS}
        for leaf in ("self_attn.o_proj", "mlp.down_proj"):
            name = f"layers.{layer}.{leaf}.weight"
            pre_scale = RNG.uniform(0.5, 2, tensors[name].shape[1]).astype(np.float32)
            chosen[name] = partial(comfy.nvfp4, pre_scale=pre_scale)
    stored, meant = comfy.quantised(tensors, chosen)
    folder, stated = toys.save_model(tmp_path), {"config": json.dumps(TEXT_STATED)}
    toys.save(folder / "text_encoder.safetensors", {f"model.{n}": v for n, v in stored.items()}, stated)
    return open_model_set(folder), meant


@pytest.mark.parametrize("make_backend", BACKENDS, ids=["native", "reference"])
def test_a_quantised_text_encoder_computes_as_its_meant_weights(tmp_path, make_backend):
    models, meant = text_model(tmp_path)
    config, source = models.text_encoder
    assert config == TEXT
    ids = np.array([3, 0, 36, 7, 7], dtype=np.int32)
    backend, oracle = make_backend(), ReferenceBackend()
    got = backend.to_numpy(TextEncoder(config, Weights(source, backend)).encode(ids))
    expected = oracle.to_numpy(TextEncoder(config, Weights(DictSource(meant), oracle)).encode(ids))
    assert np.abs(got - expected).max() <= 1e-5 * np.abs(expected).max()


def test_a_rewritten_matrix_keeps_the_transform_of_its_input(tmp_path):
    models, meant = text_model(tmp_path)
    source, name = Float32Source(models.text_encoder[1]), "layers.1.mlp.down_proj.weight"
    x = RNG.standard_normal((3, 48), dtype=np.float32)
    assert source.matrix(name).spans[0].format is WeightFormat.F32 and source.matrix(name).is_transformed
    np.testing.assert_allclose(source.values(name), meant[name], rtol=0, atol=1e-6 * np.abs(meant[name]).max())
    got = linear_values(source, name, ReferenceBackend(), x)
    np.testing.assert_allclose(got, x @ meant[name].T, rtol=0, atol=1e-5 * np.abs(got).max())


def test_stored_bytes_count_the_scales(tmp_path):
    models, _ = text_model(tmp_path)
    tensor = models.text_encoder[1].tensors["layers.0.mlp.down_proj.weight"]
    assert tensor.shape == (32, 48) and tensor.stored_bytes == 32 * 48 // 2 + 128 * 4 + 4 + 48 * 2


def opened(tmp_path, stored: dict):
    return open_safetensors(toys.save(tmp_path / "m.safetensors", stored)).tensors


WEIGHT = RNG.standard_normal((32, 48), dtype=np.float32)
EIGHT_BITS = torch.from_numpy(WEIGHT / 8).to(torch.float8_e4m3fn)


@pytest.mark.parametrize("name", ["weight_scale", "scale_weight"])
def test_fp8_without_a_marker_takes_its_scale_where_there_is_one(tmp_path, name):
    stored = {"m.weight": EIGHT_BITS, f"m.{name}": np.array([8], np.float32), "plain.weight": EIGHT_BITS.clone()}
    tensors = opened(tmp_path, stored)
    expected = EIGHT_BITS.float().numpy()
    np.testing.assert_array_equal(tensors["m.weight"].floats().reshape(32, 48), expected * 8)
    np.testing.assert_array_equal(tensors["plain.weight"].floats().reshape(32, 48), expected)


@pytest.mark.parametrize("name", ["weight_scale_inv", "weight._scale"])
def test_fp8_with_scales_of_another_name_is_not_read_without_them(tmp_path, name):
    tensor = opened(tmp_path, {"m.weight": EIGHT_BITS, f"m.{name}": np.ones(1, np.float32)})["m.weight"]
    assert tensor.format is None and tensor.dtype == f"F8_E4M3 with {name}"


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_scales_of_rows_may_have_any_float_type(tmp_path, dtype):
    scale = torch.from_numpy(RNG.uniform(0.5, 2, (32, 1)).astype(np.float32)).to(dtype)
    stored = {"m.weight": EIGHT_BITS, "m.weight_scale": scale, "m.comfy_quant": comfy.marker(format="float8_e4m3fn")}
    got = opened(tmp_path, stored)["m.weight"].floats().reshape(32, 48)
    np.testing.assert_array_equal(got, (EIGHT_BITS.float() * scale.float()).numpy())


@pytest.mark.parametrize(
    ("stated", "group"),
    [
        ({"convrot": True}, 256),
        ({"convrot": True, "convrot_groupsize": 64}, 64),
        ({"params": {"convrot": True, "convrot_groupsize": 4}}, 4),
        ({"convrot": False, "convrot_groupsize": 64}, 0),
    ],
    ids=str,
)
def test_the_marker_states_the_rotation(tmp_path, stated, group):
    stored, _ = comfy.int8("m", np.ones((2, 256), np.float32))
    stored["m.comfy_quant"] = comfy.marker(format="int8_tensorwise", **stated)
    assert opened(tmp_path, stored)["m.weight"].as_matrix().rotation == group


@pytest.mark.parametrize("name", ["convrot_w4a4", "float8_e5m2", "mxfp8"])
def test_a_scheme_without_a_kernel_is_named(tmp_path, name):
    stored, _ = comfy.int8("blocks.0.mlp.fc2", toys.canonical_denoiser()["blocks.0.mlp.fc2.weight"])
    stored["blocks.0.mlp.fc2.comfy_quant"] = comfy.marker(format=name)
    folder = toys.save_model(tmp_path)
    tensors = {n: v for n, v in toys.canonical_denoiser().items() if n != "blocks.0.mlp.fc2.weight"} | stored
    toys.save(folder / "transformer.safetensors", tensors, toys.DENOISER_METADATA)
    with pytest.raises(CheckpointError, match=f"blocks.0.mlp.fc2.weight are stored as {name}, which cannot be read"):
        open_model_set(folder)


def test_a_quantised_convolution_is_not_taken_for_a_matrix(tmp_path):
    stored = {"c.weight": np.zeros((2, 4, 1), np.int8), "c.weight_scale": np.ones((2, 1), np.float32)}
    stored["c.comfy_quant"] = comfy.marker(format="int8_tensorwise")
    assert opened(tmp_path, stored)["c.weight"].format is None


def faulty(change: dict, scheme=comfy.nvfp4) -> dict:
    stored, _ = scheme("m", WEIGHT)
    return {name: value for name, value in (stored | change).items() if value is not None}


@pytest.mark.parametrize(
    ("stored", "message"),
    [
        (faulty({"m.comfy_quant": np.frombuffer(b"{oops", np.uint8)}), "the marker m.comfy_quant is damaged"),
        (faulty({"m.comfy_quant": np.frombuffer(b"[1]", np.uint8)}), "the marker m.comfy_quant is damaged"),
        (faulty({"m.weight_scale_2": None}), "m.weight is quantised, but m.weight_scale_2 is missing"),
        (faulty({"m.weight_scale": None}, comfy.fp8), "m.weight is quantised, but m.weight_scale is missing"),
        (faulty({"m.weight_scale": np.zeros(511, np.uint8)}), r"m.weight_scale is U8 \[511\], which does not fit"),
        (faulty({"m.weight_scale": np.zeros((128, 4), np.float32)}), r"m.weight_scale is F32 \[128, 4\], which does"),
        (faulty({"m.weight_scale_2": np.zeros(2, np.float32)}), r"m.weight_scale_2 is F32 \[2\], which does not fit"),
        (faulty({"m.weight_scale": np.zeros(31, np.float32)}, comfy.int8), r"m.weight_scale is F32 \[31\], which does"),
        (faulty({"m.weight_scale": np.zeros(32, np.uint8)}, comfy.int8), r"m.weight_scale is U8 \[32\], which does"),
        (faulty({"m.pre_quant_scale": np.zeros(32, np.float32)}), r"m.pre_quant_scale is F32 \[32\], which does not"),
        (faulty({"m.weight": WEIGHT}), "m.weight is stored as F32, its marker means U8"),
        (
            faulty({"m.comfy_quant": comfy.marker(format="int8_tensorwise", convrot=True)}, comfy.int8),
            "m.weight is rotated in groups of 256, which do not divide its 48 columns",
        ),
    ],
)
def test_side_tensors_that_do_not_fit_are_refused(tmp_path, stored, message):
    with pytest.raises(CheckpointError, match=message):
        opened(tmp_path, stored)
