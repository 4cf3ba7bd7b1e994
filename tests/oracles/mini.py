"""The embedded model inside the diffusers and transformers classes, read with the safetensors package.

The denoiser goes through diffusers' own importer; the VAE names are translated by the tests, apart from the loader
under test.
"""

import json
from pathlib import Path
from types import SimpleNamespace

import torch
from diffusers import AutoencoderKLMiniMaxH3, AutoencoderKLMiniMaxH3Audio, MiniMaxH3Transformer3DModel
from diffusers.loaders.single_file_utils import convert_minimax_h3_transformer_checkpoint_to_diffusers
from safetensors import safe_open
from transformers import Qwen3VLTextConfig, Qwen3VLTextModel

from tests.core.weights.toys import diffusers_video

Tensors = dict[str, torch.Tensor]


def read(path: Path) -> tuple[Tensors, dict]:
    """(tensors as float32, stated configuration)."""
    with safe_open(path, "pt") as file:
        names = list(file.keys())
        return {name: file.get_tensor(name).float() for name in names}, json.loads(file.metadata()["config"])


def load(folder: Path) -> SimpleNamespace:
    """text, denoiser, video, audio (modules in float32) and their latent statistics."""
    video, video_scale = video_vae(folder / "video_vae.safetensors")
    audio, audio_scale = audio_vae(folder / "audio_vae.safetensors")
    return SimpleNamespace(
        text=text_model(folder / "text_encoder.safetensors"), denoiser=denoiser(folder / "transformer.safetensors"),
        video=video, video_scale=video_scale, audio=audio, audio_scale=audio_scale,
    )  # fmt: skip


def denoiser(path: Path) -> MiniMaxH3Transformer3DModel:
    tensors, stated = read(path)
    config = dict(
        num_attention_heads=stated["num_attention_heads"], attention_head_dim=stated["attention_head_dim"],
        hidden_size=stated["hidden_size"], num_layers=stated["num_layers"],
        num_refiner_layers=stated["token_refiner_num_layers"], ffn_dim=stated["ffn_hidden_size"],
        in_channels=24, audio_in_channels=32, patch_size=(1, 2, 2), text_dim=stated["text_dim"],
        freq_dim=stated["timestep_input_dim"], time_embed_hidden_dim=stated["time_embed_hidden_size"],
        time_embed_dim=stated["time_embed_dim"], rope_freq_dim=stated["rope_inv_freq_len"],
        rope_theta=stated["rope_theta"],
    )  # fmt: skip
    net = MiniMaxH3Transformer3DModel(**config).eval()
    state = convert_minimax_h3_transformer_checkpoint_to_diffusers(tensors, config, qkv_layout="stacked")
    net.load_state_dict(state)
    return net


def text_model(path: Path) -> Qwen3VLTextModel:
    """The text stack without its final norm: the last hidden state is what the denoiser listens to."""
    tensors, stated = read(path)
    theta = stated.pop("rope_theta")
    rope = {"rope_type": "default", "rope_theta": theta, "mrope_section": stated.pop("mrope_section")}
    net = Qwen3VLTextModel(Qwen3VLTextConfig(**stated, rope_parameters={**rope, "mrope_interleaved": True})).eval()
    net.norm = torch.nn.Identity()
    net.load_state_dict({name.removeprefix("model."): value for name, value in tensors.items()})
    return net


def video_vae(path: Path) -> tuple[AutoencoderKLMiniMaxH3, tuple[torch.Tensor, torch.Tensor]]:
    tensors, stated = read(path)
    net = AutoencoderKLMiniMaxH3(**stated).eval()
    scale = tensors.pop("latents_mean"), tensors.pop("latents_std")
    net.load_state_dict(_diffusers_video(tensors, stated["decoder_num_attention_heads"]))
    return net, scale


def _diffusers_video(tensors: Tensors, heads: int) -> Tensors:
    """Original names with q, k, v rows per head, to diffusers names."""
    thirds = {}
    for name, value in tensors.items():
        if ".to_qkv." in name:
            value = value.reshape(heads, 3, -1, *value.shape[1:]).transpose(0, 1).reshape(value.shape)
        if name != "decoder.mask_token":  # stored, never used
            thirds[name] = value.numpy()
    return {name: torch.from_numpy(value) for name, value in diffusers_video(thirds).items()}


def audio_vae(path: Path) -> tuple[AutoencoderKLMiniMaxH3Audio, tuple[torch.Tensor, torch.Tensor]]:
    """Weight norm is set so that its product is the stored, folded weight."""
    tensors, stated = read(path)
    net = AutoencoderKLMiniMaxH3Audio(**stated).eval()
    scale = tensors.pop("latents_mean"), tensors.pop("latents_std")
    state = net.state_dict()
    for name, value in tensors.items():
        if f"{name}_g" in state:
            state[f"{name}_g"] = value.flatten(1).norm(dim=1).reshape(-1, *[1] * (value.ndim - 1))
            state[f"{name}_v"] = value
        else:
            state[name] = value
    net.load_state_dict(state)
    return net, scale
