"""Spatial tiles of the video VAE: where they lie and how their overlaps are blended.

Tiling is part of the model, not a memory option: the released pictures are blended tiles, and every tile has its own
rotary coordinates. The trap is the order: a tile is blended first with the raw tile above, then with the raw tile to
its left, raw meaning before any blending of its own; in a corner the left neighbour enters without its vertical blend.

`BandStitcher` needs no picture of the whole canvas: it keeps the raw strips that later tiles need and gives one
finished tile row (a band) at a time. NumPy on the host: a few operations per pixel beside a whole network per tile.
Proof: tests/core/model/test_video_tiling.py, bit for bit against the diffusers MiniMax-H3 classes.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from core.errors import RequestError
from core.model.config import VideoVaeConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class AxisPlan:
    """Tiles along one axis: `size` each, at `starts`; neighbours i and i + 1 share `overlaps[i]`. One unit for all."""

    length: int
    size: int
    starts: tuple[int, ...]
    overlaps: tuple[int, ...]

    def divided(self, ratio: int) -> "AxisPlan":
        """The same plan in units of `ratio`: pixels to latent cells."""
        return AxisPlan(
            length=self.length // ratio,
            size=self.size // ratio,
            starts=tuple(start // ratio for start in self.starts),
            overlaps=tuple(overlap // ratio for overlap in self.overlaps),
        )

    def overlap_before(self, index: int) -> int:
        return self.overlaps[index - 1] if index else 0

    def overlap_after(self, index: int) -> int:
        return self.overlaps[index] if index < len(self.overlaps) else 0

    @property
    def longest_kept(self) -> int:
        """Most entries of one tile that reach the result."""
        return max(self.size - self.overlap_after(i) for i in range(len(self.starts)))


@dataclass(frozen=True, slots=True, kw_only=True)
class TileGrid:
    """Tiles of a canvas, row by row."""

    rows: AxisPlan
    columns: AxisPlan

    @property
    def count(self) -> int:
        return len(self.rows.starts) * len(self.columns.starts)

    def divided(self, ratio: int) -> "TileGrid":
        return TileGrid(rows=self.rows.divided(ratio), columns=self.columns.divided(ratio))

    def cut(self, canvas: np.ndarray) -> Iterator[np.ndarray]:
        """Views [frames, rows.size, columns.size, channels] of a [frames, height, width, channels] canvas, by rows."""
        for y in self.rows.starts:
            for x in self.columns.starts:
                yield canvas[:, y : y + self.rows.size, x : x + self.columns.size]


def plan_axis(length: int, tile: int, least_overlap: int, step: int) -> AxisPlan:
    """Fewest tiles that cover `length` with overlaps >= least_overlap; slack goes round-robin in units of `step`."""
    if length <= tile:
        return AxisPlan(length=length, size=length, starts=(0,), overlaps=())
    count = -(-length // tile)
    while tile * count - least_overlap * (count - 1) < length:
        count += 1
    overlaps = [least_overlap] * (count - 1)
    for i in range((tile * count - least_overlap * (count - 1) - length) // step):
        overlaps[i % (count - 1)] += step
    starts = [0]
    for overlap in overlaps:
        starts.append(starts[-1] + tile - overlap)
    return AxisPlan(length=length, size=tile, starts=tuple(starts), overlaps=tuple(overlaps))


def plan_tiles(config: VideoVaeConfig, height: int, width: int) -> TileGrid:
    """Tiles in pixels of a canvas. Raises RequestError when a side is not a positive multiple of the latent stride."""
    stride = config.spatial_ratio
    for name, side in (("height", height), ("width", width)):
        if side < stride or side % stride:
            raise RequestError(f"Canvas {name} is {side} px; the video VAE takes positive multiples of {stride} px.")
    rows, columns = (plan_axis(side, config.tile_px, config.tile_overlap_px, stride) for side in (height, width))
    return TileGrid(rows=rows, columns=columns)


def fade_in(entering: np.ndarray, leaving: np.ndarray, axis: int) -> None:
    """entering = leaving * (1 - i/e) + entering * (i/e) along `axis` of length e, in place; `leaving` is spent.

    The weight of `entering` starts at 0 and never reaches 1, so the first entry is entirely `leaving`.
    """
    extent = entering.shape[axis]
    shape = [1] * entering.ndim
    shape[axis] = extent
    weight = (np.arange(extent, dtype=np.float32) / np.float32(extent)).reshape(shape)
    leaving *= 1 - weight
    entering *= weight
    entering += leaving


class BandStitcher:
    """Joins the tiles of one clip, given row by row, into bands.

    tiles:   iterator of float32 [frames, rows.size, columns.size, channels]; each is overwritten
    yields:  (top, band [frames, height of the band, width, channels]); a band is valid until the next one is asked for
    """

    def __init__(self, grid: TileGrid):
        self.grid = grid
        self._above: list[np.ndarray | None] = [None] * len(grid.columns.starts)
        self._left: np.ndarray | None = None

    def bands(self, tiles: Iterator[np.ndarray]) -> Iterator[tuple[int, np.ndarray]]:
        rows, columns = self.grid.rows, self.grid.columns
        buffer = None
        for r, top in enumerate(rows.starts):
            for column in range(len(columns.starts)):
                piece = self._blended(next(tiles), r, column)
                if buffer is None:
                    shape = (piece.shape[0], rows.longest_kept, columns.length, piece.shape[-1])
                    buffer = np.empty(shape, dtype=np.float32)
                left = columns.starts[column]
                buffer[:, : piece.shape[1], left : left + piece.shape[2]] = piece
                del piece  # a view that would keep the tile while the next one is computed
            yield top, buffer[:, : rows.size - rows.overlap_after(r)]

    def _blended(self, tile: np.ndarray, row: int, column: int) -> np.ndarray:
        """The part of a tile that stays, blended. Its strips are copied first: later tiles blend with raw ones."""
        rows, columns = self.grid.rows, self.grid.columns
        below, right = rows.overlap_after(row), columns.overlap_after(column)
        bottom_strip = tile[:, rows.size - below :].copy() if below else None
        right_strip = tile[:, :, columns.size - right :].copy() if right else None
        if row:
            fade_in(tile[:, : rows.overlap_before(row)], self._above[column], axis=1)
        if column:
            fade_in(tile[:, :, : columns.overlap_before(column)], self._left, axis=2)
        self._above[column], self._left = bottom_strip, right_strip
        return tile[:, : rows.size - below, : columns.size - right]
