"""Set the convolutional encoder to the linear latents without training.

A stack of this class can be an exact linear map: residual branches silent, every downsampling convolution gathers its
2x2(x2) block and keeps the principal components of what it gathered. The last one regresses all 24 latents, each as
a pair +y, -y, next to two constants +100, -100 in every norm group, so that the group norm is a constant factor; then
SiLU(y) - SiLU(-y) = y takes the activation out again. Biases before the last level stay zero: the class pads time
with zeros in feature space, which must mean zeros in pixel space.
"""

import math

import torch
from diffusers import AutoencoderKLMiniMaxH3

from dev.mini.latents import CHANNELS
from dev.mini.video_vae import VIDEO_VAE

CONSTANT = 100.0
LOG_VARIANCE = -12.0
RIDGE = 1e-6


def _gather(features: torch.Tensor, channels: int, time_stride: int) -> torch.Tensor:
    """[B, C, T, H, W] to rows of the 2x2(x2) block a downsampling convolution may read, [n, channels*ts*4]."""
    x = features[:, :channels]
    if time_stride == 2:
        x = torch.cat([torch.zeros_like(x[:, :, :1]), x], 2)
    batch, _, frames, height, width = x.shape
    x = x.reshape(batch, channels, frames // time_stride, time_stride, height // 2, 2, width // 2, 2)
    return x.permute(0, 2, 4, 6, 1, 3, 5, 7).reshape(-1, channels * time_stride * 4)


def _silence_branches(encoder: torch.nn.Module) -> None:
    for block in encoder.down_blocks:
        for resnet in block.resnets:
            resnet.conv2.weight.zero_()
            resnet.conv2.bias.zero_()
            if resnet.conv_shortcut is not None:
                resnet.conv_shortcut.weight.zero_()
                resnet.conv_shortcut.bias.zero_()
                same = range(min(resnet.in_channels, resnet.out_channels))
                resnet.conv_shortcut.weight[same, same] = 1.0


def _write_taps(conv: torch.nn.Conv3d, rows: torch.Tensor, channels: int, time_stride: int) -> None:
    """Put [k, channels*ts*4] rows on the spatial taps 0, 1 and the last time taps."""
    conv.weight.zero_()
    conv.bias.zero_()
    kernel = rows.reshape(len(rows), channels, time_stride, 2, 2)
    for position, tap in enumerate((1, 2) if time_stride == 2 else (2,)):
        conv.weight[: len(rows), :channels, tap, :2, :2] = kernel[:, :, position]


def _pairs(width: int) -> list[tuple[int, int]]:
    """Channel pairs of the 24 latents: three pairs, then two constants, in each norm group."""
    groups = VIDEO_VAE["norm_num_groups"]
    size, per_group = width // groups, CHANNELS // groups
    return [(g * size + 2 * i, g * size + 2 * i + 1) for g in range(groups) for i in range(per_group)]


@torch.no_grad()
def start_encoder(vae: AutoencoderKLMiniMaxH3, clips: list[torch.Tensor], targets: list[torch.Tensor]) -> None:
    """Fit the linear map on clips [1, 3, F, H, W] (17 or 5 frames) and their raw latents [1, 24, T, h, w]."""
    encoder, widths = vae.encoder, VIDEO_VAE["block_out_channels"]
    _silence_branches(encoder)
    encoder.conv_in.weight.zero_()
    encoder.conv_in.bias.zero_()
    encoder.conv_in.weight[range(3), range(3), 2, 1, 1] = 1.0
    features, channels = [encoder.conv_in(clip) for clip in clips], 3
    for level, block in enumerate(encoder.down_blocks):
        stride, conv = VIDEO_VAE["temporal_downsample_factors"][level], block.downsamplers[0].conv
        for resnet in block.resnets:
            features = [resnet(x) for x in features]
        rows = torch.cat([_gather(x, channels, stride) for x in features])
        if level + 1 < len(encoder.down_blocks):
            kept = min(widths[level], rows.shape[1])
            vectors = torch.linalg.eigh(rows.T @ rows / len(rows)).eigenvectors
            _write_taps(conv, vectors[:, -kept:].T.flip(0), channels, stride)
            features, channels = [block.downsamplers[0](x) for x in features], kept
        else:
            _regress(
                vae, conv, rows, torch.cat([t.permute(0, 2, 3, 4, 1).reshape(-1, CHANNELS) for t in targets]), channels
            )


def _regress(
    vae: AutoencoderKLMiniMaxH3, conv: torch.nn.Conv3d, rows: torch.Tensor, wanted: torch.Tensor, channels: int
) -> None:
    """Last level: ridge regression of the latents, constants, and the head that takes norm and SiLU out."""
    design = torch.cat([rows, torch.ones(len(rows), 1)], 1).double()
    normal = design.T @ design + RIDGE * len(rows) * torch.eye(design.shape[1]).double()
    solution = torch.linalg.solve(normal, design.T @ wanted.double()).float()
    encoder, width = vae.encoder, conv.weight.shape[0]
    size = width // VIDEO_VAE["norm_num_groups"]
    pairs = _pairs(width)
    weights, biases = torch.zeros(width, rows.shape[1]), torch.zeros(width)
    encoder.conv_out.weight.zero_()
    encoder.conv_out.bias.zero_()
    for latent, (plus, minus) in enumerate(pairs):
        weights[plus], weights[minus] = solution[:-1, latent], -solution[:-1, latent]
        biases[plus], biases[minus] = solution[-1, latent], -solution[-1, latent]
        encoder.conv_out.weight[latent, plus, 2, 1, 1] = 1.0
        encoder.conv_out.weight[latent, minus, 2, 1, 1] = -1.0
    biases[size - 2 :: size], biases[size - 1 :: size] = CONSTANT, -CONSTANT
    _write_taps(conv, weights, channels, 1)
    conv.bias.copy_(biases)
    encoder.norm_out.weight.fill_(CONSTANT * math.sqrt(2 / size))
    encoder.norm_out.bias.zero_()
    encoder.conv_out.bias[CHANNELS:] = LOG_VARIANCE
    vae.quant_conv.weight.zero_()
    vae.quant_conv.bias.zero_()
    vae.quant_conv.weight[range(2 * CHANNELS), range(2 * CHANNELS)] = 1.0
