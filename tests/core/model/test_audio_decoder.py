"""Sound from latents.

Tier: executed reference (diffusers MiniMax-H3 audio), hashed weights. Tiny widths, released rates: it cannot tell how
rounding grows with the released widths.
"""

from dataclasses import replace

import numpy as np
import pytest
import torch

from core.errors import Cancelled, CheckpointError
from core.kernels.provider import DictSource, Weights
from core.kernels.reference import ReferenceBackend
from core.model import audio_decoder
from core.model.audio_decoder import AudioDecoder, tail_plan
from tests.oracles import backends, vae

TOLERANCE = 1e-4
LATENTS = 35  # one block of 32 and a rest
LATENT = vae.hashed("audio.latent", 2, 32, LATENTS)


@pytest.fixture(scope="module", params=backends.NAMES)
def decoder(request):
    return AudioDecoder(vae.AUDIO, vae.audio_weights(backends.make(request.param)))


@pytest.fixture(scope="module")
def expected():
    return vae.audio_vae().decode(vae.vae_space(vae.AUDIO, LATENT), return_dict=False)[0][:, 0].numpy()


@pytest.fixture(scope="module")
def sound(decoder):
    return decoder.decode(LATENT)


def test_sound_equals_the_reference(sound, expected):
    """Not bit for bit: channels one at a time, blocks, and thirds instead of a division each round differently."""
    assert sound.shape == (2, 800 * LATENTS) and sound.dtype == np.float32
    assert expected.std() > 0.01 and np.abs(expected).max() < 1.0
    assert np.abs(sound - expected).max() <= TOLERANCE


def test_blocks_equal_the_whole(decoder, sound, monkeypatch):
    monkeypatch.setattr(audio_decoder, "BLOCK_LATENTS", 1000)
    assert np.abs(decoder.decode(LATENT[:1])[0] - sound[0]).max() <= 1e-6


def test_the_first_residual_block_has_the_bits_of_the_reference():
    """Before the mean over blocks every operation is the reference's own."""
    decoder = AudioDecoder(vae.AUDIO, vae.audio_weights(ReferenceBackend()))
    module = vae.audio_vae()
    x = module.decoder.conv_pre(module.dec_in_proj(torch.from_numpy(LATENT[:1])))
    x = module.decoder.ups[0][0](x)
    got = decoder._run_residual(decoder._stages[0].blocks[1], x[0].T.contiguous())
    assert torch.equal(got.T, module.decoder.resblocks[1](x)[0])


def test_one_sample_outside_the_halo_changes_nothing_and_one_inside_does():
    decoder = AudioDecoder(vae.AUDIO, vae.audio_weights(ReferenceBackend()))
    plan = tail_plan(vae.AUDIO)
    length, at = 260, 130
    still = vae.hashed("audio.trunk", length, vae.AUDIO.decoder_dim // 4)

    def samples(moved: int | None) -> np.ndarray:
        x = still.copy()
        if moved is not None:
            x[moved] += 8.0
        return decoder._tail(torch.from_numpy(x)).numpy()[at * plan.unit_out : (at + 1) * plan.unit_out]

    whole = samples(None)
    for edge, outside in ((at - plan.halo_before, -1), (at + plan.halo_after, 1)):
        assert np.array_equal(samples(edge + outside), whole)
        # At the very edge the effect is below rounding: filter taps of 0.002 are chained.
        assert not np.array_equal(samples(edge - plan.halo_before // 2 * outside), whole)


def test_channels_never_mix(decoder):
    short = LATENT[:, :, :3]
    assert np.array_equal(decoder.decode(short[::-1])[::-1], decoder.decode(short))


def test_loud_sound_is_clamped(decoder):
    sound = decoder.decode(LATENT[:, :, :4] * np.float32(30))
    assert np.abs(sound).max() == 1.0


def test_progress_and_stop(decoder):
    seen = []
    decoder.decode(LATENT[:, :, :3], on_progress=lambda done, total: seen.append((done, total)))
    assert seen == [(75, 150), (150, 150)]
    decoder.backend.cancel.set()
    try:
        with pytest.raises(Cancelled):
            decoder.decode(LATENT[:, :, :3])
    finally:
        decoder.backend.cancel.clear()


def test_other_rates_and_kernels_follow_the_config():
    config = replace(
        vae.AUDIO,
        encoder_rates=(4, 3),
        decoder_rates=(3, 2, 2),
        decoder_kernels=(7, 4, 6),
        resblock_kernels=(3, 5),
        resblock_dilations=((1, 2), (2, 3)),
    )
    latent = vae.hashed("audio.other", 1, 32, 50)
    expected = vae.audio_vae(config).decode(vae.vae_space(config, latent), return_dict=False)[0][:, 0].numpy()
    got = AudioDecoder(config, vae.audio_weights(ReferenceBackend(), config)).decode(latent)
    assert np.abs(got - expected).max() <= TOLERANCE


def test_two_different_filters_in_one_activation_are_refused():
    tensors = vae.canonical_audio(vae.audio_vae().state_dict())
    name = "decoder.activation_post.downsample.lowpass.filter"
    tensors[name] = tensors[name] * np.float32(0.5)
    with pytest.raises(CheckpointError, match="decoder.activation_post: the filters"):
        AudioDecoder(vae.AUDIO, Weights(DictSource(tensors), ReferenceBackend()))
