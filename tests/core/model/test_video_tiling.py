"""Tile plans and blending.

Tier: executed reference (diffusers MiniMax-H3), bit for bit. Cannot tell whether a tile's own pixels are right.
"""

import numpy as np
import pytest
import torch

from core.errors import RequestError
from core.model.config import VideoVaeConfig
from core.model.video_tiling import BandStitcher, plan_axis, plan_tiles
from tests.oracles import vae

RELEASED = VideoVaeConfig()


def random_tiles(grid, frames=3, channels=2):
    shape = (grid.count, frames, grid.rows.size, grid.columns.size, channels)
    return np.random.default_rng(grid.count).normal(size=shape).astype(np.float32)


def stitched(grid, tiles):
    return np.concatenate([band.copy() for _, band in BandStitcher(grid).bands(iter(tiles.copy()))], axis=1)


@pytest.mark.parametrize(("tile", "overlap"), [(256, 64), (64, 16), (48, 16)])
def test_plans_equal_the_reference_for_every_length(tile, overlap):
    for length in range(16, 2064, 16):
        plan = plan_axis(length, tile, overlap, 16)
        starts, sizes, overlaps = vae.video_vae()._split_tiles(length, tile, overlap)
        assert (list(plan.starts), list(plan.overlaps)) == (starts, overlaps), length
        assert {plan.size} == set(sizes), length


def test_released_sizes_have_the_published_tiles():
    plan = plan_axis(864, 256, 64, 16)
    assert plan.starts == (0, 144, 288, 448, 608)
    assert plan.overlaps == (112, 112, 96, 96)
    assert plan_tiles(RELEASED, 768, 1344).count == 28


@pytest.mark.parametrize(("height", "width"), [(96, 80), (48, 112), (144, 48), (32, 48)])
def test_bands_have_the_bits_of_the_reference(height, width):
    grid = plan_tiles(vae.VIDEO, height, width)
    tiles = random_tiles(grid)
    columns = len(grid.columns.starts)
    nested = [
        [vae.channels_first(tile) for tile in tiles[row : row + columns]] for row in range(0, grid.count, columns)
    ]
    expected = vae.video_vae()._stitch_tiles(nested, list(grid.rows.overlaps), list(grid.columns.overlaps))
    assert torch.equal(vae.channels_first(stitched(grid, tiles)), expected)


def test_bands_follow_each_other_without_gap():
    grid = plan_tiles(vae.VIDEO, 96, 80)
    bands = [(top, band.shape[1:3]) for top, band in BandStitcher(grid).bands(iter(random_tiles(grid)))]
    assert bands == [(0, (16, 80)), (16, (32, 80)), (48, (48, 80))]


def test_equal_tiles_stay_what_they_are():
    grid = plan_tiles(vae.VIDEO, 96, 80)
    assert np.allclose(stitched(grid, np.full_like(random_tiles(grid), 0.75)), 0.75, rtol=1e-6)


@pytest.mark.parametrize(("height", "width", "side"), [(40, 64, "height"), (64, 0, "width"), (64, 100, "width")])
def test_impossible_canvases_are_refused_by_name(height, width, side):
    with pytest.raises(RequestError, match=f"Canvas {side}"):
        plan_tiles(RELEASED, height, width)
