"""Configurations from what a file states, from shapes, and the checks between the two.

Tier: closed form. Cannot catch a stated number that no shape shows and that is wrong (a norm epsilon, a rotary base
without stored frequencies).
"""

from dataclasses import fields, replace

import numpy as np
import pytest

from core.errors import CheckpointError
from core.weights import configs
from core.weights.components import SPECS, ComponentKind
from tests.core.weights import toys

CASES = {
    ComponentKind.DENOISER: (toys.DENOISER, toys.DENOISER_STATED, toys.canonical_denoiser()),
    ComponentKind.TEXT_ENCODER: (toys.TEXT, toys.TEXT_STATED, toys.canonical_text()),
    ComponentKind.VIDEO_VAE: (toys.VIDEO, toys.VIDEO_STATED, toys.canonical_video()),
    ComponentKind.AUDIO_VAE: (toys.AUDIO, toys.AUDIO_STATED, toys.canonical_audio()),
}
NOT_IN_SHAPES = {
    ComponentKind.DENOISER: {
        "rope_theta", "norm_eps", "qk_norm_eps", "final_norm_eps", "video_shift", "audio_shift", "default_steps"
    },
    ComponentKind.TEXT_ENCODER: {"rms_norm_eps", "rope_theta", "mrope_section"},
    ComponentKind.VIDEO_VAE: {
        "spatial_downsample", "temporal_downsample", "norm_groups", "decoder_heads", "decoder_head_dim",
        "decoder_rotary_dim", "latents_mean", "latents_std",
    },
    ComponentKind.AUDIO_VAE: {"decoder_rates", "num_heads", "latents_mean", "latents_std"},
}  # fmt: skip


@pytest.mark.parametrize("kind", ComponentKind)
def test_every_other_field_is_read_from_shapes(kind):
    config, _, tensors = CASES[kind]
    derived = SPECS[kind].derive(configs.ShapeView({name: v.shape for name, v in tensors.items()}), {})
    for field in fields(config):
        if field.name not in NOT_IN_SHAPES[kind]:
            default = getattr(type(config)(), field.name)
            assert (derived.get(field.name) or default) == getattr(config, field.name), field.name


@pytest.mark.parametrize("kind", ComponentKind)
def test_stated_keys_give_their_fields(kind):
    config, stated, _ = CASES[kind]
    got = configs.stated_fields(SPECS[kind].keys, stated, "f")
    assert got and all(getattr(config, name) == value for name, value in got.items())


def test_diffusers_keys_give_the_same_denoiser():
    original = configs.stated_fields(configs.DENOISER_KEYS, toys.DENOISER_STATED, "f")
    assert configs.stated_fields(configs.DENOISER_KEYS, toys.DENOISER_DIFFUSERS, "f") == original


def test_nested_text_configuration_is_flattened():
    nested = {
        "hidden_size": 1, "vision_config": {"hidden_size": 2},
        "text_config": {"hidden_size": 20, "rope_parameters": {"rope_theta": 7.0, "mrope_section": [2, 1, 1]}},
        "rope_scaling": None,
    }  # fmt: skip
    got = configs.stated_fields(configs.TEXT_ENCODER_KEYS, configs.flat_config(nested), "f")
    assert got == {"hidden_size": 20, "rope_theta": 7.0, "mrope_section": (2, 1, 1)}


def test_a_senseless_value_is_named():
    with pytest.raises(CheckpointError, match="f: num_layers is 'many'"):
        configs.stated_fields(configs.DENOISER_KEYS, {"num_layers": "many"}, "f")


def test_shape_faults_are_listed_with_got_and_expected():
    expected = {f"t{i}": (2, i) for i in range(6)}
    found = {"t0": (2, 0), "t1": (9,)}
    with pytest.raises(CheckpointError) as caught:
        configs.check_shapes(found, expected, "m.gguf")
    assert caught.value.message == (
        "m.gguf: t1 is [9], expected [2, 1]; t2 is missing; t3 is missing and 2 more."
    )
    configs.check_shapes({**expected, "extra": (1,)}, expected, "m.gguf")


def test_a_gap_in_the_blocks_is_a_missing_tensor():
    tensors = {name: v.shape for name, v in toys.canonical_text(replace(toys.TEXT, num_layers=4)).items()}
    gap = {name: shape for name, shape in tensors.items() if not name.startswith("layers.2.")}
    derived = SPECS[ComponentKind.TEXT_ENCODER].derive(configs.ShapeView(gap), {})
    assert derived["num_layers"] == 4


def test_rotary_facts_of_the_denoiser_are_checked():
    configs.check_denoiser(toys.DENOISER, np.array([1.0, 0.1]), "f")
    message = r"f: rope.inv_freq starts \[1.0, 0.01\], expected \[1.0, 0.1\] of the base 100"
    with pytest.raises(CheckpointError, match=message):
        configs.check_denoiser(toys.DENOISER, np.array([1.0, 0.01]), "f")
    with pytest.raises(CheckpointError, match="3 rotary frequencies turn 18 channels, a head has 16"):
        configs.check_denoiser(replace(toys.DENOISER, rope_freq_dim=3), None, "f")


def test_rotary_sections_cover_half_a_head():
    configs.check_text_encoder(toys.TEXT, "f")
    with pytest.raises(CheckpointError, match=r"mrope_section is \[24, 20, 20\], expected three numbers of the sum 4"):
        configs.check_text_encoder(replace(toys.TEXT, mrope_section=(24, 20, 20)), "f")


def test_sound_lists_belong_together():
    configs.check_audio_vae(toys.AUDIO, "f")
    with pytest.raises(CheckpointError, match=r"decoder rates \[4, 3\] do not fit the kernels \[8, 4\]"):
        configs.check_audio_vae(replace(toys.AUDIO, decoder_rates=(4, 3)), "f")
    with pytest.raises(CheckpointError, match="1 dilation lists for 2 kernels"):
        configs.check_audio_vae(replace(toys.AUDIO, resblock_dilations=((1,),)), "f")
    with pytest.raises(CheckpointError, match=r"decoder rates \[4, 2\] and encoder rates \[2, 5\] disagree"):
        configs.check_audio_vae(replace(toys.AUDIO, encoder_rates=(2, 5)), "f")
    with pytest.raises(CheckpointError, match="latents_std has 3 values, expected 32"):
        configs.check_audio_vae(replace(toys.AUDIO, latents_std=(1.0, 1.0, 1.0)), "f")
