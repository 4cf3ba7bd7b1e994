"""The video VAE's decoder: a vision transformer that turns a tile of one clip into pixels.

Every latent cell is a token; learned registers and one zero token follow, all tokens see each other, and each latent
token becomes a block of 4 frames x 16 x 16 pixels. Positions run over [-1, 1) of *this* tile and clip.

The trap: the sums of a product depend on its row count, so tiles are never batched and a tile's rows never split. Then
one layer serving many tiles gives the very bits of one tile running through all layers, and `LayerMode` is free to keep
every layer loaded or to load each layer once per clip for all of its tiles.
Proof: tests/core/model/test_video_decoder.py, against the diffusers MiniMax-H3 decoder.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from enum import Enum

import numpy as np

from core.kernels.backend import Accuracy, Activation, Array, Backend, HeadLayout, Weight
from core.kernels.matrix import Matrix
from core.kernels.provider import Block, Weights
from core.model.config import VideoVaeConfig
from core.model.video_clips import kept_frames

PICTURE_CHANNELS = 3


class LayerMode(Enum):
    """Where the layers' weights are while tiles are decoded; the pictures are the same."""

    RESIDENT = "resident"  # all loaded, one tile in flight
    STREAMED = "streamed"  # one loaded at a time, all tiles of a clip in flight


@dataclass(frozen=True, slots=True, kw_only=True)
class _Linear:
    weight: Weight
    bias: Array


@dataclass(frozen=True, slots=True, kw_only=True)
class _Layer:
    norm1: Array
    qkv: _Linear
    out: _Linear
    scale1: Array
    norm2: Array
    up: _Linear  # rows [gate; value]
    down: _Linear
    scale2: Array


@dataclass(frozen=True, slots=True, kw_only=True)
class _Workspace:
    """Buffers and tables shared by all tiles of one shape. `qkv`, `inner`, `projected`, `patches` lie in one buffer."""

    narrow: Array
    qkv: Array
    inner: Array
    projected: Array
    patches: Array
    cos: Array
    sin: Array


class VideoDecoder:
    """Decodes tiles; made by `open_video_decoder`. Not thread-safe."""

    def __init__(
        self, config: VideoVaeConfig, weights: Weights, layers: Iterable[_Layer], mode: LayerMode, accuracy: Accuracy
    ):
        root, backend = weights.root, weights.backend
        self.config = config
        self.backend: Backend = backend
        self.mode = mode
        self.accuracy = accuracy
        self._layers = layers
        self._layout = HeadLayout(
            heads=config.decoder_heads, kv_heads=config.decoder_heads, head_dim=config.decoder_head_dim
        )
        # The 1x1x1 convolution is a product over channels, and needs no convolution kernel as one.
        square = root.values("post_quant_conv.weight").reshape(config.latent_channels, -1)
        self._post_quant = _Linear(
            weight=backend.weight(Matrix.from_float32("post_quant_conv.weight", square)),
            bias=root.vector("post_quant_conv.bias"),
        )
        self._embedder = _linear(root, "decoder.x_embedder")
        registers = root.values("decoder.register_tokens")[0]
        zero_token = np.zeros((1, config.decoder_dim), dtype=np.float32)
        self._suffix = backend.from_numpy(np.concatenate([registers, zero_token]))
        self._norm_out = (root.vector("decoder.norm_out.weight"), root.vector("decoder.norm_out.bias"))
        self._proj_out = _linear(root, "decoder.proj_out")
        self._workspace: tuple[tuple[int, ...], _Workspace] | None = None

    def decode_tiles(
        self,
        latents: Sequence[np.ndarray],
        *,
        frames: np.ndarray | None = None,
        advance: Callable[[], None] = lambda: None,
    ) -> Iterator[np.ndarray]:
        """Pixels of tiles of equal shape, in order.

        latents: VAE-space [t, h, w, 24] float32 each
        frames:  indices of the frames wanted of 4 t; default the 22 that a 7-latent window contributes
        advance: called after each layer of each tile
        yields:  normalised pixels [frames, 16 h, 16 w, 3] float32, owned by the caller
        """
        wanted = kept_frames(self.config.temporal_ratio) if frames is None else frames
        in_flight = 1 if self.mode is LayerMode.RESIDENT else len(latents)
        for start in range(0, len(latents), in_flight):
            group = latents[start : start + in_flight]
            work = self._workspace_for(group[0].shape[:3])
            states = deque(self._embed(latent) for latent in group)
            for layer in self._layers:
                for state in states:
                    self._run_layer(layer, state, work)
                    advance()
            while states:
                yield self._pixels(states.popleft(), group[0].shape[:3], work, wanted)

    def _workspace_for(self, grid: tuple[int, ...]) -> _Workspace:
        if self._workspace is None or self._workspace[0] != grid:
            self._workspace = (grid, _make_workspace(self.backend, self.config, grid))
        return self._workspace[1]

    def _embed(self, latent: np.ndarray) -> Array:
        """Residual stream [t h w + registers + 1, dim] of a tile."""
        b = self.backend
        cells = b.from_numpy(np.ascontiguousarray(latent).reshape(-1, latent.shape[-1]))
        cells = b.linear(cells, self._post_quant.weight, bias=self._post_quant.bias)
        tokens = b.linear(cells, self._embedder.weight, bias=self._embedder.bias)
        return b.concat_rows([tokens, self._suffix])

    def _run_layer(self, layer: _Layer, x: Array, work: _Workspace) -> None:
        """x += scale1 * attention(norm1(x)); x += scale2 * feed_forward(norm2(x)); in place."""
        b, eps, accuracy = self.backend, self.config.decoder_eps, self.accuracy
        y = b.rms_norm(x, layer.norm1, eps, out=work.narrow)
        b.linear(y, layer.qkv.weight, bias=layer.qkv.bias, accuracy=accuracy, out=work.qkv)
        b.qk_norm_rope(work.qkv, self._layout, q_weight=None, k_weight=None, eps=eps, cos=work.cos, sin=work.sin)
        y = b.attention(work.qkv, self._layout, out=work.narrow)
        y = b.linear(y, layer.out.weight, bias=layer.out.bias, accuracy=accuracy, out=work.projected)
        b.scaled_residual(x, y, layer.scale1)

        y = b.rms_norm(x, layer.norm2, eps, out=work.narrow)
        y = b.linear(
            y, layer.up.weight, bias=layer.up.bias, activation=Activation.SWIGLU, accuracy=accuracy, out=work.inner
        )
        y = b.linear(y, layer.down.weight, bias=layer.down.bias, accuracy=accuracy, out=work.narrow)
        b.scaled_residual(x, y, layer.scale2)

    def _pixels(self, x: Array, grid: tuple[int, ...], work: _Workspace, frames: np.ndarray) -> np.ndarray:
        """Wanted frames of a finished residual stream. A token's patch is (rgb, frame, row, column), rgb slowest."""
        b, (t, h, w) = self.backend, grid
        ratio_t, ratio = self.config.temporal_ratio, self.config.spatial_ratio
        y = b.layer_norm(x, *self._norm_out, self.config.decoder_eps, out=work.narrow)
        y = b.linear(y, self._proj_out.weight, bias=self._proj_out.bias, out=work.patches)
        patches = b.to_numpy(y)[: t * h * w].reshape(t, h, w, PICTURE_CHANNELS, ratio_t, ratio, ratio)
        pixels = np.empty((len(frames), h * ratio, w * ratio, PICTURE_CHANNELS), dtype=np.float32)
        for target, frame in zip(pixels, frames, strict=True):
            patch = patches[frame // ratio_t, :, :, :, frame % ratio_t]  # [h, w, rgb, row, column]
            target.reshape(h, ratio, w, ratio, PICTURE_CHANNELS)[...] = patch.transpose(0, 3, 1, 4, 2)
        return pixels


@contextmanager
def open_video_decoder(
    config: VideoVaeConfig,
    weights: Weights,
    mode: LayerMode = LayerMode.RESIDENT,
    accuracy: Accuracy = Accuracy.FLOAT,
) -> Iterator[VideoDecoder]:
    """A decoder over `weights`, whose layers are held for as long as the context or the pass, as `mode` says.

    accuracy: of the products of its layers; attention and the projections around the layers stay float32
    """
    with ExitStack() as stack:
        if mode is LayerMode.RESIDENT:
            blocks = [stack.enter_context(weights.block(_prefix(i))) for i in range(config.decoder_layers)]
            layers: Iterable[_Layer] = [_load_layer(block) for block in blocks]
        else:
            layers = _StreamedLayers(config.decoder_layers, weights)
        yield VideoDecoder(config, weights, layers, mode, accuracy)


@dataclass(frozen=True, slots=True)
class _StreamedLayers:
    """Each iteration loads the layers one after another, reading the next one ahead."""

    count: int
    weights: Weights

    def __iter__(self) -> Iterator[_Layer]:
        for i in range(self.count):
            ahead = _prefix((i + 1) % self.count)  # after the last layer comes the first one, for the next clip
            with self.weights.block(_prefix(i), ahead=ahead) as block:
                yield _load_layer(block)


def _prefix(layer: int) -> str:
    return f"decoder.transformer_blocks.{layer}"


def _linear(block: Block, name: str) -> _Linear:
    return _Linear(weight=block.matrix(f"{name}.weight"), bias=block.vector(f"{name}.bias"))


def _load_layer(block: Block) -> _Layer:
    return _Layer(
        norm1=block.vector("norm1.weight"),
        qkv=_linear(block, "attn.to_qkv"),
        out=_linear(block, "attn.to_out"),
        scale1=block.vector("scale1"),
        norm2=block.vector("norm2.weight"),
        up=_linear(block, "ff.w1"),
        down=_linear(block, "ff.w2"),
        scale2=block.vector("scale2"),
    )


# ---- shapes and positions
def token_rows(config: VideoVaeConfig, grid: tuple[int, ...]) -> int:
    """Tokens of a tile [t, h, w]: its cells, the registers and the zero token."""
    t, h, w = grid
    return t * h * w + config.decoder_registers + 1


def _widths(config: VideoVaeConfig) -> dict[str, int]:
    """Columns of the arrays that share the wide buffer; no two of them are alive together."""
    patch = PICTURE_CHANNELS * config.temporal_ratio * config.spatial_ratio**2
    return {
        "qkv": 3 * config.decoder_dim,
        "inner": config.decoder_ffn_mult * config.decoder_dim,
        "projected": config.decoder_dim,
        "patches": patch,
    }


def activation_bytes(config: VideoVaeConfig, grid: tuple[int, ...], in_flight: int) -> int:
    """Bytes of the arrays that a decoder holds for tiles [t, h, w]: residual streams, workspace and rotary tables."""
    columns = config.decoder_dim * (in_flight + 1) + max(_widths(config).values()) + config.decoder_rotary_dim
    return 4 * token_rows(config, grid) * columns


def _make_workspace(backend: Backend, config: VideoVaeConfig, grid: tuple[int, ...]) -> _Workspace:
    rows, widths = token_rows(config, grid), _widths(config)
    wide = backend.empty((rows * max(widths.values()),))
    views = {
        name: backend.reshape(backend.row_slice(wide, 0, rows * width), (rows, width)) for name, width in widths.items()
    }
    cos, sin = rope_tables(config, grid)
    return _Workspace(
        narrow=backend.empty((rows, config.decoder_dim)),
        cos=backend.from_numpy(cos),
        sin=backend.from_numpy(sin),
        **views,
    )


def rope_tables(config: VideoVaeConfig, grid: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """cos, sin [rows, rotary_dim / 2] float32 of a tile [t, h, w]; registers and the zero token sit at (0, 0, 0).

    Positions, frequencies and angles are rounded to float32 as the reference does; cos and sin are rounded once from
    float64, so that every machine gets the same tables.
    """
    count = config.decoder_rotary_dim // 6  # frequencies per axis
    exponent = (np.arange(count) * (6 / config.decoder_rotary_dim)).astype(np.float32)
    frequency = np.float32(1.0) / (config.decoder_rope_theta ** exponent.astype(np.float64)).astype(np.float32)
    axes = [
        np.float32(2.0) * ((np.arange(size, dtype=np.float32) + np.float32(0.5)) / np.float32(size)) - np.float32(1.0)
        for size in grid
    ]
    positions = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, 3)
    positions = np.concatenate([positions, np.zeros((config.decoder_registers + 1, 3), dtype=np.float32)])
    angles = (np.float32(2.0 * np.pi) * positions[:, :, None] * frequency).reshape(len(positions), -1)
    wide = angles.astype(np.float64)
    return np.cos(wide).astype(np.float32), np.sin(wide).astype(np.float32)
