"""A component's configuration: what the file states, completed from tensor shapes, then checked against every shape.

The traps: the same fact has another key in original and diffusers configurations; and a stated number that disagrees
with the tensors would fail deep inside a forward pass, so every tensor is compared first. Facts that no shape shows
(rotary base, norm epsilons, rates, heads of the sound model) fall back to the released model's.
Proof: tests/core/weights/test_configs.py.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from core import constants as c
from core.errors import CheckpointError
from core.model.config import AudioVaeConfig, DenoiserConfig, TextEncoderConfig, VideoVaeConfig
from core.weights.shapes import Shapes

Config = DenoiserConfig | TextEncoderConfig | VideoVaeConfig | AudioVaeConfig
Stated = Mapping[str, object]
MAX_LISTED = 3  # faults written out in one message


def _tuple(value) -> tuple:
    return tuple(_tuple(item) if isinstance(item, list | tuple) else item for item in value)


# published key -> (field of the configuration, conversion)
DENOISER_KEYS: dict[str, tuple[str, Callable]] = {
    "hidden_size": ("hidden_size", int), "num_layers": ("num_layers", int),
    "token_refiner_num_layers": ("num_refiner_layers", int), "num_refiner_layers": ("num_refiner_layers", int),
    "num_attention_heads": ("num_heads", int), "attention_head_dim": ("head_dim", int),
    "ffn_hidden_size": ("ffn_dim", int), "ffn_dim": ("ffn_dim", int), "text_dim": ("text_dim", int),
    "timestep_input_dim": ("freq_dim", int), "freq_dim": ("freq_dim", int),
    "time_embed_hidden_size": ("time_hidden_dim", int), "time_embed_hidden_dim": ("time_hidden_dim", int),
    "time_embed_dim": ("time_dim", int), "rope_inv_freq_len": ("rope_freq_dim", int),
    "rope_freq_dim": ("rope_freq_dim", int), "rope_theta": ("rope_theta", float), "norm_eps": ("norm_eps", float),
    "qk_norm_eps": ("qk_norm_eps", float), "final_norm_eps": ("final_norm_eps", float),
    "video_shift": ("video_shift", float), "audio_shift": ("audio_shift", float),
    "default_steps": ("default_steps", int),
}  # fmt: skip
TEXT_ENCODER_KEYS: dict[str, tuple[str, Callable]] = {
    "hidden_size": ("hidden_size", int), "num_hidden_layers": ("num_layers", int),
    "num_attention_heads": ("num_heads", int), "num_key_value_heads": ("num_kv_heads", int),
    "head_dim": ("head_dim", int), "intermediate_size": ("ffn_dim", int), "rms_norm_eps": ("rms_norm_eps", float),
    "rope_theta": ("rope_theta", float), "mrope_section": ("mrope_section", _tuple), "vocab_size": ("vocab_size", int),
}  # fmt: skip
VIDEO_VAE_KEYS: dict[str, tuple[str, Callable]] = {
    "block_out_channels": ("block_out_channels", _tuple), "layers_per_block": ("layers_per_block", int),
    "spatial_downsample_factors": ("spatial_downsample", _tuple),
    "temporal_downsample_factors": ("temporal_downsample", _tuple), "norm_num_groups": ("norm_groups", int),
    "norm_eps": ("norm_eps", float), "decoder_num_layers": ("decoder_layers", int),
    "decoder_num_attention_heads": ("decoder_heads", int), "decoder_attention_head_dim": ("decoder_head_dim", int),
    "decoder_ffn_mult": ("decoder_ffn_mult", int), "decoder_num_register_tokens": ("decoder_registers", int),
    "decoder_rope_theta": ("decoder_rope_theta", float), "decoder_norm_eps": ("decoder_eps", float),
    "latents_mean": ("latents_mean", _tuple), "latents_std": ("latents_std", _tuple),
}  # fmt: skip
AUDIO_VAE_KEYS: dict[str, tuple[str, Callable]] = {
    "encoder_dim": ("encoder_dim", int), "encoder_rates": ("encoder_rates", _tuple),
    "latent_dim": ("latent_dim", int), "num_attention_heads": ("num_heads", int),
    "decoder_dim": ("decoder_dim", int), "decoder_rates": ("decoder_rates", _tuple),
    "decoder_kernel_sizes": ("decoder_kernels", _tuple), "resblock_kernel_sizes": ("resblock_kernels", _tuple),
    "resblock_dilation_sizes": ("resblock_dilations", _tuple), "sampling_rate": ("sample_rate_hz", int),
    "latents_mean": ("latents_mean", _tuple), "latents_std": ("latents_std", _tuple),
}  # fmt: skip
DEFAULT_ROTARY_SHARE = 0.75  # `decoder_rope_dim_ratio` of the released video VAE


@dataclass(frozen=True, slots=True)
class ShapeView:
    """Shapes of the tensors that are there; a missing one gives None, and the shape check reports it later."""

    shapes: Shapes

    def axis(self, name: str, axis: int) -> int | None:
        shape = self.shapes.get(name)
        return shape[axis] if shape is not None and -len(shape) <= axis < len(shape) else None

    def count(self, template: str) -> int:
        """One more than the largest number that stands for `#` in names starting with `template`, 0 without any."""
        pattern = re.compile(re.escape(template).replace(r"\#", r"(\d+)") + ".*")
        return max((int(match[1]) + 1 for match in map(pattern.match, self.shapes) if match), default=0)


def _ratio(whole: int | None, part: int | None) -> int | None:
    return whole // part if whole and part else None


def derive_denoiser(view: ShapeView, stated: dict) -> dict:
    """What the shapes say about the denoiser."""
    head_dim = view.axis("blocks.0.attn.q_norm.weight", 0)
    return {
        "hidden_size": view.axis("video_patch_proj.weight", 0),
        "num_layers": view.count("blocks.#.attn.qkv_proj"),
        "num_refiner_layers": view.count("token_refiner.blocks.#."),
        "num_heads": _ratio(view.axis("blocks.0.attn.out_proj.weight", 1), head_dim),
        "head_dim": head_dim,
        "ffn_dim": view.axis("blocks.0.mlp.fc2.weight", 1),
        "text_dim": view.axis("condition_proj.weight", 1),
        "freq_dim": view.axis("time_embedder.proj_in.weight", 1),
        "time_hidden_dim": view.axis("time_embedder.proj_in.weight", 0),
        "time_dim": view.axis("blocks.0.adaln_proj.linear.weight", 1),
        "rope_freq_dim": view.axis("rope.inv_freq", 0),
        "curve_points": view.axis("adaln_t_table", 0),
    }


def derive_text_encoder(view: ShapeView, stated: dict) -> dict:
    """What the shapes say about the text encoder."""
    head_dim = view.axis("layers.0.self_attn.q_norm.weight", 0)
    return {
        "hidden_size": view.axis("embed_tokens.weight", 1),
        "vocab_size": view.axis("embed_tokens.weight", 0),
        "num_layers": view.count("layers.#."),
        "num_heads": _ratio(view.axis("layers.0.self_attn.q_proj.weight", 0), head_dim),
        "num_kv_heads": _ratio(view.axis("layers.0.self_attn.k_proj.weight", 0), head_dim),
        "head_dim": head_dim,
        "ffn_dim": view.axis("layers.0.mlp.gate_proj.weight", 0),
    }


def derive_video_vae(view: ShapeView, stated: dict) -> dict:
    """What the shapes say about the video VAE; a head's width is not among it."""
    levels = view.count("encoder.down.#.block.0.")
    dim = view.axis("decoder.x_embedder.weight", 0)
    head_dim = stated.get("decoder_head_dim", VideoVaeConfig().decoder_head_dim)
    return {
        "block_out_channels": _known(view.axis(f"encoder.down.{i}.block.0.conv1.weight", 0) for i in range(levels)),
        "layers_per_block": view.count("encoder.down.0.block.#.") or None,
        "decoder_layers": view.count("decoder.transformer_blocks.#."),
        "decoder_heads": _ratio(dim, head_dim),
        "decoder_ffn_mult": _ratio(view.axis("decoder.transformer_blocks.0.ff.w2.weight", 1), dim),
        "decoder_registers": view.axis("decoder.register_tokens", 1),
        "decoder_rotary_dim": int(head_dim * DEFAULT_ROTARY_SHARE),
    }


def derive_audio_vae(view: ShapeView, stated: dict) -> dict:
    """What the shapes say about the audio VAE; heads, decoder rates and dilations are not among it."""
    stages = view.count("decoder.ups.#.")
    branches = _ratio(view.count("decoder.resblocks.#."), stages) or 0
    steps = [view.count(f"decoder.resblocks.{index}.convs1.#.") for index in range(branches)]
    rates = range(1, view.count("encoder.block.#.") - 2)  # behind them a snake and the last convolution
    return {
        "encoder_dim": view.axis("encoder.block.0.weight", 0),
        "encoder_rates": _known(_ratio(view.axis(f"encoder.block.{i}.block.4.weight", 2), 2) for i in rates),
        "latent_dim": view.axis("dec_in_proj.weight", 0),
        "decoder_dim": view.axis("decoder.conv_pre.weight", 0),
        "decoder_kernels": _known(view.axis(f"decoder.ups.{i}.0.weight", 2) for i in range(stages)),
        "resblock_kernels": _known(view.axis(f"decoder.resblocks.{i}.convs1.0.weight", 2) for i in range(branches)),
        "resblock_dilations": tuple(tuple(2 * step + 1 for step in range(count)) for count in steps) or None,
    }


def _known(values) -> tuple | None:
    """The values as a tuple, or None when one is missing or there is none."""
    found = tuple(values)
    return None if not found or None in found else found


def stated_fields(keys: dict[str, tuple[str, Callable]], stated: Stated, origin: str) -> dict:
    """Fields of a configuration that `stated` names; CheckpointError naming the key when a value makes no sense."""
    fields = {}
    for key, (name, convert) in keys.items():
        if stated.get(key) is None:
            continue
        try:
            fields[name] = convert(stated[key])
        except (TypeError, ValueError) as error:
            raise CheckpointError(f"{origin}: {key} is {stated[key]!r}.") from error
    return fields


def flat_config(stated: Mapping) -> dict:
    """A published configuration with its nested parts (`text_config`, rope settings) lifted to the top."""
    flat = {**stated, **(stated.get("text_config") or {})}
    for nested in ("rope_scaling", "rope_parameters"):
        flat |= flat.get(nested) or {}
    return flat


def check_shapes(found: Shapes, expected: Shapes, origin: str) -> None:
    """Every expected tensor is there with its shape. raises: CheckpointError with the first faults and their number."""
    faults = [
        f"{name} is missing" if name not in found else f"{name} is {list(found[name])}, expected {list(shape)}"
        for name, shape in expected.items()
        if found.get(name) != shape
    ]
    if faults:
        more = f" and {len(faults) - MAX_LISTED} more" if len(faults) > MAX_LISTED else ""
        raise CheckpointError(f"{origin}: {'; '.join(faults[:MAX_LISTED])}{more}.")


def check_denoiser(config: DenoiserConfig, stored_inverse_frequencies: np.ndarray | None, origin: str) -> None:
    """Facts of the denoiser that no shape shows."""
    rotated = 6 * config.rope_freq_dim
    if rotated > config.head_dim:
        raise CheckpointError(
            f"{origin}: {config.rope_freq_dim} rotary frequencies turn {rotated} channels, "
            f"a head has {config.head_dim}."
        )
    if stored_inverse_frequencies is not None:
        implied = config.rope_theta ** (-np.arange(config.rope_freq_dim) / config.rope_freq_dim)
        if not np.allclose(stored_inverse_frequencies, implied, rtol=1e-2):  # may have been stored in bfloat16
            raise CheckpointError(
                f"{origin}: rope.inv_freq starts {stored_inverse_frequencies[:3].tolist()}, "
                f"expected {implied[:3].tolist()} of the base {config.rope_theta:g}."
            )


def check_text_encoder(config: TextEncoderConfig, origin: str) -> None:
    """The rotary sections cover half a head."""
    if len(config.mrope_section) != 3 or sum(config.mrope_section) != config.head_dim // 2:
        raise CheckpointError(
            f"{origin}: mrope_section is {list(config.mrope_section)}, expected three numbers of the sum "
            f"{config.head_dim // 2}."
        )


def check_latent_statistics(config: VideoVaeConfig | AudioVaeConfig, channels: int, origin: str) -> None:
    """One mean and one deviation per latent channel."""
    for name in ("latents_mean", "latents_std"):
        if len(getattr(config, name)) != channels:
            raise CheckpointError(f"{origin}: {name} has {len(getattr(config, name))} values, expected {channels}.")


def check_audio_vae(config: AudioVaeConfig, origin: str) -> None:
    """Lists that belong together have equal lengths; a stage makes the sound exactly `rate` times longer."""
    rates, kernels = config.decoder_rates, config.decoder_kernels
    longer = [kernel - rate for rate, kernel in zip(rates, kernels, strict=False)]
    if len(rates) != len(kernels) or any(extra < 0 or extra % 2 for extra in longer):
        raise CheckpointError(f"{origin}: decoder rates {list(rates)} do not fit the kernels {list(kernels)}.")
    if len(config.resblock_dilations) != len(config.resblock_kernels):
        raise CheckpointError(
            f"{origin}: {len(config.resblock_dilations)} dilation lists for {len(config.resblock_kernels)} kernels."
        )
    if np.prod(rates) != np.prod(config.encoder_rates):
        raise CheckpointError(
            f"{origin}: decoder rates {list(rates)} and encoder rates {list(config.encoder_rates)} disagree."
        )
    check_latent_statistics(config, c.AUDIO_LATENT_CHANNELS, origin)
