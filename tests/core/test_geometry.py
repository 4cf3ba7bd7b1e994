"""Seconds, frames, latents and canvases.

Tier: executed reference (the arithmetic of diffusers MiniMax-H3) over all legal frame counts; closed form elsewhere.
"""

import pytest
from diffusers.modular_pipelines.minimax_h3.modular_pipeline import (
    align_num_frames,
    audio_latent_num_frames,
    video_latent_num_frames,
)

from core import geometry
from core.errors import RequestError
from core.geometry import Canvas

LEGAL_FRAME_COUNTS = range(22, 363, 17)


def test_legal_frame_counts_and_their_latents_are_the_published_ones():
    counts = [(f, geometry.latent_frame_count(f), geometry.audio_latent_count(f)) for f in LEGAL_FRAME_COUNTS]
    assert counts[:4] == [(22, 7, 37), (39, 12, 65), (56, 17, 93), (73, 22, 122)]
    assert counts[-1] == (362, 107, 603)
    assert counts == [(f, video_latent_num_frames(f, 17, 5), audio_latent_num_frames(f)) for f in LEGAL_FRAME_COUNTS]


def test_frame_count_rounds_up_to_the_next_decodable_value_as_in_diffusers():
    for wish in range(6, 363):
        assert geometry.snap_frame_count(wish) == align_num_frames(wish, 17, 5)


@pytest.mark.parametrize(("wish", "snapped"), [(-3, 22), (0, 22), (1, 22), (5, 22), (363, 362), (10_000, 362)])
def test_frame_count_stays_within_what_the_model_decodes(wish, snapped):
    assert geometry.snap_frame_count(wish) == snapped


@pytest.mark.parametrize("frame_count", [5, 21, 23, 24, 49])
def test_undecodable_frame_counts_are_refused_with_the_next_one(frame_count):
    with pytest.raises(RequestError) as error:
        geometry.latent_frame_count(frame_count)
    assert str(geometry.snap_frame_count(frame_count)) in error.value.hint


@pytest.mark.parametrize(
    ("seconds", "frame_count"), [(0.1, 22), (22 / 24, 22), (1.0, 39), (5.0, 124), (15.0, 362), (60.0, 362)]
)
def test_seconds_become_a_clip_at_least_that_long(seconds, frame_count):
    assert geometry.frame_count_for_seconds(seconds) == frame_count


def test_every_side_snaps_to_the_nearest_multiple_of_32():
    for value in range(1, 2000):
        side = geometry.snap_side(value)
        assert side % 32 == 0 and side >= 32
        assert abs(side - value) <= 16 or value < 32
    assert geometry.snap_side(48) == 64  # a tie goes up


def test_a_snapped_canvas_never_exceeds_the_models_area_and_uses_most_of_it():
    for width in range(700, 4000, 37):
        for height in (width, width * 9 // 16, width * 3 // 4, width // 4):
            snapped = geometry.snap_canvas(width, height)
            area = snapped[0] * snapped[1]
            assert area <= 768 * 1344 and not snapped[0] % 32 and not snapped[1] % 32
            if width * height > 1.1 * 768 * 1344:
                assert area > 0.95 * 768 * 1344
                assert abs(snapped[0] * height / (snapped[1] * width) - 1) < 0.04


@pytest.mark.parametrize(("width", "height"), [(0, 32), (32, 0), (100, 64), (64, 100), (-32, 64)])
def test_illegal_canvases_are_refused_with_the_side_in_the_message(width, height):
    with pytest.raises(RequestError) as error:
        Canvas(width=width, height=height)
    assert ("width" if width % 32 or width <= 0 else "height") in str(error.value)


@pytest.mark.parametrize(("size", "frame_count", "rows_per_frame", "video_rows", "audio_rows"), [
    ((256, 256), 22, 64, 448, 74), ((512, 512), 107, 256, 8192, 356), ((864, 480), 243, 405, 29160, 810),
    ((1344, 768), 362, 1008, 107856, 1206),
])  # fmt: skip
def test_row_counts_are_the_published_ones(size, frame_count, rows_per_frame, video_rows, audio_rows):
    canvas = Canvas(width=size[0], height=size[1])
    grid = geometry.latent_grid(canvas, frame_count)
    assert (grid.latent_w, grid.latent_h) == (size[0] // 16, size[1] // 16)
    assert canvas.rows_per_latent_frame == grid.rows_per_frame == rows_per_frame
    assert (grid.video_rows, grid.audio_rows) == (video_rows, audio_rows)


def test_frames_belong_to_latents_in_groups_of_1_4_4_4_4():
    groups = [0] * 7
    for frame in range(22):
        groups[geometry.latent_index_of_frame(frame)] += 1
    assert groups == [1, 4, 4, 4, 4, 1, 4]
    assert [geometry.latent_index_of_frame(f) for f in (0, 1, 4, 5, 16, 17, 18)] == [0, 1, 1, 2, 4, 5, 6]
