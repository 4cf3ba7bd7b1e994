"""Every published layout of one model gives the same canonical tensors.

Tier: independent transcription in toys.py, proven against diffusers in test_shapes.py. Cannot catch a row order that a
publisher changes without saying so.
"""

import numpy as np
import pytest

from core.kernels.reference_dequant import expand
from core.weights.components import SPECS, ComponentKind
from core.weights.names import without_prefix
from core.weights.safetensors import open_safetensors
from core.weights.source import MappedSource, canonical_tensors
from tests.core.weights import toys

LLAMA_CPP = {
    "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm", "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm", "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
}  # fmt: skip


def source(tmp_path, kind: ComponentKind, tensors: dict, interleaved_heads: int = 0) -> MappedSource:
    file = open_safetensors(toys.save(tmp_path / "model.safetensors", tensors))
    return MappedSource(canonical_tensors([file], SPECS[kind].table), interleaved_heads)


def assert_equal(got: MappedSource, expected: dict[str, np.ndarray]) -> None:
    """Both ways of reading give the expected numbers, bit for bit."""
    assert {n for n in got.tensors if n not in ("latents_mean", "latents_std")} == set(expected)
    for name, value in expected.items():
        np.testing.assert_array_equal(got.values(name), value, err_msg=name)
        assert got.values(name).shape == value.shape == got.tensors[name].shape
        if value.ndim == 2:
            np.testing.assert_array_equal(expand(got.matrix(name)), value, err_msg=name)


def prefixed(tensors: dict, prefix: str) -> dict:
    return {prefix + name: value for name, value in tensors.items()}


@pytest.mark.parametrize("prefix", ["", "model.diffusion_model.", "diffusion_model."])
def test_denoiser_in_thirds(tmp_path, prefix):
    tensors = toys.canonical_denoiser()
    assert_equal(source(tmp_path, ComponentKind.DENOISER, prefixed(tensors, prefix)), tensors)


def test_denoiser_head_by_head(tmp_path):
    tensors = toys.canonical_denoiser()
    stored = toys.per_head(tensors, 4, ("qkv_proj",))
    assert_equal(source(tmp_path, ComponentKind.DENOISER, stored, interleaved_heads=16), tensors)
    unaware = source(tmp_path, ComponentKind.DENOISER, stored)
    assert not np.array_equal(unaware.values("blocks.0.attn.qkv_proj.weight"), tensors["blocks.0.attn.qkv_proj.weight"])


def test_denoiser_in_diffusers_names(tmp_path):
    tensors = toys.canonical_denoiser()
    got = source(tmp_path, ComponentKind.DENOISER, toys.diffusers_denoiser(dict(tensors)))
    assert_equal(got, {name: value for name, value in tensors.items() if name != "rope.inv_freq"})


@pytest.mark.parametrize(
    "prefix", ["", "model.", "model.language_model.", "language_model.", "language_model.model."]
)
def test_text_encoder_under_every_prefix(tmp_path, prefix):
    tensors = toys.canonical_text()
    extra = {"lm_head.weight": np.zeros((37, 20), np.float32), f"{prefix}norm.weight": np.zeros(20, np.float32)}
    assert_equal(source(tmp_path, ComponentKind.TEXT_ENCODER, prefixed(tensors, prefix) | extra), tensors)


def test_text_encoder_in_llama_cpp_names(tmp_path):
    tensors = toys.canonical_text()
    stored = {}
    for name, value in tensors.items():
        for ours, theirs in LLAMA_CPP.items():
            name = name.replace(f".{ours}.", f".{theirs}.")
        stored[name.replace("layers.", "blk.").replace("embed_tokens", "token_embd")] = value
    stored["output_norm.weight"] = np.zeros(20, np.float32)
    assert_equal(source(tmp_path, ComponentKind.TEXT_ENCODER, stored), tensors)


def test_video_vae_in_original_and_diffusers_names(tmp_path):
    tensors = toys.canonical_video()
    original = toys.per_head(tensors, 3, ("to_qkv",))
    bias = "decoder.transformer_blocks.1.attn.to_qkv.bias"
    assert not np.array_equal(original[bias], tensors[bias])
    assert_equal(source(tmp_path / "a", ComponentKind.VIDEO_VAE, original, interleaved_heads=8), tensors)
    diffusers = toys.diffusers_video(tensors)
    assert_equal(source(tmp_path / "b", ComponentKind.VIDEO_VAE, diffusers, interleaved_heads=8), tensors)


@pytest.mark.parametrize(
    "leaves", [("weight_g", "weight_v"), ("parametrizations.weight.original0", "parametrizations.weight.original1")]
)
def test_audio_vae_with_weight_norm_is_folded(tmp_path, leaves):
    tensors = toys.canonical_audio()
    got = source(tmp_path, ComponentKind.AUDIO_VAE, toys.weight_normed_audio(tensors, *leaves))
    assert set(got.tensors) == set(tensors)
    for name, value in tensors.items():
        assert got.tensors[name].shape == value.shape
        np.testing.assert_allclose(got.values(name), value, rtol=1e-6, atol=0, err_msg=name)


def test_folded_audio_vae_is_taken_as_it_is(tmp_path):
    tensors = toys.canonical_audio()
    assert_equal(source(tmp_path, ComponentKind.AUDIO_VAE, tensors), tensors)


def test_prefixes_are_removed_once():
    assert without_prefix("model.diffusion_model.blocks.0.x") == "blocks.0.x"
    assert without_prefix("diffusion_model.blocks.0.x") == "blocks.0.x"
    assert without_prefix("model.layers.0.x") == "model.layers.0.x"
