"""Tier: closed form (rendered truth). Cannot tell how the detector treats a blurred or half-formed object."""

import random

import numpy as np
import pytest

from dev.mini import world
from dev.mini.detector import detect

ATTRIBUTES = ("colour", "shape", "motion", "background", "sound")


@pytest.mark.parametrize(("width", "height", "frames"), [(128, 128, 22), (256, 256, 22), (96, 64, 39)])
def test_true_clips_are_read_right(width, height, frames):
    rng = random.Random(width + frames)
    for composition in rng.sample(world.compositions(), 6):
        found = detect(*world.render(composition, rng, width, height, frames))
        assert {name: found[name] for name in ATTRIBUTES} == {n: getattr(composition, n) for n in ATTRIBUTES}


def test_pan_follows_the_object():
    rng = random.Random(1)
    for motion, sign in (("left", -1), ("right", 1)):
        composition = world.Composition("red", "circle", motion, "navy", "low")
        assert sign * detect(*world.render(composition, rng, 128, 128, 22))["pan"] > 0.2


def test_empty_clip_and_silence_are_unreadable():
    found = detect(np.full((22, 64, 64, 3), 12, np.uint8), np.zeros((2, 29600), np.float32))
    assert found["background"] == "black"
    assert found["colour"] is found["shape"] is found["motion"] is found["sound"] is None
