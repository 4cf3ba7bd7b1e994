"""The text stack and the denoiser, built from the unmodified transformers and diffusers classes, and a batched forward.

The diffusers forward takes one timestep table for a whole batch, so training through it would give every clip of a
batch the same noise level and a very noisy gradient. `velocity` runs the same submodules with timesteps per clip.
The trap: text rows follow the *video* timestep. Proof: tests/dev/mini/test_model.py (bit-equal to the class forward).
"""

import math
from dataclasses import dataclass
from functools import lru_cache

import torch
from diffusers import MiniMaxH3Transformer3DModel
from torch.nn.functional import scaled_dot_product_attention, silu
from transformers import Qwen3VLTextConfig, Qwen3VLTextModel

from dev.mini.tokenizer import VOCABULARY

DENOISER = {
    "num_attention_heads": 4, "attention_head_dim": 64, "hidden_size": 256, "num_layers": 6, "num_refiner_layers": 1,
    "ffn_dim": 512, "in_channels": 24, "audio_in_channels": 32, "patch_size": (1, 2, 2), "text_dim": 256,
    "freq_dim": 256, "time_embed_hidden_dim": 256, "time_embed_dim": 256, "rope_freq_dim": 10, "rope_theta": 100.0,
}  # fmt: skip
TEXT = {
    "vocab_size": VOCABULARY, "hidden_size": 256, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 64, "intermediate_size": 512, "rms_norm_eps": 1e-6,
}  # fmt: skip
TEXT_ROPE = {"rope_type": "default", "rope_theta": 5e6, "mrope_section": [12, 10, 10], "mrope_interleaved": True}
VIDEO, TEXT_TAG, AUDIO = 0, 1, 2


def build_text() -> Qwen3VLTextModel:
    """Text stack whose output is the residual stream before the final norm."""
    config = Qwen3VLTextConfig(**TEXT, rope_parameters=dict(TEXT_ROPE), use_cache=False)
    model = Qwen3VLTextModel(config)
    model.norm = torch.nn.Identity()
    return model


def build_denoiser() -> MiniMaxH3Transformer3DModel:
    """Denoiser with the class's own initialisation."""
    return MiniMaxH3Transformer3DModel(**DENOISER)


def initialise(denoiser: MiniMaxH3Transformer3DModel, text: Qwen3VLTextModel) -> None:
    """Start values that learn fast: no modulation, gates 0.3, silent heads, embeddings of deviation 0.5."""
    with torch.no_grad():
        for block in denoiser.transformer_blocks:
            block.adaln_proj.linear.weight.zero_()
            bias = block.adaln_proj.linear.bias.zero_().view(3, 6, -1)
            bias[:, 2] = 0.3
            bias[:, 5] = 0.3
        for linear in (denoiser.norm_out.linear, denoiser.proj_out, denoiser.audio_proj_out):
            linear.weight.zero_()
            linear.bias.zero_()
        text.embed_tokens.weight.normal_(std=0.5)


@dataclass(frozen=True, slots=True)
class Layout:
    """Packed sequence [text | audio | video] of one request.

    positions: [S, 3] float32; text, audio, video: row counts
    """

    positions: torch.Tensor
    text: int
    audio: int
    video: int


@lru_cache(maxsize=512)
def layout(text_count: int, audio_count: int, latent_t: int, latent_h: int, latent_w: int) -> Layout:
    """Rotary coordinates of a t2va request; `audio_count` latents per channel, 0 leaves the sound rows out."""
    scale = math.sqrt(latent_h * latent_w)
    rows = _axis(latent_h, scale)
    columns = _axis(latent_w, scale)
    positions = [(float(i), 0.0, 0.0) for i in range(text_count)]
    for end in (columns[0], columns[-1]):
        positions += [(float(text_count + i), 0.0, end) for i in range(audio_count)]
    time = float(text_count)
    for k in range(latent_t):
        positions += [(time, h, w) for h in rows for w in columns]
        time += 5 / 3 * (1, 4, 4, 4, 4)[k % 5]
    table = torch.tensor(positions, dtype=torch.float64).float()
    return Layout(table, text_count, 2 * audio_count, latent_t * len(rows) * len(columns))


def _axis(length: int, scale: float) -> list[float]:
    return [32 * ((1 - length / scale) / 2 + i * (length / scale) / (length / 2)) for i in range(length // 2)]


def patchify(latent: torch.Tensor) -> torch.Tensor:
    """[B, 24, T, h, w] to rows [B, T*h*w/4, 96]."""
    b, c, t, h, w = latent.shape
    return latent.reshape(b, c, t, h // 2, 2, w // 2, 2).permute(0, 2, 3, 5, 1, 4, 6).reshape(b, -1, 4 * c)


def unpatchify(rows: torch.Tensor, latent_t: int, latent_h: int, latent_w: int) -> torch.Tensor:
    """Rows [B, T*h*w/4, 96] to [B, 24, T, h, w]."""
    folded = rows.reshape(len(rows), latent_t, latent_h // 2, latent_w // 2, -1, 2, 2)
    return folded.permute(0, 4, 1, 2, 5, 3, 6).reshape(len(rows), -1, latent_t, latent_h, latent_w)


def pack_audio(latent: torch.Tensor) -> torch.Tensor:
    """[B, 2, 32, A] to rows [B, 2A, 32], left channel first."""
    return latent.permute(0, 1, 3, 2).flatten(1, 2)


def unpack_audio(rows: torch.Tensor) -> torch.Tensor:
    """Rows [B, 2A, 32] to [B, 2, 32, A]."""
    return rows.unflatten(1, (2, -1)).permute(0, 1, 3, 2)


def _rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    turned = cos.shape[-1]
    half = turned // 2
    part = x[..., :turned]
    swapped = torch.cat([-part[..., half:], part[..., :half]], -1)
    return torch.cat([part * cos + swapped * sin, x[..., turned:]], -1)


def _attend(attention: torch.nn.Module, x: torch.Tensor, rope: tuple | None) -> torch.Tensor:
    heads = attention.heads
    query = attention.norm_q(attention.to_q(x).unflatten(-1, (heads, -1)))
    key = attention.norm_k(attention.to_k(x).unflatten(-1, (heads, -1)))
    value = attention.to_v(x).unflatten(-1, (heads, -1))
    if rope is not None:
        query, key = _rotate(query, *rope), _rotate(key, *rope)
    mixed = scaled_dot_product_attention(query.transpose(1, 2), key.transpose(1, 2), value.transpose(1, 2))
    return attention.to_out[0](mixed.transpose(1, 2).flatten(2))


def _spread(table: torch.Tensor, counts: list[int]) -> torch.Tensor:
    """[B, segments, ...] to [B, S, ...]: every segment's entry repeated over its rows."""
    return torch.cat([table[:, i : i + 1].expand(-1, n, -1, -1) for i, n in enumerate(counts) if n], 1)


def block_forward(block: torch.nn.Module, h: torch.Tensor, tables: list[torch.Tensor], rope: tuple) -> torch.Tensor:
    """One transformer block on h [B, S, H]; six tables [B, S, H]: shift, scale, gate of attention, then of MLP."""
    shift_msa, scale_msa, gate_msa, shift_mlp, scale_mlp, gate_mlp = tables
    h = h + gate_msa * _attend(block.attn, block.norm1(h) * (1.0 + scale_msa) + shift_msa, rope)
    return h + gate_mlp * block.ff(block.norm2(h) * (1.0 + scale_mlp) + shift_mlp)


def velocity(
    denoiser: MiniMaxH3Transformer3DModel,
    text: torch.Tensor,
    video: torch.Tensor,
    audio: torch.Tensor | None,
    times: tuple[torch.Tensor, torch.Tensor],
    place: Layout,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Data-ward velocity of a batch whose clips have their own timesteps.

    text [B, L, 256], video rows [B, V, 96], audio rows [B, 2A, 32] or None; times = (video [B], audio [B]), 1 is clean
    returns: video [B, V, 96], audio [B, 2A, 32] or None
    source: MiniMaxH3Transformer3DModel.forward of diffusers 0.42.1
    """
    batch = len(text)
    words = denoiser.context_embedder(text)
    for block in denoiser.token_refiner.refiner_blocks:
        words = words + _attend(block.attn, block.norm1(words), None)
        words = words + block.ff(block.norm2(words))
    parts = [denoiser.token_refiner.final_norm(words)]
    if audio is not None:
        parts.append(denoiser.audio_proj_in(audio))
    h = torch.cat([*parts, denoiser.proj_in(video)], 1)
    cos, sin = denoiser.rope(place.positions)
    rope = (cos[None, :, None], sin[None, :, None])
    counts = [place.text, place.audio, place.video]
    embedded = silu(denoiser.time_embedder(denoiser.time_proj(torch.cat(times))))
    for block in denoiser.transformer_blocks:
        table = block.adaln_proj.linear(embedded).view(2 * batch, 3, 6, -1)
        segments = torch.stack([table[:batch, TEXT_TAG], table[batch:, AUDIO], table[:batch, VIDEO]], 1)
        h = block_forward(block, h, _spread(segments, counts).unbind(2), rope)
    shift, scale = denoiser.norm_out.linear(embedded).chunk(2, dim=-1)
    h = denoiser.norm_out.norm(h)
    last = h[:, place.text + place.audio :] * (1.0 + scale[:batch, None]) + shift[:batch, None]
    if audio is None:
        return denoiser.proj_out(last), None
    middle = h[:, place.text : place.text + place.audio] * (1.0 + scale[batch:, None]) + shift[batch:, None]
    return denoiser.proj_out(last), denoiser.audio_proj_out(middle)


def shifted(base: torch.Tensor, shift: float) -> torch.Tensor:
    """Released schedule warp: sigma = s*b / (1 + (s-1)*b)."""
    return shift * base / (1 + (shift - 1) * base)
