"""Latents from sound.

Tier: executed reference (diffusers MiniMax-H3 audio), hashed weights. Tiny widths, released rates: it cannot tell how
rounding grows with the released widths.
"""

import numpy as np
import pytest
import torch

from core.errors import CheckpointError
from core.kernels.reference import ReferenceBackend
from core.model import audio_encoder
from core.model.audio_encoder import AudioEncoder, averaging_projection, trunk_plan
from tests.oracles import backends, vae

TOLERANCE = 1e-4
LATENTS = 35  # one block of 32 and a rest
SOUND = vae.hashed("audio.sound", 2, 800 * LATENTS - 123) * np.float32(0.3)


@pytest.fixture(scope="module", params=backends.NAMES)
def encoder(request):
    return AudioEncoder(vae.AUDIO, vae.audio_weights(backends.make(request.param)))


@pytest.fixture(scope="module")
def expected():
    return vae.audio_vae().encode(torch.from_numpy(SOUND)[:, None], return_dict=False)[0].mode().numpy()


def test_the_mean_equals_the_reference(encoder, expected):
    got = np.stack([encoder.encode_channel(channel).T for channel in SOUND])
    assert got.shape == (2, 32, LATENTS)
    assert np.abs(got - expected).max() <= TOLERANCE


def test_latents_are_normalised_channel_by_channel(encoder, expected):
    mean, std = (np.array(v, np.float32)[:, None] for v in (vae.AUDIO.latents_mean, vae.AUDIO.latents_std))
    got = encoder.encode(SOUND)
    assert got.dtype == np.float32 and got.flags.c_contiguous
    assert np.abs(got - (expected - mean) / std).max() <= TOLERANCE


def test_silence_fills_the_last_latent_only(encoder):
    padded = np.concatenate([SOUND[0], np.zeros(123, dtype=np.float32)])
    assert np.array_equal(encoder.encode_channel(SOUND[0]), encoder.encode_channel(padded))


def test_later_sound_does_not_reach_back_beyond_the_convolutions(encoder):
    """Attention is causal: only the convolutions' own reach of 12 latents looks ahead."""
    changed = SOUND[0].copy()
    changed[800 * 30 :] *= -1
    before, after = encoder.encode_channel(SOUND[0]), encoder.encode_channel(changed)
    assert np.array_equal(before[: 30 - 12], after[: 30 - 12])
    assert not np.array_equal(before[29], after[29])


def test_blocks_equal_the_whole(encoder, monkeypatch):
    blocks = encoder.encode_channel(SOUND[0])
    monkeypatch.setattr(audio_encoder, "BLOCK_LATENTS", 1000)
    assert np.abs(blocks - encoder.encode_channel(SOUND[0])).max() <= 2e-5


def test_one_latent_of_sound_outside_the_halo_changes_nothing():
    encoder, plan, at = AudioEncoder(vae.AUDIO, vae.audio_weights(ReferenceBackend())), trunk_plan(vae.AUDIO), 17
    sound = SOUND[0, : 800 * 34, None]

    def features(moved: int) -> np.ndarray:
        x = sound.copy()
        x[800 * moved : 800 * (moved + 1)] += 8.0
        return encoder._trunk(x)[at]

    whole = encoder._trunk(sound)[at]
    assert np.array_equal(features(at - plan.halo_before - 1), whole)
    assert np.array_equal(features(at + plan.halo_after + 1), whole)
    assert not np.array_equal(features(at - plan.halo_before + 3), whole)


def test_the_projection_averages_heads_and_neighbours():
    weight, y = vae.hashed("projection", 5, 4), vae.hashed("heads", 7, 3, 12)
    expected = y.mean(axis=1).reshape(7, 4, 3).mean(axis=-1) @ weight.T
    assert np.abs(y.reshape(7, -1) @ averaging_projection(weight, 3, 12).T - expected).max() < 1e-6
    with pytest.raises(CheckpointError, match="13 channels"):
        averaging_projection(weight, 3, 13)
