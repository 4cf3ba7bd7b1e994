"""Tier: closed form. Cannot tell whether a clip looks good; the detector test reads it back."""

import hashlib
import random

import numpy as np
import pytest

from dev.mini import world
from dev.mini.captions import training_caption


def test_hold_out_follows_the_hash_and_is_about_five_percent():
    for composition in world.compositions():
        key = "-".join(
            (composition.colour, composition.shape, composition.motion, composition.background, composition.sound)
        )
        assert composition.held_out == (hashlib.sha256(key.encode()).digest()[0] < 13)
    assert len(world.compositions()) == 4320
    assert len(world.held_out_compositions()) == 223


def test_training_never_draws_a_held_out_composition():
    kept = set(world.training_compositions())
    assert not kept & set(world.held_out_compositions())
    assert len(kept) == 4320 - 223


def test_no_circle_spins():
    assert all(c.shape != "circle" for c in world.compositions() if c.motion == "spins")


@pytest.mark.parametrize(("width", "height", "frames", "latents"), [(128, 128, 22, 37), (192, 96, 39, 65)])
def test_render_has_the_promised_shapes(width, height, frames, latents):
    composition = world.Composition("red", "star", "spins", "navy", "pulse")
    pixels, wave = world.render(composition, random.Random(0), width, height, frames)
    assert pixels.shape == (frames, height, width, 3) and pixels.dtype == np.uint8
    assert wave.shape == (2, 800 * latents) and wave.dtype == np.float32


def test_same_scene_looks_alike_on_twice_the_canvas():
    composition = world.Composition("red", "triangle", "left", "navy", "low")
    scene = world.make_scene(composition, random.Random(3), 22)
    small = world.coverage(composition, scene, 64, 64)
    large = world.coverage(composition, scene, 128, 128).reshape(22, 64, 2, 64, 2).mean((2, 4))
    assert np.abs(small - large).mean() < 0.004


def test_every_steady_sound_repeats_in_each_latent():
    for sound in world.SOUNDS:
        composition = world.Composition("red", "star", "still", "navy", sound)
        wave = world.sound(composition, world.make_scene(composition, random.Random(1), 22))
        assert np.allclose(wave[:, 8000:8800], wave[:, 16000:16800], atol=1e-5)


def test_full_captions_name_everything_in_both_languages():
    composition = world.Composition("orange", "square", "grows", "pink", "high")
    rng = random.Random(0)
    for _ in range(40):
        english = world.caption(composition, rng, "en")
        assert all(word in english for word in ("orange", "square", "pink", "high"))
        assert all(word in world.caption(composition, rng, "zh") for word in ("橙色", "粉色"))


def test_at_least_a_quarter_of_the_training_captions_is_chinese():
    rng = random.Random(0)
    everything = world.training_compositions()
    drawn = [training_caption(rng.choice(everything), rng) for _ in range(2000)]
    assert 0.25 <= sum(max(map(ord, text)) > 255 for text in drawn) / 2000 <= 0.36
