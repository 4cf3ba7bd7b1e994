"""Tiny video and audio autoencoders of diffusers with hashed weights, and their export to canonical tensor names.

Every weight is a function of its diffusers name, so a failure repeats exactly and no file is needed. Sizes avoid lucky
coincidences: heads x head_dim, feed-forward, groups and level widths are all different from the released ones and from
each other, and T, H, W differ in the tests. Canonical means the names of the released file, with `to_qkv` rows as
[q; k; v], `ff.w1` rows as [gate; value], and weight norm folded into `weight`.
"""

import math
from functools import cache

import numpy as np
import torch
from diffusers import AutoencoderKLMiniMaxH3, AutoencoderKLMiniMaxH3Audio

from core.kernels.backend import Backend
from core.kernels.provider import DictSource, Weights
from core.model.config import AudioVaeConfig, VideoVaeConfig
from tests.oracles.portable import hash_uniform

VIDEO = VideoVaeConfig(
    block_out_channels=(8, 12, 12, 16, 16, 20),
    norm_groups=4,
    decoder_layers=3,
    decoder_heads=3,
    decoder_head_dim=24,
    decoder_ffn_mult=5,
    decoder_registers=3,
    decoder_rope_theta=70.0,
    decoder_rotary_dim=18,
    tile_px=48,
    tile_overlap_px=16,
)
AUDIO = AudioVaeConfig(encoder_dim=4, latent_dim=256, num_heads=4, decoder_dim=128)


def hashed(name: str, *shape: int) -> np.ndarray:
    """float32 in [-1, 1), a function of `name`."""
    return hash_uniform(name, math.prod(shape)).reshape(shape)


def _scaled(name: str, parameter: torch.Tensor) -> np.ndarray:
    """Hashed values in the range that this kind of parameter has in trained models."""
    values, leaf = hashed(name, *parameter.shape), name.rsplit(".", 1)[-1]
    if leaf in ("scale1", "scale2"):
        return 0.5 + 0.25 * values
    if leaf == "weight_g":
        return 0.8 + 0.2 * values
    if leaf in ("alpha", "beta"):
        return (1.0 if parameter.ndim == 3 else 0.0) + 0.25 * values
    if "norm" in name and leaf == "weight":
        return 1.0 + 0.25 * values
    if leaf == "register_tokens":
        return values
    if parameter.ndim > 1:
        return values * np.float32(math.sqrt(3.0 / parameter[0].numel()))
    return 0.1 * values


def _fill(model: torch.nn.Module) -> torch.nn.Module:
    for name, parameter in model.named_parameters():
        parameter.data.copy_(torch.from_numpy(np.asarray(_scaled(name, parameter), dtype=np.float32)))
    return model.requires_grad_(False).eval()


@cache
def video_vae(config: VideoVaeConfig = VIDEO) -> AutoencoderKLMiniMaxH3:
    """The diffusers module of `config`, tiles included."""
    vae = AutoencoderKLMiniMaxH3(
        block_out_channels=config.block_out_channels,
        layers_per_block=config.layers_per_block,
        spatial_downsample_factors=config.spatial_downsample,
        temporal_downsample_factors=config.temporal_downsample,
        norm_num_groups=config.norm_groups,
        latent_channels=config.latent_channels,
        decoder_num_layers=config.decoder_layers,
        decoder_num_attention_heads=config.decoder_heads,
        decoder_attention_head_dim=config.decoder_head_dim,
        decoder_num_register_tokens=config.decoder_registers,
        decoder_ffn_mult=config.decoder_ffn_mult,
        decoder_rope_theta=config.decoder_rope_theta,
        decoder_rope_dim_ratio=config.decoder_rotary_dim / config.decoder_head_dim,
        latents_mean=config.latents_mean,
        latents_std=config.latents_std,
    )
    vae.enable_tiling(config.tile_px, config.tile_px, config.tile_overlap_px, config.tile_overlap_px)
    return _fill(vae)


@cache
def audio_vae(config: AudioVaeConfig = AUDIO) -> AutoencoderKLMiniMaxH3Audio:
    vae = _fill(
        AutoencoderKLMiniMaxH3Audio(
            encoder_dim=config.encoder_dim,
            encoder_rates=config.encoder_rates,
            latent_dim=config.latent_dim,
            latent_channels=config.latent_channels,
            num_attention_heads=config.num_heads,
            decoder_dim=config.decoder_dim,
            decoder_rates=config.decoder_rates,
            decoder_kernel_sizes=config.decoder_kernels,
            resblock_kernel_sizes=config.resblock_kernels,
            resblock_dilation_sizes=config.resblock_dilations,
        )
    )
    vae.decoder.conv_post.weight_g.fill_(0.05)  # keeps the sound off the clamp, where differences would vanish
    return vae


VIDEO_RENAMES = (
    ("decoder.proj_in.", "decoder.x_embedder."),
    (".attn.to_out.0.", ".attn.to_out."),
    (".ff.net.0.proj.", ".ff.w1."),
    (".ff.net.2.", ".ff.w2."),
    ("encoder.down_blocks.", "encoder.down."),
    (".resnets.", ".block."),
    (".conv_shortcut.", ".nin_shortcut."),
    (".downsamplers.0.", ".downsample."),
)


def canonical_video(state: dict[str, torch.Tensor]) -> dict[str, np.ndarray]:
    """Canonical tensors of a diffusers state dict."""
    tensors, thirds = {}, {}
    for name, value in state.items():
        for old, new in VIDEO_RENAMES:
            name = name.replace(old, new)
        for third in "qkv":
            if f".attn.to_{third}." in name:
                thirds.setdefault(name.replace(f"to_{third}.", "to_qkv."), {})[third] = value
                break
        else:
            swapped = torch.cat(value.chunk(2)[::-1]) if ".ff.w1." in name else value  # [value; gate] to [gate; value]
            tensors[name] = swapped.numpy()
    for name, parts in thirds.items():
        tensors[name] = torch.cat([parts[third] for third in "qkv"]).numpy()
    return tensors


def canonical_audio(state: dict[str, torch.Tensor]) -> dict[str, np.ndarray]:
    """Canonical tensors of a diffusers state dict: `weight_g`, `weight_v` folded, everything else as it is."""
    tensors = {}
    for name, value in state.items():
        if name.endswith("weight_v"):
            folded = torch._weight_norm(value, state[name[:-1] + "g"], 0)
            tensors[name.removesuffix("_v")] = folded.numpy()
        elif not name.endswith("weight_g"):
            tensors[name] = value.numpy()
    return tensors


def video_weights(backend: Backend, config: VideoVaeConfig = VIDEO) -> Weights:
    return Weights(DictSource(canonical_video(video_vae(config).state_dict())), backend)


def audio_weights(backend: Backend, config: AudioVaeConfig = AUDIO) -> Weights:
    return Weights(DictSource(canonical_audio(audio_vae(config).state_dict())), backend)


def vae_space(config: VideoVaeConfig | AudioVaeConfig, latent: np.ndarray) -> torch.Tensor:
    """latent * std + mean over axis 1 of [n, channels, ...], the pipeline's step before `decode`."""
    shape = (1, -1, *[1] * (latent.ndim - 2))
    mean, std = (torch.tensor(values).view(shape) for values in (config.latents_mean, config.latents_std))
    return torch.from_numpy(latent) * std + mean


def channels_first(pictures: np.ndarray) -> torch.Tensor:
    """[1, channels, frames, h, w] of [frames, h, w, channels]."""
    return torch.from_numpy(np.ascontiguousarray(np.moveaxis(pictures, -1, 0)))[None]


def channels_last(pictures: torch.Tensor) -> np.ndarray:
    """[frames, h, w, channels] of [1, channels, frames, h, w]."""
    return np.ascontiguousarray(np.moveaxis(pictures[0].numpy(), 0, -1))
