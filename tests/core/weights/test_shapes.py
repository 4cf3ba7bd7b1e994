"""Expected shapes against the tensors of the classes that define the model.

Tier: executed reference (diffusers and transformers at toy size). Cannot catch a released file that differs from them.
"""

import numpy as np
import pytest
import torch

from core.model.config import DenoiserConfig, VideoVaeConfig
from core.weights.shapes import denoiser_shapes, text_encoder_shapes, video_vae_shapes
from tests.core.weights import toys


def load_strictly(model, tensors: dict[str, np.ndarray]) -> None:
    model.load_state_dict({name: torch.from_numpy(np.array(value)) for name, value in tensors.items()}, strict=True)


def test_denoiser_tensors_are_exactly_those_of_diffusers():
    diffusers = pytest.importorskip("diffusers")
    load_strictly(
        diffusers.MiniMaxH3Transformer3DModel(**toys.DENOISER_DIFFUSERS),
        toys.diffusers_denoiser(toys.canonical_denoiser()),
    )


@pytest.mark.parametrize("layout", ["stacked", "interleaved"])
def test_toy_conversion_of_the_denoiser_is_that_of_diffusers(layout):
    utilities = pytest.importorskip("diffusers.loaders.single_file_utils")
    tensors = toys.canonical_denoiser()
    stored = tensors if layout == "stacked" else toys.per_head(tensors, 4, ("qkv_proj",))
    state = {name: torch.from_numpy(value) for name, value in stored.items()}
    theirs = utilities.convert_minimax_h3_transformer_checkpoint_to_diffusers(
        state, toys.DENOISER_DIFFUSERS, qkv_layout=layout
    )
    ours = toys.diffusers_denoiser(tensors)
    assert set(theirs) == set(ours)
    for name, value in ours.items():
        np.testing.assert_array_equal(theirs[name].numpy(), value, err_msg=name)


def test_video_vae_tensors_are_exactly_those_of_diffusers():
    diffusers = pytest.importorskip("diffusers")
    load_strictly(diffusers.AutoencoderKLMiniMaxH3(**toys.VIDEO_STATED), toys.diffusers_video(toys.canonical_video()))


def test_audio_vae_tensors_are_exactly_those_of_diffusers():
    diffusers = pytest.importorskip("diffusers")
    model = diffusers.AutoencoderKLMiniMaxH3Audio(**toys.AUDIO_STATED)
    load_strictly(model, toys.weight_normed_audio(toys.canonical_audio()))


def test_text_encoder_tensors_are_those_of_transformers_without_the_final_norm():
    transformers = pytest.importorskip("transformers")
    config = transformers.models.qwen3_vl.configuration_qwen3_vl.Qwen3VLTextConfig(
        **{key: value for key, value in toys.TEXT_STATED.items() if key not in ("rope_theta", "mrope_section")}
    )
    model = transformers.models.qwen3_vl.modeling_qwen3_vl.Qwen3VLTextModel(config)
    theirs = {name: tuple(value.shape) for name, value in model.state_dict().items()}
    assert theirs.pop("norm.weight") == (20,)
    assert text_encoder_shapes(toys.TEXT) == theirs


def test_released_denoiser_has_the_published_number_of_tensors_and_parameters():
    shapes = denoiser_shapes(DenoiserConfig())
    assert len(shapes) + 1 == 535  # the files also store rope.inv_freq
    assert sum(int(np.prod(shape)) for shape in shapes.values()) == 33_122_992_896


def test_curve_form_replaces_the_time_embedder():
    shapes = denoiser_shapes(DenoiserConfig(curve_points=1025, time_dim=8))
    assert len(shapes) + 1 == 532
    assert shapes["adaln_t_table"] == (1025, 8) and shapes["blocks.49.adaln_proj.linear.weight"] == (96768, 8)
    assert not [name for name in shapes if name.startswith("time_embedder")]


def test_released_video_vae_has_the_published_number_of_tensors():
    shapes = video_vae_shapes(VideoVaeConfig())
    assert len(shapes) + 1 == 560  # the files also store the unused decoder.mask_token
    decoder = sum(int(np.prod(s)) for n, s in shapes.items() if n.startswith("decoder."))
    assert decoder == 2_423_530_496
