"""The audio VAE's encoder: sound at 32 kHz becomes latents at 40 Hz, one channel at a time.

A stack of strided convolutions, run in blocks with a halo, then one causal attention block over the whole sequence. The
posterior's mean is the latent: the model never samples sound, and the scale head in the file is unused.

The trap: attention is averaged over heads and over neighbouring channels instead of being concatenated. Both averages
are linear and go into the output projection that follows. Proof: tests/core/model/test_audio_encoder.py, against the
diffusers MiniMax-H3 audio classes.
"""

from dataclasses import dataclass

import numpy as np

from core.errors import CheckpointError
from core.kernels.backend import Activation, Array, Conv1d, HeadLayout, Weight
from core.kernels.matrix import Matrix
from core.kernels.provider import Block, Weights
from core.model.audio_blocks import BlockPlan, Span, run_in_blocks
from core.model.config import AudioVaeConfig

UNIT_DILATIONS = (1, 3, 9)
UNIT_KERNEL = 7
FIRST_KERNEL, LAST_KERNEL = 7, 3
BLOCK_LATENTS = 32
LAYER_NORM_EPS = 1e-5


@dataclass(frozen=True, slots=True, kw_only=True)
class _Conv:
    weight: Weight
    bias: Array
    spec: Conv1d


@dataclass(frozen=True, slots=True, kw_only=True)
class _Unit:
    """snake, dilated convolution, snake, pointwise convolution, plus the input."""

    alpha1: Array
    conv1: _Conv
    alpha2: Array
    conv2: _Conv


@dataclass(frozen=True, slots=True, kw_only=True)
class _Stage:
    units: tuple[_Unit, ...]
    alpha: Array
    down: _Conv


@dataclass(frozen=True, slots=True, kw_only=True)
class _Linear:
    weight: Weight
    bias: Array


class AudioEncoder:
    """Encodes sound to latents. All weights are repacked once and held, 330 MiB released size. Not thread-safe."""

    def __init__(self, config: AudioVaeConfig, weights: Weights):
        self.config = config
        self.backend = weights.backend
        rates = config.encoder_rates
        with weights.block("encoder.block") as block:
            self._first = self._load_conv(block, "0", _same(FIRST_KERNEL))
            self._stages = [self._load_stage(block, str(i + 1), rate) for i, rate in enumerate(rates)]
            self._last_alpha = self._load_alpha(block, f"{len(rates) + 1}")
            self._last = self._load_conv(block, f"{len(rates) + 2}", _same(LAST_KERNEL))
        with weights.block("pre_block") as block:
            self._pre_block = _PreBlock(config, block)
        self._mean_proj = _pointwise(weights.root, "mean_proj")

    def encode(self, sound: np.ndarray) -> np.ndarray:
        """Model-space audio latent [2, 32, A] of sound [2, samples] float32 at 32 kHz; A = ceil(samples / 800)."""
        std, mean = (np.asarray(v, dtype=np.float32) for v in (self.config.latents_std, self.config.latents_mean))
        latents = [((self.encode_channel(channel) - mean) / std).T for channel in sound]
        return np.ascontiguousarray(np.stack(latents))

    def encode_channel(self, sound: np.ndarray) -> np.ndarray:
        """VAE-space mean [A, 32] of samples [n]; silence fills up the last latent."""
        b = self.backend
        missing = -len(sound) % self.config.samples_per_latent
        samples = np.concatenate([sound, np.zeros(missing, dtype=np.float32)])[:, None]
        trunk = run_in_blocks(self._trunk, samples, trunk_plan(self.config))
        h = self._pre_block.run(b.from_numpy(trunk))
        return b.to_numpy(b.linear(h, self._mean_proj.weight, bias=self._mean_proj.bias))

    def _trunk(self, samples: np.ndarray) -> np.ndarray:
        """Samples [800 n, 1] to features [n, latent_dim]."""
        b = self.backend
        x = self._convolve(self._first, b.from_numpy(np.ascontiguousarray(samples)))
        for stage in self._stages:
            for unit in stage.units:
                y = self._convolve(unit.conv1, b.snake(x, unit.alpha1))
                y = self._convolve(unit.conv2, b.snake(y, unit.alpha2))
                x = b.scaled_residual(x, y)
            x = self._convolve(stage.down, b.snake(x, stage.alpha))
        return b.to_numpy(self._convolve(self._last, b.snake(x, self._last_alpha)))

    def _convolve(self, conv: _Conv, x: Array) -> Array:
        return self.backend.conv1d(x, conv.weight, conv.bias, conv.spec)

    # ---- weights
    def _load_conv(self, block: Block, name: str, spec: Conv1d) -> _Conv:
        weight = self.backend.conv_weight(block.values(f"{name}.weight"))
        return _Conv(weight=weight, bias=block.vector(f"{name}.bias"), spec=spec)

    def _load_alpha(self, block: Block, name: str) -> Array:
        return self.backend.from_numpy(block.values(f"{name}.alpha").reshape(-1))

    def _load_stage(self, block: Block, name: str, rate: int) -> _Stage:
        units = tuple(
            _Unit(
                alpha1=self._load_alpha(block, f"{name}.block.{u}.block.0"),
                conv1=self._load_conv(block, f"{name}.block.{u}.block.1", _same(UNIT_KERNEL, dilation)),
                alpha2=self._load_alpha(block, f"{name}.block.{u}.block.2"),
                conv2=self._load_conv(block, f"{name}.block.{u}.block.3", Conv1d(kernel=1)),
            )
            for u, dilation in enumerate(UNIT_DILATIONS)
        )
        after = len(UNIT_DILATIONS)
        return _Stage(
            units=units,
            alpha=self._load_alpha(block, f"{name}.block.{after}"),
            down=self._load_conv(block, f"{name}.block.{after + 1}", _strided(rate)),
        )


class _PreBlock:
    """h = proj(norm3(x)) + attention(norm1(x)); h + mlp(norm2(h)): [A, latent_dim] to [A, 32]."""

    def __init__(self, config: AudioVaeConfig, block: Block):
        self.backend = block.backend
        head_dim = config.latent_dim // config.num_heads
        self._layout = HeadLayout(heads=config.num_heads, kv_heads=config.num_heads, head_dim=head_dim)
        self._norms = {name: _load_norm(block, name) for name in ("norm1", "norm2", "norm3", "mlp.norm")}
        bias = np.concatenate([block.values(f"attn.{name}") for name in ("q_bias", "zero_k_bias", "v_bias")])
        self._qkv = _Linear(weight=block.matrix("attn.qkv.weight"), bias=self.backend.from_numpy(bias))
        narrow = averaging_projection(block.values("attn.proj.weight"), config.num_heads, head_dim)
        self._attention_proj = _Linear(
            weight=self.backend.weight(Matrix.from_float32("pre_block.attn.proj.weight", narrow)),
            bias=block.vector("attn.proj.bias"),
        )
        self._proj = _pointwise(block, "proj")
        self._w0, self._w1, self._w2 = (_pointwise(block, f"mlp.w{i}") for i in range(3))

    def run(self, x: Array) -> Array:
        b = self.backend
        h = self._linear(self._proj, self._norm("norm3", x))
        qkv = self._linear(self._qkv, self._norm("norm1", x))
        attended = b.attention(qkv, self._layout, causal=True)
        h = b.scaled_residual(h, self._linear(self._attention_proj, attended))
        y = self._norm("mlp.norm", self._norm("norm2", h))
        gate = b.linear(y, self._w0.weight, bias=self._w0.bias, activation=Activation.GELU_TANH)
        # The product of two [A, 64] arrays on the host: no operation multiplies arrays, and this is the only place.
        product = b.from_numpy(b.to_numpy(gate) * b.to_numpy(self._linear(self._w1, y)))
        return b.scaled_residual(h, self._linear(self._w2, product))

    def _norm(self, name: str, x: Array) -> Array:
        return self.backend.layer_norm(x, *self._norms[name], LAYER_NORM_EPS)

    def _linear(self, linear: _Linear, x: Array) -> Array:
        return self.backend.linear(x, linear.weight, bias=linear.bias)


def averaging_projection(weight: np.ndarray, heads: int, head_dim: int) -> np.ndarray:
    """proj(mean over neighbours(mean over heads(y))) as one matrix [out, heads * head_dim].

    weight: of proj, [out, in]; `head_dim / in` neighbours are averaged. Raises CheckpointError when that is not whole.
    """
    neighbours, rest = divmod(head_dim, weight.shape[1])
    if rest:
        raise CheckpointError(f"A head of {head_dim} channels cannot be averaged to {weight.shape[1]} channels evenly.")
    return np.tile(np.repeat(weight / np.float32(heads * neighbours), neighbours, axis=1), (1, heads))


def trunk_plan(config: AudioVaeConfig) -> BlockPlan:
    """Blocks of the convolution stack, in latents of 800 samples (released model)."""
    hop = config.samples_per_latent
    span = Span(0, 0).widened(LAST_KERNEL // 2)
    for rate in reversed(config.encoder_rates):
        spec = _strided(rate)
        span = span.before_conv(spec.kernel, spec.stride, spec.pad_left)
        span = span.widened(sum(dilation * (UNIT_KERNEL // 2) for dilation in UNIT_DILATIONS))
    span = span.widened(FIRST_KERNEL // 2)
    return BlockPlan(
        block=BLOCK_LATENTS, halo_before=-(span.first // hop), halo_after=span.last // hop, unit_in=hop, unit_out=1
    )


def _same(kernel: int, dilation: int = 1) -> Conv1d:
    padding = dilation * (kernel // 2)
    return Conv1d(kernel=kernel, dilation=dilation, pad_left=padding, pad_right=padding)


def _strided(rate: int) -> Conv1d:
    padding = (rate + 1) // 2
    return Conv1d(kernel=2 * rate, stride=rate, pad_left=padding, pad_right=padding)


def _load_norm(block: Block, name: str) -> tuple[Array, Array]:
    return block.vector(f"{name}.weight"), block.vector(f"{name}.bias")


def _pointwise(block: Block, name: str) -> _Linear:
    """A product over channels, stored as a matrix or as a convolution of kernel 1."""
    values = block.values(f"{name}.weight")
    matrix = Matrix.from_float32(block.prefix + name, values.reshape(values.shape[:2]))
    return _Linear(weight=block.backend.weight(matrix), bias=block.vector(f"{name}.bias"))
