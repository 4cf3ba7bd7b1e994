"""Streaming video decode: finished frames leave clip by clip, and memory does not grow with the length of the video.

    for each clip: for each tile row: decode its tiles, blend, fade the first 5 frames over the carry, emit 8-bit rows

Between clips only 5 float frames are carried; between tile rows only the strips that overlap. Both splits give the very
bits of decoding everything and blending at the end. The trap is the order: tiles are stitched before clips are faded,
and the clamp to 8 bits comes last.
Proof: tests/core/model/test_video_stream.py, bit for bit against diffusers MiniMax-H3 with the same tile decoder.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from core import constants as c
from core.model.config import VideoVaeConfig
from core.model.pixels import denormalise_pixels
from core.model.video_clips import KEPT_FRAMES, WINDOW_LATENTS, clip_count, denormalise_latent, window
from core.model.video_decoder import PICTURE_CHANNELS, LayerMode, activation_bytes
from core.model.video_tiling import BandStitcher, TileGrid, fade_in, plan_tiles

OnProgress = Callable[[int, int], None]  # units done, units in all; a unit is one layer of one tile of one clip


class TileDecoder(Protocol):
    """What decodes tiles; `VideoDecoder` in earnest."""

    def decode_tiles(self, latents: Sequence[np.ndarray], *, advance: Callable[[], None]) -> Iterator[np.ndarray]:
        """Pixels [22, 16 h, 16 w, 3] of latents [7, h, w, 24], one by one, each an array that may be overwritten."""


class VideoStream:
    """One decode. Ask for clips in order: each needs the 5 frames that the one before left behind.

    video_latent: model space [24, 5 n + 2, h, w] float32
    raises:       RequestError when the length or the canvas is not one the decoder takes
    """

    def __init__(
        self,
        tiles: TileDecoder,
        config: VideoVaeConfig,
        video_latent: np.ndarray,
        *,
        on_progress: OnProgress = lambda done, total: None,
    ):
        self.tiles = tiles
        self.config = config
        self.video_latent = video_latent
        self.clips = clip_count(video_latent.shape[1])
        self.height, self.width = (side * config.spatial_ratio for side in video_latent.shape[2:])
        self.grid: TileGrid = plan_tiles(config, self.height, self.width)
        self._carry = np.empty((c.CLIP_TAIL_FRAMES, self.height, self.width, PICTURE_CHANNELS), dtype=np.float32)
        self._on_progress = on_progress
        self._units = 0

    def frames(self) -> Iterator[np.ndarray]:
        """uint8 RGB [n, height, width, 3]: 17 frames per clip, then the last 5."""
        for clip in range(self.clips):
            yield self._clip_frames(clip)
        yield denormalise_pixels(self._carry, np.empty(self._carry.shape, dtype=np.uint8))

    def clip_bands(self, clip: int) -> Iterator[tuple[int, np.ndarray]]:
        """(top, normalised pixels [17, rows, width, 3]) of a clip, band by band; valid until the next is asked for."""
        stride = self.config.spatial_ratio
        latent = denormalise_latent(
            self.video_latent[:, window(clip)], self.config.latents_mean, self.config.latents_std
        )
        tiles = self.tiles.decode_tiles(list(self.grid.divided(stride).cut(latent)), advance=self._advance)
        for top, band in BandStitcher(self.grid).bands(tiles):
            carry = self._carry[:, top : top + band.shape[1]]
            head, tail = band[: c.CLIP_FRAMES], band[c.CLIP_FRAMES :]
            if clip:
                fade_in(head[: c.CLIP_TAIL_FRAMES], carry, axis=0)
            carry[...] = tail
            yield top, head

    def carry(self) -> np.ndarray:
        """Normalised pixels [5, height, width, 3] after the last clip: the end of the video."""
        return self._carry

    def _clip_frames(self, clip: int) -> np.ndarray:
        frames = np.empty((c.CLIP_FRAMES, self.height, self.width, PICTURE_CHANNELS), dtype=np.uint8)
        for top, band in self.clip_bands(clip):
            denormalise_pixels(band, frames[:, top : top + band.shape[1]])
        return frames

    def _advance(self) -> None:
        self._units += 1
        self._on_progress(self._units, self.clips * self.grid.count * self.config.decoder_layers)


def decode_frames(
    tiles: TileDecoder,
    config: VideoVaeConfig,
    video_latent: np.ndarray,
    *,
    on_progress: OnProgress = lambda done, total: None,
) -> Iterator[np.ndarray]:
    """Finished frames of a model-space video latent [24, 5 n + 2, h, w]: uint8 [17, H, W, 3] per clip, then [5, ...].

    Refuses impossible shapes at once, not at the first frame. `Cancelled` comes out of the backend's operations.
    """
    return VideoStream(tiles, config, video_latent, on_progress=on_progress).frames()


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodeBytes:
    """Memory of a streaming decode beside weights, the latent and the backend's own scratch. None grows with time."""

    activations: int
    tile: int
    strips: int
    band: int
    carry: int
    frames: int

    @property
    def pictures(self) -> int:
        """The part on the host, in NumPy."""
        return self.tile + self.strips + self.band + self.carry + self.frames

    @property
    def total(self) -> int:
        return self.activations + self.pictures


def decode_frames_bytes(config: VideoVaeConfig, height: int, width: int, mode: LayerMode) -> DecodeBytes:
    """Peak bytes of `decode_frames` on a canvas in px, when the caller lets go of frames as new ones come."""
    grid = plan_tiles(config, height, width)
    rows, columns, stride = grid.rows, grid.columns, config.spatial_ratio
    pixel = 4 * PICTURE_CHANNELS * KEPT_FRAMES
    in_flight = 1 if mode is LayerMode.RESIDENT else grid.count
    above, left = (max((0, *plan.overlaps)) for plan in (rows, columns))
    # One strip per column waits for the row below; a newer one exists before the one it replaces is spent.
    waiting = len(columns.starts) + (1 if len(rows.starts) > 2 else 0)
    strips = waiting * above * columns.size + min(2, len(columns.overlaps)) * left * rows.size
    return DecodeBytes(
        activations=activation_bytes(config, (WINDOW_LATENTS, rows.size // stride, columns.size // stride), in_flight),
        tile=pixel * rows.size * columns.size,
        strips=pixel * strips,
        band=pixel * rows.longest_kept * width,
        carry=4 * PICTURE_CHANNELS * c.CLIP_TAIL_FRAMES * height * width,
        frames=2 * PICTURE_CHANNELS * c.CLIP_FRAMES * height * width,  # the newest, and the one the caller holds
    )
