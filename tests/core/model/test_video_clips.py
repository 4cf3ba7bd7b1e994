"""Which latents make which frames.

Tier: closed form (frame counts of the released model). That finished frames really depend on the named clips only is
shown in test_video_stream.py.
"""

import numpy as np
import pytest

from core.errors import RequestError
from core.model.video_clips import clip_count, clips_of_frame, denormalise_latent, kept_frames, normalise_latent, window
from tests.oracles import vae


@pytest.mark.parametrize(("latent_t", "clips"), [(7, 1), (12, 2), (37, 7), (102, 20), (107, 21)])
def test_windows_cover_the_latent(latent_t, clips):
    assert clip_count(latent_t) == clips
    assert window(clips - 1).stop == latent_t


@pytest.mark.parametrize("latent_t", [0, 1, 2, 3, 6, 8, 11, 13])
def test_lengths_the_model_does_not_make_are_refused(latent_t):
    with pytest.raises(RequestError, match=f"{latent_t} frames cannot be decoded"):
        clip_count(latent_t)


def test_a_window_contributes_17_frames_and_a_tail_of_5():
    assert kept_frames(4).tolist() == [*range(3, 20), *range(23, 28)]


@pytest.mark.parametrize(
    ("frame", "clips"),
    [(0, [0]), (16, [0]), (17, [0, 1]), (21, [0, 1]), (22, [1]), (34, [1, 2]), (39, [2]), (51, [2]), (55, [2])],
)
def test_a_frame_names_its_clips(frame, clips):
    assert list(clips_of_frame(frame, 17)) == clips


def test_normalising_inverts_denormalising():
    latent = vae.hashed("clips.latent", 24, 7, 3, 2) * 3
    mean, std = vae.VIDEO.latents_mean, vae.VIDEO.latents_std
    inside = denormalise_latent(latent, mean, std)
    assert inside.shape == (7, 3, 2, 24)
    assert np.array_equal(inside, np.moveaxis(vae.vae_space(vae.VIDEO, latent[None])[0].numpy(), 0, -1))
    assert np.abs(normalise_latent(inside, mean, std) - latent).max() < 1e-5
