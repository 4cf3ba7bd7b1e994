"""The closed world the embedded model knows: one shape that moves on a plain background, with one sound.

A clip is fixed by five attributes (`Composition`) and a few nuisance numbers (`Scene`: radius, start, end, loudness).
Every length is relative to the canvas, so the same scene looks alike on 128x128 and on 256x256.
The trap: motion is spread over the whole clip, whatever its length, and a spin is always a quarter turn clockwise;
a detector or a second renderer that assumes pixels per frame is wrong. Proof: tests/dev/mini/test_world.py.
"""

import math
import random
from dataclasses import dataclass

import numpy as np

from dev.mini.attributes import (
    BACKGROUNDS,
    COLOURS,
    MOTIONS,
    SHAPES,
    SOUNDS,
    SYMMETRY,
    Composition,
    compositions,
    held_out_compositions,
    training_compositions,
)
from dev.mini.captions import LANGUAGES, caption

__all__ = [
    "audio_latent_count",
    "BACKGROUNDS", "COLOURS", "LANGUAGES", "MOTIONS", "SHAPES", "SOUNDS", "SYMMETRY", "Composition", "Scene",
    "caption", "compositions", "coverage", "held_out_compositions", "make_scene", "paint", "render", "sound",
    "training_compositions",
]  # fmt: skip

TONE_HZ = {"low": 200.0, "mid": 440.0, "high": 1000.0}
PULSE_HZ = 40.0
FRAMES_PER_S = 24
SAMPLE_RATE_HZ = 32000
SAMPLES_PER_LATENT = 800
FADE_S = 0.03
EDGE_PX = 0.75  # half width of the anti-aliased outline


@dataclass(frozen=True, slots=True)
class Scene:
    """Everything the captions do not name, frame by frame.

    x, y:      [F] float, centre of the object as a fraction of canvas width and height
    radius:    [F] float, fraction of the short side
    angle:     [F] float, radians, clockwise on the screen
    overtone:  amplitude of the second harmonic of a tone
    """

    x: np.ndarray
    y: np.ndarray
    radius: np.ndarray
    angle: np.ndarray
    overtone: float


def make_scene(composition: Composition, rng: random.Random, frame_count: int) -> Scene:
    """Draw the nuisance numbers of one clip."""
    u = np.linspace(0.0, 1.0, frame_count)
    ones = np.ones(frame_count)
    x = rng.uniform(0.40, 0.60) * ones
    y = rng.uniform(0.40, 0.60) * ones
    radius = rng.uniform(0.19, 0.24) * ones
    near, far = rng.uniform(0.28, 0.32), rng.uniform(0.68, 0.72)
    angle = 0.0 * ones
    motion = composition.motion
    if motion == "right":
        x = near + (far - near) * u
    elif motion == "left":
        x = far + (near - far) * u
    elif motion == "down":
        y = near + (far - near) * u
    elif motion == "up":
        y = far + (near - far) * u
    elif motion == "grows":
        first, last = rng.uniform(0.09, 0.11), rng.uniform(0.27, 0.30)
        radius = first + (last - first) * u
        x = rng.uniform(0.46, 0.54) * ones
        y = rng.uniform(0.46, 0.54) * ones
    elif motion == "spins":
        angle = 0.5 * math.pi * rng.uniform(0.95, 1.05) * u
    return Scene(x=x, y=y, radius=radius, angle=angle, overtone=rng.uniform(0.1, 0.4))


def _signed_distance(shape: str, x: np.ndarray, y: np.ndarray, radius: float) -> np.ndarray:
    """Approximate signed distance in pixels, negative inside; y points down, an upright triangle points up."""
    if shape == "circle":
        return np.sqrt(x * x + y * y) - radius
    if shape == "square":
        return np.maximum(np.abs(x), np.abs(y)) - 0.86 * radius
    if shape == "triangle":
        sides = [math.pi / 2 + k * 2 * math.pi / 3 for k in range(3)]
        return np.maximum.reduce([x * math.cos(a) + y * math.sin(a) for a in sides]) - 0.6 * radius
    sector = 2 * math.pi / 5
    angle = np.abs((np.arctan2(x, -y) + sector / 2) % sector - sector / 2)
    distance = np.sqrt(x * x + y * y)
    outer, inner = 1.2 * radius, 0.54 * radius
    edge_x, edge_y = inner * math.cos(sector / 2) - outer, inner * math.sin(sector / 2)
    length = math.hypot(edge_x, edge_y)
    return ((distance * np.cos(angle) - outer) * edge_y - distance * np.sin(angle) * edge_x) / length


def coverage(composition: Composition, scene: Scene, width: int, height: int) -> np.ndarray:
    """Opacity of the object, [F, H, W] float32 in 0..1."""
    frame_count = len(scene.x)
    alpha = np.zeros((frame_count, height, width), np.float32)
    short = min(width, height)
    for f in range(frame_count):
        radius = float(scene.radius[f]) * short
        cx, cy = float(scene.x[f]) * width, float(scene.y[f]) * height
        reach = 1.25 * radius + 2
        x0, x1 = max(0, int(cx - reach)), min(width, int(cx + reach) + 1)
        y0, y1 = max(0, int(cy - reach)), min(height, int(cy + reach) + 1)
        x = np.arange(x0, x1, dtype=np.float32)[None, :] + np.float32(0.5 - cx)
        y = np.arange(y0, y1, dtype=np.float32)[:, None] + np.float32(0.5 - cy)
        c, s = np.float32(math.cos(scene.angle[f])), np.float32(math.sin(scene.angle[f]))
        distance = _signed_distance(composition.shape, c * x + s * y, c * y - s * x, radius)
        alpha[f, y0:y1, x0:x1] = np.clip(0.5 - distance / (2 * EDGE_PX), 0, 1)
    return alpha


def paint(composition: Composition, alpha: np.ndarray) -> np.ndarray:
    """Colour an opacity map: [F, H, W] in 0..1 to uint8 [F, H, W, 3]."""
    front = np.asarray(COLOURS[composition.colour], np.float32)
    back = np.asarray(BACKGROUNDS[composition.background], np.float32)
    return np.rint(back + (front - back) * alpha[..., None]).astype(np.uint8)


def audio_latent_count(frame_count: int) -> int:
    """Audio latents (40 per second) of a clip of `frame_count` frames."""
    return round(frame_count * 40 / FRAMES_PER_S)


def sound(composition: Composition, scene: Scene) -> np.ndarray:
    """Stereo waveform, float32 [2, 800 * A] at 32 kHz, panned with the object's x.

    Tones and pulses start at phase zero and repeat within one 800-sample latent, so a steady sound is a constant
    in latent space; white noise, which is not, came back from the decoder as a buzz.
    """
    frame_count = len(scene.x)
    count = SAMPLES_PER_LATENT * audio_latent_count(frame_count)
    time_s = np.arange(count) / SAMPLE_RATE_HZ
    if composition.sound == "pulse":
        since_pulse_s = (time_s + 0.5 / PULSE_HZ) % (1 / PULSE_HZ) - 0.5 / PULSE_HZ
        mono = 1.6 * np.exp(-((since_pulse_s / 2.5e-4) ** 2)) * np.cos(2 * math.pi * 1600 * since_pulse_s)
    else:
        turn = 2 * math.pi * TONE_HZ[composition.sound] * time_s
        mono = np.sin(turn) + scene.overtone * np.sin(2 * turn)
    fade = np.minimum(time_s, count / SAMPLE_RATE_HZ - time_s) / FADE_S
    mono = 0.5 * mono * np.clip(fade, 0, 1)
    frame = np.minimum(time_s * FRAMES_PER_S, frame_count - 1)
    pan = np.interp(frame, np.arange(frame_count), scene.x) * (math.pi / 2)
    return np.stack([mono * np.cos(pan), mono * np.sin(pan)]).astype(np.float32)


def render(
    composition: Composition, rng: random.Random, width: int, height: int, frame_count: int
) -> tuple[np.ndarray, np.ndarray]:
    """Draw one clip.

    returns: frames uint8 [F, H, W, 3]; waveform float32 [2, 800 * A] at 32 kHz
    """
    scene = make_scene(composition, rng, frame_count)
    return paint(composition, coverage(composition, scene, width, height)), sound(composition, scene)
