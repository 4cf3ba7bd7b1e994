"""The five attributes of a clip, every composition of them, and the fixed choice of those kept out of training.

The trap: the hold-out rule is a hash of the key, so renaming an attribute value changes what is held out.
Proof: tests/dev/mini/test_world.py.
"""

import hashlib
from dataclasses import dataclass

COLOURS = {
    "red": (220, 40, 40), "green": (40, 190, 70), "blue": (50, 90, 230), "yellow": (240, 215, 50),
    "purple": (160, 60, 200), "orange": (245, 140, 30), "white": (245, 245, 245), "cyan": (60, 210, 220),
}  # fmt: skip
BACKGROUNDS = {
    "black": (12, 12, 14), "gray": (110, 110, 115), "navy": (20, 28, 80), "brown": (90, 60, 35),
    "pink": (240, 180, 190),
}  # fmt: skip
SHAPES = ("circle", "square", "triangle", "star")
MOTIONS = ("left", "right", "up", "down", "grows", "spins", "still")
SOUNDS = ("low", "mid", "high", "pulse")
SYMMETRY = {"circle": 0, "square": 4, "triangle": 3, "star": 5}

HELD_OUT_BELOW = 13  # of 256 values of the first hash byte: 5.1 %


@dataclass(frozen=True, slots=True)
class Composition:
    """The five attributes a caption names."""

    colour: str
    shape: str
    motion: str
    background: str
    sound: str

    @property
    def key(self) -> str:
        """Text that decides, through its hash, whether the composition is held out."""
        return f"{self.colour}-{self.shape}-{self.motion}-{self.background}-{self.sound}"

    @property
    def held_out(self) -> bool:
        """True when the denoiser must never be trained on this composition."""
        return hashlib.sha256(self.key.encode()).digest()[0] < HELD_OUT_BELOW


def compositions() -> list[Composition]:
    """All 4320 compositions in a fixed order (a circle never spins)."""
    return [
        Composition(colour, shape, motion, background, sound)
        for colour in COLOURS
        for shape in SHAPES
        for motion in MOTIONS
        if not (shape == "circle" and motion == "spins")
        for background in BACKGROUNDS
        for sound in SOUNDS
    ]


def held_out_compositions() -> list[Composition]:
    """Compositions never shown to the denoiser."""
    return [c for c in compositions() if c.held_out]


def training_compositions() -> list[Composition]:
    """Compositions the denoiser may be trained on."""
    return [c for c in compositions() if not c.held_out]
