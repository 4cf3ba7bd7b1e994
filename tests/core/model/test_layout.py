"""Packed layouts and latent rows.

Tier: executed reference (diffusers MiniMax-H3 layout functions) for every row, closed form for golden coordinates.
Cannot catch an error that diffusers shares, nor a wrong number of reference latents (that is the encoders' matter).
"""

import itertools

import numpy as np
import pytest
import torch
from diffusers.modular_pipelines.minimax_h3.before_denoise import patchify_video_latents

from core.errors import RequestError
from core.geometry import Canvas, LatentGrid, latent_grid
from core.model.layout import (
    AudioReference,
    ImageReference,
    KeyframePosition,
    SegmentKind,
    Tag,
    VideoReference,
    pack,
    pack_audio,
    patchify,
    unpack_audio,
    unpatchify,
)
from tests.oracles import denoiser
from tests.oracles.portable import normal_like

TEXT_TAGS = [1, 1, 0, 0, 0, 0, 1, 1, 1]  # rows of a picture inside the prompt carry the video tag
SMALL = LatentGrid(latent_t=7, latent_h=4, latent_w=6, audio_latents=37)
CANVASES = [(256, 256), (512, 512), (864, 480), (1344, 768), (128, 320)]
KEYFRAME_SETS = [(), ("first",), ("last",), ("first", "last"), ("last", "first")]
REFERENCE_LISTS = [
    (ImageReference(latent_h=6, latent_w=4),),
    (AudioReference(audio_latents=30), ImageReference(latent_h=8, latent_w=12)),
    (
        VideoReference(latent_t=17, latent_h=30, latent_w=54, audio_latents=101),
        ImageReference(latent_h=8, latent_w=12),
        AudioReference(audio_latents=50),
        VideoReference(latent_t=7, latent_h=16, latent_w=16),
    ),
    (
        VideoReference(latent_t=22, latent_h=4, latent_w=10, audio_latents=12),
        VideoReference(latent_t=32, latent_h=10, latent_w=4, audio_latents=178),
        AudioReference(audio_latents=7),
    ),
]


def assert_same(ours, theirs):
    """Integers exactly, positions exactly after the one rounding to float32."""
    assert np.array_equal(ours.positions, theirs.position_ids.float().numpy())
    assert np.array_equal(ours.tags, theirs.token_tags.numpy())
    rows = np.arange(ours.seq_len)
    video = [rows[s.start : s.stop] for s in ours.segments if s.kind.tag is Tag.VIDEO]
    audio = [rows[s.start : s.stop] for s in ours.segments if s.kind.tag is Tag.AUDIO]
    assert np.array_equal(np.concatenate(video), theirs.video_indices.numpy())
    assert np.array_equal(np.concatenate(audio), theirs.audio_indices.numpy())
    assert np.array_equal(rows[: ours.text.stop], theirs.text_indices.numpy())
    condition_video = sum(s.stop - s.start for s in ours.conditions if s.kind.tag is Tag.VIDEO)
    condition_audio = sum(s.stop - s.start for s in ours.conditions if s.kind.tag is Tag.AUDIO)
    assert (condition_video, condition_audio) == (theirs.condition_video_rows, theirs.condition_audio_rows)


@pytest.mark.parametrize("keyframes", KEYFRAME_SETS, ids="-".join)
@pytest.mark.parametrize(("size", "frame_count"), [*itertools.product(CANVASES, (22, 56)), ((256, 256), 362)])
def test_text_and_keyframe_layouts_equal_diffusers(size, frame_count, keyframes):
    grid = latent_grid(Canvas(width=size[0], height=size[1]), frame_count)
    ours = pack(TEXT_TAGS, grid, keyframes=map(KeyframePosition, keyframes))
    assert_same(ours, denoiser.packed_layout(TEXT_TAGS, grid, keyframes=keyframes))


@pytest.mark.parametrize("references", REFERENCE_LISTS)
@pytest.mark.parametrize("size", CANVASES)
def test_reference_layouts_equal_diffusers(size, references):
    grid = latent_grid(Canvas(width=size[0], height=size[1]), 39)
    ours = pack([1] * 77, grid, references=references)
    assert_same(ours, denoiser.packed_layout([1] * 77, grid, references=references))


@pytest.mark.parametrize("arguments", [
    {}, {"keyframes": ("first", "last")}, {"references": REFERENCE_LISTS[2]}, {"references": REFERENCE_LISTS[3]},
])  # fmt: skip
@pytest.mark.parametrize("times", [(0.25, 0.625), (0.0, 0.0), (0.9995, 0.75)])
def test_rows_have_the_timesteps_that_diffusers_gives_them(arguments, times):
    ours = pack(TEXT_TAGS, SMALL, **{
        "keyframes": map(KeyframePosition, arguments.get("keyframes", ())),
        "references": arguments.get("references", ()),
    })  # fmt: skip
    distinct, index = denoiser.row_timesteps(denoiser.packed_layout(TEXT_TAGS, SMALL, **arguments), *times)
    by_class = np.array([times[0], times[1], max(times[0], 0.999), 1.0], dtype=np.float32)
    assert np.array_equal(by_class[ours.timestep_classes], distinct[index].numpy())


def test_segments_cover_the_sequence_in_the_published_order():
    layout = pack(TEXT_TAGS, SMALL, references=REFERENCE_LISTS[3])
    kinds = [segment.kind for segment in layout.segments]
    audio, video = SegmentKind.REFERENCE_AUDIO, SegmentKind.REFERENCE_VIDEO
    assert kinds == [
        SegmentKind.TEXT, audio, video, audio, video, audio, SegmentKind.TARGET_AUDIO, SegmentKind.TARGET_VIDEO,
    ]  # fmt: skip
    assert [segment.source for segment in layout.conditions] == [0, 0, 1, 1, 2]
    assert layout.segments[0].start == 0
    assert all(a.stop == b.start for a, b in itertools.pairwise(layout.segments))
    assert layout.seq_len == len(layout.tags) == len(layout.positions) == len(layout.timestep_classes)
    assert layout.seq_len - layout.prefix_len == SMALL.audio_rows + SMALL.video_rows


def test_published_coordinates_of_a_small_square_canvas():
    layout = pack([1] * 100, latent_grid(Canvas(width=256, height=256), 22), keyframes=list(KeyframePosition))
    video = layout.positions[layout.target_video.start :].reshape(7, 8, 8, 3)
    assert np.allclose(video[:, 0, 0, 0], [100, 101.6667, 108.3333, 115, 121.6667, 128.3333, 130], atol=1e-4)
    assert video[0, 0, :, 2].tolist() == [0, 4, 8, 12, 16, 20, 24, 28]
    audio = layout.positions[layout.target_audio.start : layout.target_audio.stop]
    assert (audio[0].tolist(), audio[37].tolist()) == ([100, 0, 0], [100, 0, 28])
    assert [layout.positions[s.start, 0] for s in layout.conditions] == [100, 135]


def test_keyframes_and_references_do_not_mix():
    with pytest.raises(RequestError, match="1 keyframes and 1 references"):
        pack(TEXT_TAGS, SMALL, keyframes=[KeyframePosition.FIRST], references=REFERENCE_LISTS[0])


def test_video_rows_equal_diffusers_and_fold_back():
    latent = normal_like("latent", 24, SMALL.latent_t, SMALL.latent_h, SMALL.latent_w)
    rows = patchify(latent)
    assert np.array_equal(rows, patchify_video_latents(torch.from_numpy(latent)[None], (1, 2, 2)).numpy())
    assert np.array_equal(unpatchify(rows, SMALL), latent)


def test_a_video_row_holds_its_cells_channel_by_channel():
    latent = np.arange(24 * 7 * 4 * 6, dtype=np.float32).reshape(24, 7, 4, 6)
    rows = patchify(latent)
    t, h, w, channel, dy, dx = 5, 1, 2, 17, 1, 0
    assert rows[(t * 2 + h) * 3 + w, channel * 4 + dy * 2 + dx] == latent[channel, t, 2 * h + dy, 2 * w + dx]


def test_audio_rows_are_channel_major_and_unpack():
    latent = normal_like("audio", 2, 32, 37)
    rows = pack_audio(latent)
    assert np.array_equal(rows, torch.from_numpy(latent).permute(0, 2, 1).reshape(-1, 32).numpy())
    assert np.array_equal(rows[37 + 5], latent[1, :, 5])
    assert np.array_equal(unpack_audio(rows), latent)
