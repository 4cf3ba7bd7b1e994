"""The four parts of a model: how to recognise each by its tensor names, and everything needed to open it.

The trap: file names, repository names and GGUF architecture strings say nothing reliable (the published denoiser GGUFs
have no architecture, or claim another model's), so only tensor names decide.
Proof: tests/core/weights/test_components.py.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from core.model.config import AudioVaeConfig, DenoiserConfig, TextEncoderConfig, VideoVaeConfig
from core.weights import configs, names, shapes
from core.weights.configs import Config


class ComponentKind(Enum):
    """A part of a model; the value is how messages call it."""

    DENOISER = "denoiser"
    TEXT_ENCODER = "text encoder"
    VIDEO_VAE = "video VAE"
    AUDIO_VAE = "audio VAE"


@dataclass(frozen=True, slots=True, kw_only=True)
class ComponentSpec:
    """How one kind of component is named, configured and checked."""

    table: names.NameTable
    config_class: type[Config]
    keys: dict[str, tuple[str, Callable]]
    derive: Callable[[configs.ShapeView, dict], dict]
    shapes: Callable[[Config], shapes.Shapes]


SPECS = {
    ComponentKind.DENOISER: ComponentSpec(
        table=names.NameTable.compile(names.DENOISER), config_class=DenoiserConfig, keys=configs.DENOISER_KEYS,
        derive=configs.derive_denoiser, shapes=shapes.denoiser_shapes,
    ),
    ComponentKind.TEXT_ENCODER: ComponentSpec(
        table=names.NameTable.compile(names.TEXT_ENCODER), config_class=TextEncoderConfig,
        keys=configs.TEXT_ENCODER_KEYS, derive=configs.derive_text_encoder, shapes=shapes.text_encoder_shapes,
    ),
    ComponentKind.VIDEO_VAE: ComponentSpec(
        table=names.NameTable.compile(names.VIDEO_VAE), config_class=VideoVaeConfig, keys=configs.VIDEO_VAE_KEYS,
        derive=configs.derive_video_vae, shapes=shapes.video_vae_shapes,
    ),
    ComponentKind.AUDIO_VAE: ComponentSpec(
        table=names.NameTable.compile(names.AUDIO_VAE), config_class=AudioVaeConfig, keys=configs.AUDIO_VAE_KEYS,
        derive=configs.derive_audio_vae, shapes=shapes.audio_vae_shapes,
    ),
}  # fmt: skip

_ADAPTER_MARKS = (".lora_A", ".lora_B", ".lora_down", ".lora_up", "lokr_", ".diff")
_VIT = "decoder.transformer_blocks.0.attn"


def identify(published: set[str]) -> ComponentKind | str:
    """The component that tensors of these names make up, or what the file holds instead."""
    found = {names.without_prefix(name) for name in published}
    if any(mark in name for name in found for mark in _ADAPTER_MARKS):
        return "a LoRA adapter"
    if "video_patch_proj.weight" in found or {"proj_in.weight", "audio_proj_in.weight"} <= found:
        return _denoiser_variant(found)
    if any(name.endswith("layers.0.self_attn.q_proj.weight") for name in found) or "blk.0.attn_q.weight" in found:
        return ComponentKind.TEXT_ENCODER
    if f"{_VIT}.to_qkv.weight" in found or f"{_VIT}.to_q.weight" in found:
        return ComponentKind.VIDEO_VAE
    starts = {name.split(".weight")[0].split(".parametrizations")[0] for name in found}
    if {"decoder.conv_pre", "encoder.block.0"} <= starts:
        return ComponentKind.AUDIO_VAE
    if any(name.startswith(("v.blk.", "mm.0.")) for name in found):
        return "the vision part of a text encoder"
    return "no part of a MiniMax-H3 model"


def _denoiser_variant(found: set[str]) -> ComponentKind | str:
    """The denoiser, or the name of a relative that needs other code."""
    if "video_patch_proj.weight" in found and "audio_patch_proj.weight" not in found:
        return "the image-only relative MiniMax-H3-Image"
    if "blocks.0.attn.to_gate_compress.weight" in found:
        return "a sparse-attention variant of the denoiser"
    if "blocks.0.attn.q_proj.weight" in found:
        return "a denoiser with separate query, key and value names"
    if any(name.startswith("control_") for name in found):
        return "a control branch of the denoiser"
    return ComponentKind.DENOISER
