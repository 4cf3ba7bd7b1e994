"""A component is recognised by its tensor names alone.

Tier: closed form over published name lists. Cannot catch a variant with the same names and other mathematics.
"""

import pytest

from core.weights.components import ComponentKind, identify
from tests.core.weights import toys

DENOISER = set(toys.canonical_denoiser())
AUDIO = set(toys.canonical_audio())


@pytest.mark.parametrize(
    ("names", "kind"),
    [
        (DENOISER, ComponentKind.DENOISER),
        ({f"model.diffusion_model.{name}" for name in DENOISER}, ComponentKind.DENOISER),
        (DENOISER | {"adaln_t_table"}, ComponentKind.DENOISER),
        (set(toys.diffusers_denoiser(toys.canonical_denoiser())), ComponentKind.DENOISER),
        ({f"model.{name}" for name in toys.canonical_text()}, ComponentKind.TEXT_ENCODER),
        ({f"model.language_model.{name}" for name in toys.canonical_text()}, ComponentKind.TEXT_ENCODER),
        ({"token_embd.weight", "blk.0.attn_q.weight"}, ComponentKind.TEXT_ENCODER),
        (set(toys.canonical_video()), ComponentKind.VIDEO_VAE),
        (set(toys.diffusers_video(toys.canonical_video())), ComponentKind.VIDEO_VAE),
        (AUDIO, ComponentKind.AUDIO_VAE),
        (set(toys.weight_normed_audio(toys.canonical_audio())), ComponentKind.AUDIO_VAE),
        (
            set(
                toys.weight_normed_audio(
                    toys.canonical_audio(), "parametrizations.weight.original0", "parametrizations.weight.original1"
                )
            ),
            ComponentKind.AUDIO_VAE,
        ),
    ],
)
def test_published_names_are_recognised(names, kind):
    assert identify(names) is kind


@pytest.mark.parametrize(
    ("names", "reason"),
    [
        ({"blocks.0.attn.out_proj.lora_A.weight"}, "a LoRA adapter"),
        ({"lora_unet_blocks_3_attn_qkv_proj.lora_down.weight"}, "a LoRA adapter"),
        (DENOISER - {"audio_patch_proj.weight"}, "the image-only relative MiniMax-H3-Image"),
        (DENOISER | {"blocks.0.attn.to_gate_compress.weight"}, "a sparse-attention variant of the denoiser"),
        (DENOISER | {"blocks.0.attn.q_proj.weight"}, "a denoiser with separate query, key and value names"),
        (DENOISER | {"control_blocks.0.norm1.weight"}, "a control branch of the denoiser"),
        ({"v.blk.0.attn_qkv.weight", "mm.0.weight"}, "the vision part of a text encoder"),
        ({"encoder.conv.weight", "x"}, "no part of a MiniMax-H3 model"),
        (set(), "no part of a MiniMax-H3 model"),
    ],
)
def test_other_files_are_named(names, reason):
    assert identify(names) == reason
