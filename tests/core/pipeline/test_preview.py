"""Tier: closed form. A known linear map must come back from latents and frames made with it.

Cannot catch: a map that is right for these latents but misleading for a real model's.
"""

import json

import numpy as np
import pytest

from core.pipeline.preview import CellColours, LatentRgbMap, Previewer, RgbFit, leading_directions

RNG = np.random.default_rng(5)


def known_map() -> LatentRgbMap:
    return LatentRgbMap(RNG.normal(size=(24, 3)).astype(np.float32) * 0.05, np.array([0.1, -0.2, 0.0], np.float32))


def frames_of(latent: np.ndarray, rgb_map: LatentRgbMap, frame_count: int) -> np.ndarray:
    """Frames whose every cell has the colour the map gives to its latent."""
    from_latent = [latent[:, f // 17 * 5 + (f % 17 + 3) // 4] for f in range(frame_count)]
    return np.stack([rgb_map.picture(cell).repeat(16, 0).repeat(16, 1) for cell in from_latent])


@pytest.fixture
def clip():
    latent = RNG.normal(size=(24, 12, 4, 6)).astype(np.float32)
    rgb_map = known_map()
    return latent, rgb_map, frames_of(latent, rgb_map, 39)


def colours_of(frames: np.ndarray) -> CellColours:
    colours = CellColours(12, 4, 6)
    for start in range(0, len(frames), 17):
        colours.add(frames[start : start + 17])
    return colours


def test_a_known_map_comes_back_from_decoded_frames(clip, tmp_path):
    latent, rgb_map, frames = clip
    previewer = Previewer(tmp_path / "fit.json", None)
    previewer.learn(latent, colours_of(frames))
    assert np.abs(previewer.map.matrix - rgb_map.matrix).max() < 0.01
    assert np.abs(previewer.picture(latent).astype(int) - rgb_map.picture(latent[:, 6])).max() <= 6


def test_the_fit_is_kept_between_runs(clip, tmp_path):
    latent, _, frames = clip
    first = Previewer(tmp_path / "fit.json", None)
    first.learn(latent, colours_of(frames))
    assert np.array_equal(Previewer(tmp_path / "fit.json", known_map()).map.matrix, first.map.matrix)


NOT_NUMBERS = json.dumps({"version": 1, "gram": [[float("nan")] * 25] * 25, "cross": [[0.0] * 3] * 25})


@pytest.mark.parametrize("content", ["", "{}", "[]", "7", '{"version": 0, "gram": [], "cross": []}', NOT_NUMBERS])
def test_a_damaged_fit_file_is_ignored(content, tmp_path):
    (tmp_path / "fit.json").write_text(content)
    shipped = known_map()
    assert Previewer(tmp_path / "fit.json", shipped).map is shipped
    assert RgbFit.load(tmp_path / "fit.json").solve() is None


def test_unseen_latent_frames_do_not_enter_the_fit(clip):
    latent, _, frames = clip
    colours = CellColours(12, 4, 6)
    colours.add(frames[:5])
    assert np.isfinite(colours.means()[:2]).all() and np.isnan(colours.means()[3:]).all()
    fit = RgbFit()
    fit.add(latent, colours.means())
    assert fit.gram[-1, -1] == 2 * 4 * 6


def test_without_any_map_the_strongest_directions_are_shown():
    latent = np.zeros((24, 7, 4, 4), np.float32)
    latent[3, :, :2] = 2.0
    picture = leading_directions(latent).picture(latent[:, 3])
    assert np.abs(picture[0, 0].astype(int) - picture[3, 3]).max() > 60
