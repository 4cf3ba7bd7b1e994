"""The audio VAE's decoder: latents at 40 Hz become sound at 32 kHz, one channel at a time.

Seven upsampling stages, each followed by three residual blocks whose mean goes on. The first two stages, up to 1 kHz,
run over everything; the rest, where the samples are, runs in blocks with a halo. So the working memory grows with the
first stages only, by 1 MB per array and second in the released model, and no kernel sees a long sequence.

The trap: resampling filters replicate the edge, convolutions pad zeros, and both happen at true ends only. Stereo is
two independent sequences: latents are never interleaved.
Proof: tests/core/model/test_audio_decoder.py, against the diffusers MiniMax-H3 audio classes.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import prod

import numpy as np

from core.errors import CheckpointError
from core.kernels.backend import Array, Conv1d, Weight
from core.kernels.provider import Block, Weights
from core.model.audio_blocks import ACTIVATION_RADIUS, BlockPlan, Span, residual_radius, run_in_blocks
from core.model.config import AudioVaeConfig

WHOLE_STAGES = 2  # stages run over the whole sequence
BLOCK_LATENTS = 32  # length of a block of the other stages, in latents: 0.8 s
EDGE_KERNEL = 7  # of conv_pre and conv_post

OnProgress = Callable[[int, int], None]  # 1 kHz samples done and in all, both channels together


@dataclass(frozen=True, slots=True, kw_only=True)
class _Conv:
    weight: Weight
    bias: Array | None
    spec: Conv1d


@dataclass(frozen=True, slots=True, kw_only=True)
class _Activation:
    log_alpha: Array
    log_beta: Array
    taps: Array


@dataclass(frozen=True, slots=True, kw_only=True)
class _ResidualBlock:
    """Per dilation: activation, dilated convolution, activation, convolution."""

    steps: tuple[tuple[_Activation, _Conv, _Activation, _Conv], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Stage:
    up_weight: Weight
    up_bias: Array
    rate: int
    padding: int
    blocks: tuple[_ResidualBlock, ...]


class AudioDecoder:
    """Decodes latents to sound. All weights are repacked once and held, 248 MiB released size. Not thread-safe."""

    def __init__(self, config: AudioVaeConfig, weights: Weights):
        self.config = config
        self.backend = weights.backend
        same = Conv1d(kernel=EDGE_KERNEL, pad_left=EDGE_KERNEL // 2, pad_right=EDGE_KERNEL // 2)
        self._dec_in = self._load_conv(weights.root, "dec_in_proj", Conv1d(kernel=1))
        self._conv_pre = self._load_conv(weights.root, "decoder.conv_pre", same)
        self._stages = [self._load_stage(weights, i) for i in range(len(config.decoder_rates))]
        self._activation_post = self._load_activation(weights.root, "decoder.activation_post")
        self._conv_post = self._load_conv(weights.root, "decoder.conv_post", same)

    def decode(self, audio_latent: np.ndarray, *, on_progress: OnProgress = lambda done, total: None) -> np.ndarray:
        """Sound [2, 800 A] float32 in [-1, 1] at 32 kHz of a model-space audio latent [2, 32, A]."""
        std, mean = (np.asarray(v, dtype=np.float32) for v in (self.config.latents_std, self.config.latents_mean))
        done, total = 0, audio_latent.shape[0] * audio_latent.shape[2] * prod(self.config.decoder_rates[:WHOLE_STAGES])

        def advance(samples: int) -> None:
            nonlocal done
            done += samples
            on_progress(done, total)

        return np.stack([self.decode_channel(channel.T * std + mean, advance=advance) for channel in audio_latent])

    def decode_channel(self, latent: np.ndarray, *, advance: Callable[[int], None] = lambda n: None) -> np.ndarray:
        """Samples [800 A] of a VAE-space latent [A, 32]; `advance` is told the 1 kHz samples of each finished block."""
        b = self.backend

        def tail(block: np.ndarray) -> np.ndarray:
            return b.to_numpy(self._tail(b.from_numpy(block)))

        trunk = b.to_numpy(self._trunk(b.from_numpy(np.ascontiguousarray(latent))))
        samples = run_in_blocks(tail, trunk, tail_plan(self.config), advance=advance)
        return np.clip(samples[:, 0], -1.0, 1.0)

    def _trunk(self, latent: Array) -> Array:
        """[A, 32] at 40 Hz to the input rate of the blockwise stages."""
        x = self._convolve(self._conv_pre, self._convolve(self._dec_in, latent))
        for stage in self._stages[:WHOLE_STAGES]:
            x = self._run_stage(stage, x)
        return x

    def _tail(self, x: Array) -> Array:
        """The other stages: samples [n, 1], not clamped."""
        for stage in self._stages[WHOLE_STAGES:]:
            x = self._run_stage(stage, x)
        return self._convolve(self._conv_post, self._activate(self._activation_post, x))

    def _run_stage(self, stage: _Stage, x: Array) -> Array:
        """Upsample, then the mean of the residual blocks."""
        b = self.backend
        x = b.conv_transpose1d(x, stage.up_weight, stage.up_bias, stride=stage.rate, padding=stage.padding)
        mean = b.from_numpy(np.zeros(x.shape, dtype=np.float32))
        for block in stage.blocks:
            # A third of each in turn, not the sum divided by 3: rounding differs by 1e-7, and no operation is missing.
            b.scaled_residual(mean, self._run_residual(block, x), 1.0 / len(stage.blocks))
        return mean

    def _run_residual(self, block: _ResidualBlock, x: Array) -> Array:
        for first_activation, first_conv, second_activation, second_conv in block.steps:
            y = self._convolve(first_conv, self._activate(first_activation, x))
            y = self._convolve(second_conv, self._activate(second_activation, y))
            x = self.backend.scaled_residual(y, x)  # y is ours to change, x is the input of the sibling blocks
        return x

    def _convolve(self, conv: _Conv, x: Array) -> Array:
        return self.backend.conv1d(x, conv.weight, conv.bias, conv.spec)

    def _activate(self, activation: _Activation, x: Array) -> Array:
        return self.backend.anti_aliased_snake(x, activation.log_alpha, activation.log_beta, activation.taps)

    # ---- weights
    def _load_conv(self, block: Block, name: str, spec: Conv1d) -> _Conv:
        return _Conv(
            weight=self.backend.conv_weight(block.values(f"{name}.weight")),
            bias=block.vector(f"{name}.bias") if block.has(f"{name}.bias") else None,
            spec=spec,
        )

    def _load_stage(self, weights: Weights, index: int) -> _Stage:
        config = self.config
        rate, kernel, kernels = config.decoder_rates[index], config.decoder_kernels[index], config.resblock_kernels
        with weights.block(f"decoder.ups.{index}") as block:
            up_weight = self.backend.conv_weight(block.values("0.weight"), transposed=True)
            up_bias = block.vector("0.bias")
        blocks = []
        for j, (width, dilations) in enumerate(zip(kernels, config.resblock_dilations, strict=True)):
            with weights.block(f"decoder.resblocks.{len(kernels) * index + j}") as block:
                blocks.append(self._load_residual(block, width, dilations))
        return _Stage(
            up_weight=up_weight, up_bias=up_bias, rate=rate, padding=(kernel - rate) // 2, blocks=tuple(blocks)
        )

    def _load_residual(self, block: Block, kernel: int, dilations: tuple[int, ...]) -> _ResidualBlock:
        def same(dilation: int) -> Conv1d:
            padding = dilation * (kernel - 1) // 2
            return Conv1d(kernel=kernel, dilation=dilation, pad_left=padding, pad_right=padding)

        return _ResidualBlock(
            steps=tuple(
                (
                    self._load_activation(block, f"activations.{2 * n}"),
                    self._load_conv(block, f"convs1.{n}", same(dilation)),
                    self._load_activation(block, f"activations.{2 * n + 1}"),
                    self._load_conv(block, f"convs2.{n}", same(1)),
                )
                for n, dilation in enumerate(dilations)
            )
        )

    def _load_activation(self, block: Block, name: str) -> _Activation:
        up = block.values(f"{name}.upsample.filter").reshape(-1)
        down = block.values(f"{name}.downsample.lowpass.filter").reshape(-1)
        if not np.array_equal(up, down):
            raise CheckpointError(f"{block.prefix}{name}: the filters for up- and downsampling differ; expected one.")
        return _Activation(
            log_alpha=block.vector(f"{name}.act.alpha"),
            log_beta=block.vector(f"{name}.act.beta"),
            taps=self.backend.from_numpy(np.ascontiguousarray(up)),
        )


def tail_plan(config: AudioVaeConfig) -> BlockPlan:
    """Blocks of the stages after the first two, in samples of their input (1 kHz in the released model)."""
    gain = prod(config.decoder_rates[WHOLE_STAGES:])
    span = Span(0, gain - 1).widened(EDGE_KERNEL // 2 + ACTIVATION_RADIUS)
    radius = max(map(residual_radius, config.resblock_kernels, config.resblock_dilations))
    for rate, kernel in reversed(list(zip(config.decoder_rates, config.decoder_kernels, strict=True))[WHOLE_STAGES:]):
        span = span.widened(radius).before_transposed(kernel, rate, (kernel - rate) // 2)
    return BlockPlan(
        block=BLOCK_LATENTS * prod(config.decoder_rates[:WHOLE_STAGES]),
        halo_before=-span.first,
        halo_after=span.last,
        unit_out=gain,
    )
