"""A tiny MiniMax-H3 transformer of diffusers with portable weights, and the same weights under canonical names.

No lucky coincidences: 4 heads of 32 differ from hidden 96, 24 of 32 head channels are rotated, T, H and W all differ.
"""

import functools
from types import SimpleNamespace

import numpy as np
import torch
from diffusers import MiniMaxH3Transformer3DModel
from diffusers.modular_pipelines.minimax_h3.before_denoise import (
    MiniMaxH3PrepareLayoutStep,
    MiniMaxH3Ref2VAPrepareLayoutStep,
    MiniMaxH3SetTimestepsStep,
)

from core.kernels.matrix import Matrix, RowSpan, WeightFormat
from core.kernels.provider import DictSource
from core.model.config import DenoiserConfig
from tests.oracles.portable import fill

TINY = dict(
    num_attention_heads=4, attention_head_dim=32, hidden_size=96, num_layers=3, num_refiner_layers=2, ffn_dim=256,
    in_channels=24, audio_in_channels=32, patch_size=(1, 2, 2), text_dim=80, freq_dim=32, time_embed_hidden_dim=96,
    time_embed_dim=48, rope_freq_dim=4, rope_theta=10000.0, norm_eps=1e-5, qk_norm_eps=1e-5, final_norm_eps=1e-5,
)  # fmt: skip
CONFIG = DenoiserConfig(
    hidden_size=96, num_layers=3, num_refiner_layers=2, num_heads=4, head_dim=32, ffn_dim=256, text_dim=80, freq_dim=32,
    time_hidden_dim=96, time_dim=48, rope_freq_dim=4,
)  # fmt: skip
FLOAT32_PREFIXES = ("proj_in.", "audio_proj_in.", "time_embedder.", "proj_out.", "audio_proj_out.")

STARTS = {  # diffusers prefix -> canonical prefix
    "audio_proj_in.": "audio_patch_proj.", "audio_proj_out.": "final_layer.audio_out.",
    "proj_in.": "video_patch_proj.", "proj_out.": "final_layer.video_out.", "context_embedder.": "condition_proj.",
    "token_refiner.refiner_blocks.": "token_refiner.blocks.", "transformer_blocks.": "blocks.",
    "time_embedder.linear_1.": "time_embedder.proj_in.", "time_embedder.linear_2.": "time_embedder.proj_out.",
    "norm_out.norm.": "final_layer.norm.", "norm_out.linear.": "final_layer.adaln_proj.linear.",
}  # fmt: skip
INSIDE = {
    ".attn.norm_q.": ".attn.q_norm.", ".attn.norm_k.": ".attn.k_norm.", ".attn.to_out.0.": ".attn.out_proj.",
    ".attn.to_q.": ".attn.qkv_proj.", ".ff.net.0.proj.": ".mlp.fc1.", ".ff.net.2.": ".mlp.fc2.",
}  # fmt: skip


# ---- models
@functools.cache
def model() -> MiniMaxH3Transformer3DModel:
    """float32, portable weights."""
    return fill(MiniMaxH3Transformer3DModel(**TINY))


@functools.cache
def mixed_model() -> MiniMaxH3Transformer3DModel:
    """The released precision: bfloat16 but for the tensors that the checkpoint keeps in float32."""
    clone = MiniMaxH3Transformer3DModel(**TINY).eval()
    clone.load_state_dict(model().state_dict())
    for name, parameter in clone.named_parameters():
        if not name.startswith(FLOAT32_PREFIXES):
            parameter.data = parameter.data.to(torch.bfloat16)
    return clone


def canonical(state: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Original tensor names; qkv rows [q; k; v], fc1 rows [gate; value]."""
    tensors = {}
    for name, value in state.items():
        new = next((new + name[len(old) :] for old, new in STARTS.items() if name.startswith(old)), name)
        for old, inner in INSIDE.items():
            new = new.replace(old, inner)
        if ".attn.to_k." in name or ".attn.to_v." in name:
            continue
        if ".attn.to_q." in name:
            value = torch.cat([state[name.replace(".to_q.", f".to_{part}.")] for part in "qkv"])
        elif new.endswith(".mlp.fc1.weight"):
            value = torch.cat(value.chunk(2)[::-1])
        tensors[new] = value.contiguous()
    return tensors


def bf16_matrix(name: str, value: torch.Tensor) -> Matrix:
    """A matrix over the bytes of a bfloat16 tensor."""
    rows, columns = value.shape
    data = value.contiguous().view(torch.uint8).reshape(-1).numpy()
    return Matrix(name, columns, (RowSpan(WeightFormat.BF16, data, rows),))


def source(net: MiniMaxH3Transformer3DModel, *, stored_frequencies: bool = False) -> DictSource:
    """The weights of `net` for our model, matrices in the type they have there."""
    tensors = {}
    for name, value in canonical(net.state_dict()).items():
        half = value.ndim == 2 and value.dtype == torch.bfloat16
        tensors[name] = bf16_matrix(name, value) if half else value.float().numpy()
    if stored_frequencies:
        tensors["rope.inv_freq"] = net.rope.inv_freq.numpy()
    return DictSource(tensors)


# ---- layouts and the forward pass of diffusers
LAYOUT_FIELDS = ("position_ids", "token_tags", "video_indices", "audio_indices", "text_indices")


def packed_layout(text_tags, grid, *, keyframes=(), references=()) -> SimpleNamespace:
    """The diffusers layout. keyframes: "first", "last"; references: our reference dataclasses."""
    sizes = (grid.latent_t, grid.latent_h, grid.latent_w, grid.audio_latents, (1, 2, 2), 2, 2, 0)
    tags = torch.tensor(list(text_tags))
    if references:
        kinds, visual, audio = _reference_arguments(references)
        values = MiniMaxH3Ref2VAPrepareLayoutStep.build_ref2va_packed_sequence(tags, kinds, visual, audio, *sizes)
    else:
        values = MiniMaxH3PrepareLayoutStep.build_packed_sequence(tags, *sizes, tuple(keyframes))
    names = (*LAYOUT_FIELDS, "condition_video_rows", "condition_audio_rows")
    return SimpleNamespace(**dict(zip(names, values, strict=True)))


def reference_kinds(references) -> list[SimpleNamespace]:
    """The two facts diffusers reads from a reference."""
    return _reference_arguments(references)[0]


def _reference_arguments(references):
    kinds, visual, audio = [], [], []
    for reference in references:
        kind = type(reference).__name__.removesuffix("Reference").lower()
        latents = getattr(reference, "audio_latents", 0)
        kinds.append(SimpleNamespace(kind=kind, has_audio=bool(latents)))
        if latents:
            audio.append(torch.empty(2 * latents, 32))
        if kind != "audio":
            visual.append(torch.empty(1, 24, getattr(reference, "latent_t", 1), reference.latent_h, reference.latent_w))
    return kinds, visual, audio


def row_timesteps(layout: SimpleNamespace, video_t: float, audio_t: float) -> tuple[torch.Tensor, torch.Tensor]:
    """(distinct timesteps, index per row) as diffusers assigns them."""
    return MiniMaxH3SetTimestepsStep.build_row_timesteps(
        layout.video_indices, layout.audio_indices, layout.condition_video_rows, layout.condition_audio_rows,
        layout.text_indices.numel(), video_t, audio_t, max(video_t, 0.999), 1.0,
    )  # fmt: skip


@torch.no_grad()
def velocity(net, layout: SimpleNamespace, times, video, audio, text) -> tuple[np.ndarray, np.ndarray]:
    """diffusers' velocities of the target rows. times: (video_t, audio_t); video, audio: all rows, conditions first."""
    timestep, index = row_timesteps(layout, *times)
    out = net(
        hidden_states=torch.from_numpy(video)[None], audio_hidden_states=torch.from_numpy(audio)[None],
        encoder_hidden_states=torch.from_numpy(text)[None], timestep=timestep, timestep_indices=index,
        **{name: getattr(layout, name) for name in LAYOUT_FIELDS},
    )  # fmt: skip
    video_v, audio_v = out.sample[0].float(), out.audio_sample[0].float()
    return video_v[layout.condition_video_rows :].numpy(), audio_v[layout.condition_audio_rows :].numpy()
