"""The audio VAE of the embedded model: configuration and conversions between model space and sound."""

import torch
from diffusers import AutoencoderKLMiniMaxH3Audio

AUDIO_VAE = {
    "encoder_dim": 4, "encoder_rates": (2, 4, 4, 5, 5), "latent_dim": 128, "latent_channels": 32,
    "num_attention_heads": 2, "decoder_dim": 128, "decoder_rates": (5, 5, 4, 4, 2),
    "decoder_kernel_sizes": (9, 9, 8, 8, 4), "resblock_kernel_sizes": (3,), "resblock_dilation_sizes": ((1, 3),),
}  # fmt: skip
DECODER_PARTS = ("decoder", "dec_in_proj")
ENCODER_PARTS = ("encoder", "pre_block", "mean_proj")


def build_audio_vae() -> AutoencoderKLMiniMaxH3Audio:
    """The class with this configuration."""
    return AutoencoderKLMiniMaxH3Audio(**AUDIO_VAE)


def parameters_of(vae: AutoencoderKLMiniMaxH3Audio, parts: tuple[str, ...]) -> list[torch.nn.Parameter]:
    """Parameters of the named top-level parts."""
    return [p for n, p in vae.named_parameters() if n.split(".")[0] in parts]


def sound_of(vae: AutoencoderKLMiniMaxH3Audio, latent: torch.Tensor, scale: tuple) -> torch.Tensor:
    """Model-space latents [B, 2, 32, A] to waveforms [B, 2, 800 * A]."""
    mean, std = scale
    raw = (latent * std[:, None] + mean[:, None]).flatten(0, 1)
    return vae.decode(raw).sample.unflatten(0, (len(latent), 2))[:, :, 0]
