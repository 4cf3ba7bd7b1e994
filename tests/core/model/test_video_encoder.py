"""The causal encoder and the condition recipe.

Tier: executed reference (diffusers MiniMax-H3), hashed weights, 1 x 2 tiles. Sizes are tiny: it cannot tell how
rounding grows with the released widths.
"""

from dataclasses import replace

import numpy as np
import pytest
import torch
from diffusers.models.autoencoders.vae import DiagonalGaussianDistribution

from core.errors import RequestError
from core.kernels.reference import ReferenceBackend
from core.model.pixels import normalise_pixels
from core.model.video_encoder import Moments, VideoEncoder, condition_latent
from tests.oracles import backends, vae

TOLERANCE = 2e-5
CONFIG = replace(vae.VIDEO, tile_px=64)
CLIP = vae.hashed("encoder.clip", 17, 64, 80, 3) * np.float32(1.5)
SMALL = (32, 48)


@pytest.fixture(scope="module", params=backends.NAMES)
def encoder(request):
    return encoder_on(backends.make(request.param))


def encoder_on(backend, *, still=False):
    return VideoEncoder(CONFIG, vae.video_weights(backend, CONFIG), still=still)


@pytest.fixture(scope="module")
def clip_moments(encoder):
    """All 5 latent frames of a clip in two tiles, [5, 4, 5, 48]."""
    return encoder._encode_clip(CLIP)


@pytest.fixture(scope="module")
def expected():
    return vae.channels_last(vae.video_vae(CONFIG)._encode_clip(vae.channels_first(CLIP)))


def reference(pictures) -> Moments:
    posterior = vae.video_vae(CONFIG).encode(vae.channels_first(pictures), return_dict=False)[0]
    return Moments(mean=vae.channels_last(posterior.mean), logvar=vae.channels_last(posterior.logvar))


def distance(got: Moments, expected: Moments) -> float:
    assert got.mean.shape == expected.mean.shape
    return max(np.abs(got.mean - expected.mean).max(), np.abs(got.logvar - expected.logvar).max())


def same(got: Moments, expected: Moments) -> bool:
    return np.array_equal(got.mean, expected.mean) and np.array_equal(got.logvar, expected.logvar)


def small(frames: int) -> np.ndarray:
    return vae.hashed("encoder.small", 40, *SMALL, 3)[:frames]


def test_a_clip_equals_the_reference(encoder, clip_moments, expected):
    """Fed 1 + 4 + 4 + 4 + 4 frames. With torch not a bit changes while no plane is smaller than 4 x 4 (see below)."""
    assert np.abs(clip_moments - expected).max() <= TOLERANCE
    assert encoder.backend.name != "reference" or np.array_equal(clip_moments, expected)


def test_a_picture_equals_the_reference(encoder):
    got, expected = encoder.encode(CLIP[:1]), reference(CLIP[:1])
    assert distance(got, expected) <= TOLERANCE
    assert encoder.backend.name != "reference" or same(got, expected)


def test_the_still_encoder_equals_the_full_one_up_to_rounding(encoder):
    """It leaves out the taps that meet zeros, which changes the order of the sums."""
    still = encoder_on(encoder.backend, still=True)
    assert distance(still.encode(CLIP[:1]), encoder.encode(CLIP[:1])) <= TOLERANCE


def test_the_first_latent_of_a_clip_is_its_first_picture(encoder, clip_moments):
    assert np.array_equal(clip_moments[:1, :, :, :24], encoder.encode(CLIP[:1]).mean)


@pytest.mark.parametrize(("frames", "latents"), [(2, 2), (10, 2), (18, 7), (39, 12)])
def test_any_length_is_cut_into_clips_as_the_reference_does(frames, latents):
    """Not bit for bit: on planes of 2 x 3 torch sums in another order when the frames come in smaller feeds."""
    got = encoder_on(ReferenceBackend()).encode(small(frames))
    assert len(got.mean) == latents
    assert distance(got, reference(small(frames))) <= TOLERANCE


def test_8_bit_pictures_are_normalised_on_the_way_in(encoder):
    rgb = np.random.default_rng(9).integers(0, 256, (1, *SMALL, 3), dtype=np.uint8)
    assert same(encoder.encode(rgb), encoder.encode(normalise_pixels(rgb)))


def test_the_callers_pictures_stay_as_they_are(encoder):
    pictures = small(5).copy()
    encoder.encode(pictures)
    assert np.array_equal(pictures, small(5))


@pytest.mark.parametrize(
    ("pictures", "still", "message"),
    [
        (CLIP[:1, :16], False, "80x16 px cannot be encoded"),
        (CLIP[:2], True, "2 frames were given"),
        (CLIP[:1, :40], False, "Canvas height is 40 px"),
    ],
)
def test_impossible_pictures_are_refused(pictures, still, message):
    encoder = encoder_on(ReferenceBackend(), still=still)
    with pytest.raises(RequestError, match=message):
        encoder.encode(pictures)


def test_a_condition_is_the_rounded_sample_of_the_reference(expected):
    """Torch's exp and ours may differ by an ulp, which a rounding to float16 can only show as one step of float16."""
    noise = torch.randn((1, 24, 5, 4, 5), generator=torch.Generator().manual_seed(42))
    posterior = DiagonalGaussianDistribution(vae.channels_first(expected))
    sample = posterior.sample(generator=torch.Generator().manual_seed(42)).to(torch.float16).float()
    shape = (1, 24, 1, 1, 1)
    mean, std = (torch.tensor(v).view(shape) for v in (CONFIG.latents_mean, CONFIG.latents_std))
    moments = encoder_on(ReferenceBackend())._moments([expected])
    got = condition_latent(CONFIG, moments, noise[0].numpy())
    steps = np.abs(got - ((sample - mean) / std)[0].numpy()) * std[0].numpy()
    assert got.shape == (24, 5, 4, 5)
    assert np.mean(steps > 0) < 0.01
    assert np.all(steps <= np.spacing(np.abs(sample[0].numpy()).astype(np.float16)).astype(np.float32) * 1.01)


def test_wild_variances_are_limited_before_sampling():
    moments = encoder_on(ReferenceBackend())._moments([np.full((1, 2, 2, 48), 99.0, dtype=np.float32)])
    assert np.all(moments.mean == 99.0) and np.all(moments.logvar == 20.0)
