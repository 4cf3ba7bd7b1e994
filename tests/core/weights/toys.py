"""Toy models in every published layout, written by other people's writers from one set of random weights.

The conversions to diffusers names are proven against the diffusers classes (test_shapes.py).
"""

import json
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file

from core.model.config import AudioVaeConfig, DenoiserConfig, TextEncoderConfig, VideoVaeConfig
from core.weights.shapes import audio_vae_shapes, denoiser_shapes, text_encoder_shapes, video_vae_shapes

DENOISER = DenoiserConfig(
    hidden_size=24, num_layers=2, num_refiner_layers=1, num_heads=4, head_dim=16, ffn_dim=40, text_dim=20, freq_dim=8,
    time_hidden_dim=28, time_dim=12, rope_freq_dim=2, rope_theta=100.0, norm_eps=2e-5, qk_norm_eps=3e-5,
    final_norm_eps=4e-5, video_shift=5.0, audio_shift=2.0, default_steps=9,
)  # fmt: skip
DENOISER_STATED = {
    "hidden_size": 24, "num_layers": 2, "token_refiner_num_layers": 1, "num_attention_heads": 4,
    "attention_head_dim": 16, "ffn_hidden_size": 40, "latents_dim": 24, "audio_latents_dim": 32,
    "patch_size": [1, 2, 2], "text_dim": 20, "timestep_input_dim": 8, "time_embed_hidden_size": 28,
    "time_embed_dim": 12, "rope_inv_freq_len": 2, "rope_theta": 100.0, "norm_eps": 2e-5, "qk_norm_eps": 3e-5,
    "final_norm_eps": 4e-5,
}  # fmt: skip
DENOISER_METADATA = {
    "config": json.dumps(DENOISER_STATED), "sigma_shift_scales": json.dumps({"video": 5.0, "audio": 2.0}),
    "partition": "fl2va", "qkv_order": "thirds", "default_steps": "9",
}  # fmt: skip
DENOISER_DIFFUSERS = {
    "num_attention_heads": 4, "attention_head_dim": 16, "hidden_size": 24, "num_layers": 2, "num_refiner_layers": 1,
    "ffn_dim": 40, "in_channels": 24, "audio_in_channels": 32, "patch_size": [1, 2, 2], "text_dim": 20, "freq_dim": 8,
    "time_embed_hidden_dim": 28, "time_embed_dim": 12, "rope_freq_dim": 2, "rope_theta": 100.0, "norm_eps": 2e-5,
    "qk_norm_eps": 3e-5, "final_norm_eps": 4e-5,
}  # fmt: skip

TEXT = TextEncoderConfig(
    hidden_size=20, num_layers=2, num_heads=3, num_kv_heads=1, head_dim=8, ffn_dim=28, rms_norm_eps=2e-6,
    rope_theta=1000.0, mrope_section=(2, 1, 1), vocab_size=37,
)  # fmt: skip
TEXT_STATED = {
    "hidden_size": 20, "num_hidden_layers": 2, "num_attention_heads": 3, "num_key_value_heads": 1, "head_dim": 8,
    "intermediate_size": 28, "rms_norm_eps": 2e-6, "rope_theta": 1000.0, "mrope_section": [2, 1, 1], "vocab_size": 37,
}  # fmt: skip

VIDEO = VideoVaeConfig(
    block_out_channels=(4, 8, 8, 12), layers_per_block=2, spatial_downsample=(2, 2, 2, 2),
    temporal_downsample=(1, 2, 2, 1), norm_groups=4, norm_eps=1e-6, decoder_layers=2, decoder_heads=3,
    decoder_head_dim=8, decoder_ffn_mult=2, decoder_registers=3, decoder_rotary_dim=6,
    latents_mean=tuple(i / 8 for i in range(24)), latents_std=tuple(1 + i / 16 for i in range(24)),
)  # fmt: skip
VIDEO_STATED = {
    "block_out_channels": [4, 8, 8, 12], "layers_per_block": 2, "spatial_downsample_factors": [2, 2, 2, 2],
    "temporal_downsample_factors": [1, 2, 2, 1], "norm_num_groups": 4, "norm_eps": 1e-6, "decoder_num_layers": 2,
    "decoder_num_attention_heads": 3, "decoder_attention_head_dim": 8, "decoder_num_register_tokens": 3,
    "decoder_ffn_mult": 2, "decoder_rope_theta": 100.0, "decoder_rope_dim_ratio": 0.75, "decoder_norm_eps": 1e-5,
}  # fmt: skip

AUDIO = AudioVaeConfig(
    encoder_dim=2, encoder_rates=(2, 4), latent_dim=64, latent_channels=32, num_heads=4, decoder_dim=8,
    decoder_rates=(4, 2), decoder_kernels=(8, 4), resblock_kernels=(3, 5), resblock_dilations=((1, 3), (1, 3)),
    latents_mean=tuple(i / 4 for i in range(32)), latents_std=tuple(1 + i / 32 for i in range(32)),
)  # fmt: skip
AUDIO_STATED = {
    "encoder_dim": 2, "encoder_rates": [2, 4], "latent_dim": 64, "latent_channels": 32, "num_attention_heads": 4,
    "decoder_dim": 8, "decoder_rates": [4, 2], "decoder_kernel_sizes": [8, 4], "resblock_kernel_sizes": [3, 5],
    "resblock_dilation_sizes": [[1, 3], [1, 3]], "sampling_rate": 32000,
}  # fmt: skip

# Small models whose every fact that no shape shows is the released one: they need no configuration beside them.
BARE_DENOISER = DenoiserConfig(
    hidden_size=24, num_layers=2, num_refiner_layers=1, num_heads=2, head_dim=128, ffn_dim=40, text_dim=20, freq_dim=8,
    time_hidden_dim=28, time_dim=12,
)  # fmt: skip
BARE_TEXT = TextEncoderConfig(
    hidden_size=20, num_layers=2, num_heads=2, num_kv_heads=1, head_dim=128, ffn_dim=28, vocab_size=37
)
BARE_VIDEO = VideoVaeConfig(
    block_out_channels=(4, 4, 8, 8, 12, 12), layers_per_block=1, decoder_layers=2, decoder_heads=2, decoder_ffn_mult=3
)
BARE_AUDIO = AudioVaeConfig(encoder_dim=1, latent_dim=64, decoder_dim=128)

Tensors = dict[str, np.ndarray]


def random_tensors(shapes: dict, seed: int) -> Tensors:
    rng = np.random.default_rng(seed)
    return {name: rng.standard_normal(shape, dtype=np.float32) for name, shape in shapes.items()}


def canonical_denoiser(config: DenoiserConfig = DENOISER) -> Tensors:
    exponent = -np.arange(config.rope_freq_dim) / config.rope_freq_dim
    inverse = {"rope.inv_freq": (config.rope_theta**exponent).astype(np.float32)}
    return random_tensors(denoiser_shapes(config), 1) | inverse


def canonical_text(config: TextEncoderConfig = TEXT) -> Tensors:
    return random_tensors(text_encoder_shapes(config), 2)


def canonical_video(config: VideoVaeConfig = VIDEO) -> Tensors:
    return random_tensors(video_vae_shapes(config), 3)


def canonical_audio(config: AudioVaeConfig = AUDIO) -> Tensors:
    return random_tensors(audio_vae_shapes(config), 4)


def statistics(config) -> Tensors:
    return {name: np.array(getattr(config, name), dtype=np.float32) for name in ("latents_mean", "latents_std")}


def per_head(tensors: Tensors, heads: int, marks: tuple[str, ...]) -> Tensors:
    """Fused rows [q; k; v] rearranged head by head, as the original training code stores them."""

    def interleave(fused: np.ndarray) -> np.ndarray:
        thirds = fused.reshape(3, heads, -1, *fused.shape[1:])
        return thirds.swapaxes(0, 1).reshape(fused.shape)

    return {n: interleave(v) if any(mark in n for mark in marks) else v for n, v in tensors.items()}


def _in_diffusers_form(tensors: Tensors, renames: tuple[tuple[str, str], ...], fused: str) -> Tensors:
    """Renamed, q, k and v apart, feed-forward halves as [value; gate]."""
    out = {}
    for name, value in tensors.items():
        for old, new in renames:
            name = name.replace(old, new)
        if fused in name:
            for part, third in zip("qkv", np.split(value, 3), strict=True):
                out[name.replace(fused, f"to_{part}")] = third
        else:
            out[name] = np.concatenate(np.split(value, 2)[::-1]) if ".ff.net.0." in name else value
    return out


def diffusers_denoiser(tensors: Tensors) -> Tensors:
    """Denoiser in diffusers names; equal to diffusers' own conversion (test_shapes.py)."""
    renames = (
        ("token_refiner.blocks.", "token_refiner.refiner_"), ("blocks.", "transformer_blocks."),
        ("token_refiner.refiner_", "token_refiner.refiner_blocks."), ("video_patch_proj.", "proj_in."),
        ("time_embedder.proj_in.", "time_embedder.linear_1."), ("time_embedder.proj_out.", "time_embedder.linear_2."),
        ("audio_patch_proj.", "audio_proj_in."), ("condition_proj.", "context_embedder."),
        ("final_layer.norm.", "norm_out.norm."), ("final_layer.adaln_proj.linear.", "norm_out.linear."),
        ("final_layer.video_out.", "proj_out."), ("final_layer.audio_out.", "audio_proj_out."),
        (".attn.q_norm.", ".attn.norm_q."), (".attn.k_norm.", ".attn.norm_k."), (".attn.out_proj.", ".attn.to_out.0."),
        (".mlp.fc1.", ".ff.net.0.proj."), (".mlp.fc2.", ".ff.net.2."),
    )  # fmt: skip
    stored = {name: value for name, value in tensors.items() if name != "rope.inv_freq"}
    return _in_diffusers_form(stored, renames, "qkv_proj")


def diffusers_video(tensors: Tensors) -> Tensors:
    """Video VAE in diffusers names."""
    renames = (
        ("decoder.x_embedder", "decoder.proj_in"), (".attn.to_out.", ".attn.to_out.0."), (".ff.w1.", ".ff.net.0.proj."),
        (".ff.w2.", ".ff.net.2."), (".nin_shortcut.", ".conv_shortcut."), ("encoder.down.", "encoder.down_blocks."),
        (".block.", ".resnets."), (".downsample.conv", ".downsamplers.0.conv"),
    )  # fmt: skip
    return _in_diffusers_form(tensors, renames, "to_qkv")


def weight_normed_audio(tensors: Tensors, g_name: str = "weight_g", v_name: str = "weight_v") -> Tensors:
    """Every weight-normalised convolution as magnitude and direction, the direction rescaled at random."""
    plain = ("mean_proj", "logs_proj", "dec_in_proj")
    rng, out = np.random.default_rng(9), {}
    for name, value in tensors.items():
        if value.ndim == 3 and name.endswith(".weight") and not name.startswith(plain):
            stem = name.removesuffix("weight")
            norm = np.sqrt((value.astype(np.float64) ** 2).sum(axis=(1, 2), keepdims=True))
            out[stem + g_name] = norm.astype(np.float32)
            out[stem + v_name] = value * rng.uniform(0.5, 2.0, (len(value), 1, 1)).astype(np.float32)
        else:
            out[name] = value
    return out


def save(path: Path, tensors: Tensors, metadata: dict | None = None, dtype: torch.dtype | None = None) -> Path:
    """Write with the safetensors package."""
    path.parent.mkdir(parents=True, exist_ok=True)
    state = {
        name: value if isinstance(value, torch.Tensor) else torch.from_numpy(np.array(value, order="C"))
        for name, value in tensors.items()
    }
    save_file({name: value.to(dtype) if dtype else value for name, value in state.items()}, path, metadata=metadata)
    return path


def save_model(folder: Path) -> Path:
    """A complete toy model in the form of the embedded one."""
    save(folder / "transformer.safetensors", canonical_denoiser(), DENOISER_METADATA)
    text = {f"model.{name}": value for name, value in canonical_text().items()}
    save(folder / "text_encoder.safetensors", text, {"config": json.dumps(TEXT_STATED)})
    video = diffusers_video(canonical_video()) | statistics(VIDEO)
    save(folder / "video_vae.safetensors", video, {"config": json.dumps(VIDEO_STATED)})
    audio = canonical_audio() | statistics(AUDIO)
    save(folder / "audio_vae.safetensors", audio, {"config": json.dumps(AUDIO_STATED)})
    return folder
