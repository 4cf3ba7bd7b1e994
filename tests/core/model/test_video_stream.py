"""Streaming decode of whole videos.

Tier: executed reference (diffusers MiniMax-H3), hashed weights, a canvas of 3 x 2 tiles with unequal overlaps, 3 clips.
The tests on memory run with a tile decoder that computes nothing: they count our arrays, not a backend's scratch.
"""

import tracemalloc

import numpy as np
import pytest
import torch

from core.errors import Cancelled, RequestError
from core.kernels.reference import ReferenceBackend
from core.model.config import VideoVaeConfig
from core.model.pixels import denormalise_pixels
from core.model.video_clips import clips_of_frame, kept_frames
from core.model.video_decoder import LayerMode, open_video_decoder
from core.model.video_stream import VideoStream, decode_frames, decode_frames_bytes
from tests.oracles import backends, vae

LATENT = vae.hashed("stream.latent", 24, 17, 6, 5) * np.float32(1.7)
FRAMES = 56
TOLERANCE = 1e-4


class ReferenceTiles:
    """The diffusers tile decoder behind our interface."""

    def decode_tiles(self, latents, *, advance):
        module = vae.video_vae()
        for latent in latents:
            pixels = vae.channels_last(module.decoder(module.post_quant_conv(vae.channels_first(latent))))
            yield pixels[kept_frames(4)]


class EmptyTiles:
    """Grey tiles at no cost, for looking at memory."""

    def decode_tiles(self, latents, *, advance):
        for latent in latents:
            _, h, w, _ = latent.shape
            yield np.zeros((22, 16 * h, 16 * w, 3), dtype=np.float32)


@pytest.fixture(scope="module", params=backends.NAMES)
def backend(request):
    return backends.make(request.param)


@pytest.fixture(scope="module")
def expected():
    return vae.channels_last(vae.video_vae().decode(vae.vae_space(vae.VIDEO, LATENT[None]), return_dict=False)[0])


def float_frames(tiles, latent=LATENT, config=vae.VIDEO):
    stream = VideoStream(tiles, config, latent)
    clips = [
        np.concatenate([band.copy() for _, band in stream.clip_bands(clip)], axis=1) for clip in range(stream.clips)
    ]
    return np.concatenate([*clips, stream.carry()])


@pytest.fixture(scope="module")
def pixels(backend):
    """The finished video before rounding, [56, 96, 80, 3] float32."""
    with open_video_decoder(vae.VIDEO, vae.video_weights(backend)) as decoder:
        return float_frames(decoder)


@pytest.fixture(scope="module")
def rounded(pixels):
    return denormalise_pixels(pixels, np.empty(pixels.shape, np.uint8))


def frames_of(backend, mode):
    with open_video_decoder(vae.VIDEO, vae.video_weights(backend), mode) as decoder:
        return list(decode_frames(decoder, vae.VIDEO, LATENT))


def test_blended_video_equals_the_reference(pixels, expected):
    assert np.abs(pixels - expected).max() <= TOLERANCE


def test_streaming_by_clip_and_band_has_the_bits_of_the_reference(expected):
    assert torch.equal(torch.from_numpy(float_frames(ReferenceTiles())), torch.from_numpy(expected))


@pytest.mark.parametrize("mode", LayerMode)
def test_8_bit_frames_are_the_rounded_pixels_17_per_clip_then_5(backend, rounded, mode):
    """With resident and with streamed layers, which do not change a bit."""
    frames = frames_of(backend, mode)
    assert [len(part) for part in frames] == [17, 17, 17, 5]
    assert np.array_equal(np.concatenate(frames), rounded)
    assert rounded.shape == (FRAMES, 96, 80, 3) and len(np.unique(rounded)) > 200


def test_a_frame_depends_on_the_named_clips_only(expected):
    """The clip of a middle frame, decoded alone, gives its final pixels; a fading frame needs the clip before."""
    second = float_frames(ReferenceTiles(), LATENT[:, 5:12])
    alone = [frame for frame in range(FRAMES) if list(clips_of_frame(frame, 17)) == [1]]
    assert alone == list(range(22, 34))
    assert np.array_equal(second[[frame - 17 for frame in alone]], expected[alone])
    assert not np.array_equal(second[4], expected[21])


def test_progress_reaches_its_total_in_single_steps():
    seen = []
    with open_video_decoder(vae.VIDEO, vae.video_weights(ReferenceBackend())) as decoder:
        latent = LATENT[:, :12]
        for _ in decode_frames(decoder, vae.VIDEO, latent, on_progress=lambda done, total: seen.append((done, total))):
            pass
    units = 2 * 6 * vae.VIDEO.decoder_layers
    assert seen == [(done, units) for done in range(1, units + 1)]


@pytest.mark.parametrize("name", backends.NAMES)
def test_a_stop_ends_the_video(name):
    backend = backends.make(name)
    with open_video_decoder(vae.VIDEO, vae.video_weights(backend)) as decoder:
        frames = decode_frames(decoder, vae.VIDEO, LATENT)
        next(frames)
        backend.cancel.set()
        with pytest.raises(Cancelled):
            next(frames)


@pytest.mark.parametrize("latent_t", [1, 2, 3, 8])
def test_lengths_the_model_does_not_make_are_refused_before_any_work(latent_t):
    with pytest.raises(RequestError, match="cannot be decoded"):
        decode_frames(EmptyTiles(), vae.VIDEO, LATENT[:, :latent_t])


# ---- memory
TILES_OF_128 = VideoVaeConfig(tile_px=128, tile_overlap_px=32)


def measured_peak(latent_t: int, latent_h: int, latent_w: int) -> int:
    """Most bytes NumPy held at once while frames were made and dropped, beside the latent."""
    latent = np.zeros((24, latent_t, latent_h, latent_w), dtype=np.float32)
    tracemalloc.start()
    try:
        for frames in decode_frames(EmptyTiles(), TILES_OF_128, latent):
            assert frames.dtype == np.uint8
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_memory_does_not_grow_with_the_length_of_the_video():
    assert measured_peak(17, 9, 11) <= measured_peak(12, 9, 11) * 1.001


@pytest.mark.parametrize(("latent_h", "latent_w"), [(8, 8), (9, 11), (20, 9), (9, 20)])
def test_picture_bytes_are_what_is_measured(latent_h, latent_w):
    predicted = decode_frames_bytes(TILES_OF_128, 16 * latent_h, 16 * latent_w, LayerMode.RESIDENT).pictures
    assert 0.95 * predicted <= measured_peak(12, latent_h, latent_w) <= predicted * 1.02


def test_released_canvas_needs_few_hundred_megabytes_whatever_its_length():
    need = decode_frames_bytes(VideoVaeConfig(), 768, 1344, LayerMode.RESIDENT)
    assert need.total < 450 * 2**20
    streamed = decode_frames_bytes(VideoVaeConfig(), 768, 1344, LayerMode.STREAMED)
    assert streamed.activations - need.activations == 27 * (7 * 256 + 5) * 2048 * 4
