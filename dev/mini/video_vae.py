"""The video VAE of the embedded model: configuration, analytic decoder start, and decoding of one 7-latent window.

The decoder starts as the exact inverse of the linear latents: `proj_in` copies the 24 latents, constant channels
+2/-2 make the final LayerNorm almost a constant factor, `proj_out` holds the components. It draws 26 dB at step 0.
Latents are raw here: (model-space latent) * std + mean.
"""

import torch
from diffusers import AutoencoderKLMiniMaxH3

from dev.mini.latents import CHANNELS, COMPONENTS, Basis

VIDEO_VAE = {
    "block_out_channels": (16, 32, 64, 64), "layers_per_block": 1, "spatial_downsample_factors": (2, 2, 2, 2),
    "temporal_downsample_factors": (1, 2, 2, 1), "norm_num_groups": 8, "decoder_num_layers": 4,
    "decoder_num_attention_heads": 6, "decoder_attention_head_dim": 32, "decoder_num_register_tokens": 4,
    "decoder_ffn_mult": 2,
}  # fmt: skip
CONSTANT = 2.0
BLOCK_SCALE = 0.3
WINDOW = 7
WINDOW_FRAMES = [*range(3, 20), *range(23, 28)]  # of the 28 a window decodes to


def build_video_vae(basis: Basis) -> AutoencoderKLMiniMaxH3:
    """The class with this configuration, latent statistics of `basis` included."""
    return AutoencoderKLMiniMaxH3(**VIDEO_VAE, latents_mean=basis.mean.tolist(), latents_std=basis.std.tolist())


@torch.no_grad()
def start_decoder(vae: AutoencoderKLMiniMaxH3, basis: Basis) -> None:
    """Set the decoder to the linear inverse plus blocks of scale 0.3."""
    _set_identity(vae.post_quant_conv)
    decoder = vae.decoder
    width = decoder.proj_in.weight.shape[0]
    gain = 1 / basis.std
    decoder.proj_in.weight.zero_()
    decoder.proj_in.weight[range(CHANNELS), range(CHANNELS)] = gain
    decoder.proj_in.bias[:CHANNELS] = -basis.mean * gain
    decoder.proj_in.bias[CHANNELS:] = CONSTANT * (1 - 2 * (torch.arange(width - CHANNELS) % 2).float())
    factor = ((width - CHANNELS) * CONSTANT**2 + 10.0) / width
    decoder.norm_out.weight.fill_(1.0)
    decoder.norm_out.weight[:CHANNELS] = factor**0.5
    decoder.norm_out.bias.zero_()
    decoder.proj_out.weight.mul_(0.02)
    decoder.proj_out.weight[:, :CHANNELS] = 0.0
    scale = basis.deviation / gain[:COMPONENTS]
    decoder.proj_out.weight[:, :COMPONENTS] = basis.components * scale
    constants = decoder.proj_in.bias[CHANNELS:] / factor**0.5
    decoder.proj_out.bias.copy_(basis.centre - decoder.proj_out.weight[:, CHANNELS:] @ constants)
    decoder.register_tokens.normal_(std=0.5)
    for block in decoder.transformer_blocks:
        block.scale1.fill_(BLOCK_SCALE)
        block.scale2.fill_(BLOCK_SCALE)


def _set_identity(conv: torch.nn.Conv3d) -> None:
    conv.weight.zero_()
    conv.bias.zero_()
    conv.weight[range(len(conv.bias)), range(len(conv.bias))] = 1.0


def decode_window(vae: AutoencoderKLMiniMaxH3, latent: torch.Tensor, basis: Basis) -> torch.Tensor:
    """Model-space latents [B, 24, 7, h, w] of one window to [B, 3, 22, H, W] ImageNet-normalised pixels."""
    shape = (1, -1, 1, 1, 1)
    raw = latent * basis.std.view(shape) + basis.mean.view(shape)
    return vae.decoder(vae.post_quant_conv(raw))[:, :, WINDOW_FRAMES]


def window_features(vae: AutoencoderKLMiniMaxH3, latent: torch.Tensor, basis: Basis) -> torch.Tensor:
    """The decoder up to its last norm: model-space latents [B, 24, 7, h, w] to [B, 7*h*w, width].

    `proj_out` of a row is the token's 3072 pixels, so a loss may visit only the tokens it needs.
    source: MiniMaxH3VideoViTDecoder3d.forward of diffusers 0.42.1; pinned by tests/dev/mini/test_video_vae.py
    """
    shape = (1, -1, 1, 1, 1)
    raw = vae.post_quant_conv(latent * basis.std.view(shape) + basis.mean.view(shape))
    decoder, count = vae.decoder, len(latent)
    tokens = decoder.proj_in(raw.flatten(2).transpose(1, 2))
    suffix = decoder.register_tokens.shape[1] + 1
    registers = decoder.register_tokens.expand(count, -1, -1)
    h = torch.cat([tokens, registers, torch.zeros_like(tokens[:, :1])], 1)
    axes = [2.0 * (torch.arange(0.5, size, dtype=torch.float32) / size) - 1.0 for size in latent.shape[2:]]
    places = torch.stack(torch.meshgrid(*axes, indexing="ij"), -1).flatten(0, 2)
    rope = decoder.rope(torch.cat([places, places.new_zeros(suffix, 3)])[None])
    for block in decoder.transformer_blocks:
        h = block(h, rope)
    return decoder.norm_out(h)[:, : tokens.shape[1]]
