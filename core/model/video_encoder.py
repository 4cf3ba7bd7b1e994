"""The video VAE's encoder: a causal convolution network that turns pictures into the moments of a latent.

A clip of 17 frames is fed as 1 + 4 + 4 + 4 + 4; every convolution keeps the newest input frames it will need again, so
a tile needs the memory of 4 frames. One latent leaves per feed, and latent 5 k is the encoding of frame 17 k alone.

The trap: time is padded with zeros in front, once per clip, after height and width were padded by reflection; and the
downsampling convolutions reflect only at the bottom and the right. A single picture meets only zeros in the past, so a
still encoder uses the newest temporal tap of every kernel: a third of the work, equal up to rounding.
Proof: tests/core/model/test_video_encoder.py, against the diffusers MiniMax-H3 encoder.
"""

from dataclasses import dataclass, replace

import numpy as np

from core import constants as c
from core.errors import RequestError
from core.kernels.backend import Array, Conv3d, Weight
from core.kernels.provider import Block, Weights
from core.model.config import VideoVaeConfig
from core.model.pixels import normalise_pixels
from core.model.video_clips import normalise_latent
from core.model.video_tiling import BandStitcher, plan_tiles

LEAST_SIDE_PX = 32  # below, reflection at the coarsest level has nothing to reflect
LOGVAR_RANGE = (-30.0, 20.0)
POINTWISE = Conv3d(kernel_t=1, kernel=1, pad_before=0, pad_after=0, history=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Moments:
    """Posterior of a latent before normalisation, channels last: mean and logvar [t, h, w, 24] float32."""

    mean: np.ndarray
    logvar: np.ndarray


@dataclass(frozen=True, slots=True, kw_only=True)
class _Conv:
    name: str
    weight: Weight
    bias: Array
    spec: Conv3d

    @property
    def remembered(self) -> int:
        """Newest input frames that the next feed needs again."""
        return self.spec.kernel_t - self.spec.stride_t


@dataclass(frozen=True, slots=True, kw_only=True)
class _Norm:
    weight: Array
    bias: Array


@dataclass(frozen=True, slots=True, kw_only=True)
class _Resnet:
    norm1: _Norm
    conv1: _Conv
    norm2: _Norm
    conv2: _Conv
    shortcut: _Conv | None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Level:
    resnets: tuple[_Resnet, ...]
    downsample: _Conv | None


class VideoEncoder:
    """Encodes clips or single pictures, tile by tile. All weights are repacked once and held, 0.67 GiB released size.

    still: for single pictures only, with one temporal tap per kernel
    """

    def __init__(self, config: VideoVaeConfig, weights: Weights, *, still: bool = False):
        self.config = config
        self.backend = weights.backend
        self.still = still
        with weights.block("encoder") as block:
            self._conv_in = self._load_conv(block, "conv_in", Conv3d())
            self._norm_out = _load_norm(block, "norm_out")
            self._conv_out = self._load_conv(block, "conv_out", Conv3d())
        self._levels = [self._load_level(weights, i) for i in range(len(config.block_out_channels))]
        self._quant = self._load_conv(weights.root, "quant_conv", POINTWISE)

    def encode(self, pictures: np.ndarray) -> Moments:
        """Moments of uint8 RGB pictures (or normalised float32 ones) [frames, height, width, 3].

        One picture gives one latent frame. Otherwise the last picture repeats to a multiple of 17, each 17 frames give
        5 latent frames, and the last 3 of all are dropped: 17 n + 5 frames give 5 n + 2 latent frames.
        """
        frames, height, width = pictures.shape[:3]
        if min(height, width) < LEAST_SIDE_PX:
            raise RequestError(f"A picture of {width}x{height} px cannot be encoded; both sides must be >= 32 px.")
        if self.still and frames != 1:
            raise RequestError(f"{frames} frames were given to the encoder of single pictures; it takes one.")
        if frames == 1:
            return self._moments([self._encode_clip(pictures)])
        return self._moments([self._encode_clip(clip) for clip in _clips(pictures, self.config.temporal_ratio)])

    def _moments(self, clips: list[np.ndarray]) -> Moments:
        mean, logvar = np.split(np.concatenate(clips), 2, axis=-1)
        return Moments(mean=mean, logvar=np.clip(logvar, *LOGVAR_RANGE))

    def _encode_clip(self, pictures: np.ndarray) -> np.ndarray:
        """Blended moments [latents, h, w, 48] of up to 17 frames. Blending comes before sampling."""
        grid = plan_tiles(self.config, *pictures.shape[1:3])
        tiles = (self._encode_tile(tile) for tile in grid.cut(pictures))
        bands = BandStitcher(grid.divided(self.config.spatial_ratio)).bands(tiles)
        return np.concatenate([band.copy() for _, band in bands], axis=1)

    def _encode_tile(self, pictures: np.ndarray) -> np.ndarray:
        """Moments [latents, h, w, 48] of one tile of one clip."""
        past: dict[str, Array] = {}
        moments, start = [], 0
        while start < len(pictures):
            stop = start + (self.config.temporal_ratio if start else 1)
            feed = pictures[start:stop]
            feed = normalise_pixels(feed) if feed.dtype == np.uint8 else np.ascontiguousarray(feed)
            # A copy: the backend's array dies with this feed, and the stitcher blends in place.
            moments.append(self.backend.to_numpy(self._forward(self.backend.from_numpy(feed), past)).copy())
            start = stop
        return np.concatenate(moments)

    def _forward(self, x: Array, past: dict[str, Array]) -> Array:
        h = self._convolve(self._conv_in, x, past)
        for level in self._levels:
            for resnet in level.resnets:
                h = self._run_resnet(resnet, h, past)
            if level.downsample:
                h = self._convolve(level.downsample, h, past)
        h = self._convolve(self._conv_out, self._norm_silu(self._norm_out, h), past)
        return self._convolve(self._quant, h, past)

    def _run_resnet(self, resnet: _Resnet, h: Array, past: dict[str, Array]) -> Array:
        y = self._convolve(resnet.conv1, self._norm_silu(resnet.norm1, h), past)
        y = self._convolve(resnet.conv2, self._norm_silu(resnet.norm2, y), past)
        residual = self._convolve(resnet.shortcut, h, past) if resnet.shortcut else h
        return self.backend.scaled_residual(residual, y)

    def _norm_silu(self, norm: _Norm, x: Array) -> Array:
        groups, eps = self.config.norm_groups, self.config.norm_eps
        return self.backend.group_norm_silu(x, norm.weight, norm.bias, groups=groups, eps=eps)

    def _convolve(self, conv: _Conv, x: Array, past: dict[str, Array]) -> Array:
        """One convolution over the frames remembered from the last feed and the new ones."""
        b, spec, before = self.backend, conv.spec, past.get(conv.name)
        if before is not None:
            spec = replace(spec, history=before.shape[0])
        y = b.conv3d(x, conv.weight, conv.bias, spec, past=before)
        if conv.remembered:
            past[conv.name] = self._newest(before, x, conv.remembered)
        return y

    def _newest(self, before: Array | None, x: Array, count: int) -> Array:
        """A copy of the last `count` frames of before + x; before the clip there were zeros."""
        b, frames = self.backend, x.shape[0]
        if frames >= count:
            return b.take_rows(x, b.from_numpy(np.arange(frames - count, frames, dtype=np.int32)))
        missing = count - frames
        if before is None:
            older = b.from_numpy(np.zeros((missing, *x.shape[1:]), dtype=np.float32))
        else:
            older = b.row_slice(before, before.shape[0] - missing, before.shape[0])
        return b.concat_rows([older, x])

    # ---- weights
    def _load_level(self, weights: Weights, index: int) -> _Level:
        config = self.config
        strides = (config.temporal_downsample[index], config.spatial_downsample[index])
        with weights.block(f"encoder.down.{index}") as block:
            downsample = None
            if strides != (1, 1):
                spec = Conv3d(stride_t=strides[0], stride=strides[1], pad_before=0, pad_after=strides[1] - 1)
                downsample = self._load_conv(block, "downsample.conv", spec)
            resnets = tuple(self._load_resnet(block, f"block.{j}") for j in range(config.layers_per_block))
            return _Level(resnets=resnets, downsample=downsample)

    def _load_resnet(self, block: Block, name: str) -> _Resnet:
        has_shortcut = block.has(f"{name}.nin_shortcut.weight")
        return _Resnet(
            norm1=_load_norm(block, f"{name}.norm1"),
            conv1=self._load_conv(block, f"{name}.conv1", Conv3d()),
            norm2=_load_norm(block, f"{name}.norm2"),
            conv2=self._load_conv(block, f"{name}.conv2", Conv3d()),
            shortcut=self._load_conv(block, f"{name}.nin_shortcut", POINTWISE) if has_shortcut else None,
        )

    def _load_conv(self, block: Block, name: str, spec: Conv3d) -> _Conv:
        values = block.values(f"{name}.weight")
        if self.still:
            values, spec = values[:, :, -1:], replace(spec, kernel_t=1, stride_t=1, history=0)
        return _Conv(
            name=block.prefix + name,
            weight=self.backend.conv_weight(np.ascontiguousarray(values)),
            bias=block.vector(f"{name}.bias"),
            spec=spec,
        )


def _load_norm(block: Block, name: str) -> _Norm:
    return _Norm(weight=block.vector(f"{name}.weight"), bias=block.vector(f"{name}.bias"))


def _clips(pictures: np.ndarray, temporal_ratio: int) -> list[np.ndarray]:
    """Clips of 17 frames. Of the last one only what the 2 kept latent frames see, filled up with its last picture."""
    count = -(-len(pictures) // c.CLIP_FRAMES)
    seen = 1 + temporal_ratio * (c.CLIP_LATENTS - c.VAE_TOKEN_DROP - 1)
    last = pictures[c.CLIP_FRAMES * (count - 1) :][:seen]
    last = np.concatenate([last, np.repeat(last[-1:], seen - len(last), axis=0)])
    whole = [pictures[c.CLIP_FRAMES * k : c.CLIP_FRAMES * (k + 1)] for k in range(count - 1)]
    return [*whole, last]


def condition_latent(config: VideoVaeConfig, moments: Moments, noise: np.ndarray) -> np.ndarray:
    """Model-space latent [24, t, h, w] of a keyframe or a visual reference.

    noise:   [24, t, h, w] float32 standard normal; the reference draws it with a fresh generator of seed 42 for each
             condition, over the whole stitched shape
    returns: (float16(mean + exp(logvar / 2) * noise) - latents_mean) / latents_std; the rounding is part of the recipe
    """
    std = np.exp(0.5 * moments.logvar.astype(np.float64)).astype(np.float32)  # rounded once: the same on every machine
    sample = moments.mean + std * np.moveaxis(noise, 0, -1)
    return normalise_latent(sample.astype(np.float16).astype(np.float32), config.latents_mean, config.latents_std)
