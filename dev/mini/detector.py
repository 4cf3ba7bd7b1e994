"""Classical detector: reads the five attributes back from pixels and sound. NumPy only, any canvas, any length.

It knows the palette and the world's rules and nothing about the model, so it can judge clips of any decoder.
The trap: background and colour are nearest palette entries, so a grey smear still gets *some* answer; only the rate
against the prompt means something. Proof: dev/mini/score.py --truth (true clips) and tests/dev/mini/test_detector.py.
"""

import math

import numpy as np

from dev.mini.attributes import BACKGROUNDS, COLOURS, SYMMETRY
from dev.mini.world import PULSE_HZ, SAMPLE_RATE_HZ, TONE_HZ

MIN_AREA = 0.006  # of the canvas; a smaller object counts as absent
TRAVEL = 0.13  # of the short side
GROWTH = 2.2  # last area / first area
SPIN_RAD = 0.45  # of a quarter turn (1.57)
ROUND_BELOW = 0.040
ANGLES = 120


def detect(frames: np.ndarray, waveform: np.ndarray) -> dict:
    """Read a clip.

    frames:   uint8 [F, H, W, 3]
    waveform: float [2, N] at 32 kHz
    returns:  colour, shape, motion, background, sound (names, None when unreadable) and pan (right share of the
              energy in the last third minus that in the first third)
    """
    found = detect_video(frames)
    found.update(detect_sound(waveform))
    return found


def detect_video(frames: np.ndarray) -> dict:
    """Colour, shape, motion and background of uint8 [F, H, W, 3] frames."""
    pixels = frames.astype(np.float32)
    border = np.concatenate([pixels[:, :3].reshape(-1, 3), pixels[:, -3:].reshape(-1, 3),
                             pixels[:, :, :3].reshape(-1, 3), pixels[:, :, -3:].reshape(-1, 3)])  # fmt: skip
    back = np.median(border, axis=0)
    found = {"background": _nearest(BACKGROUNDS, back), "colour": None, "shape": None, "motion": None}
    distance = np.sqrt(((pixels - back) ** 2).sum(-1))
    threshold = max(30.0, 0.5 * float(np.median(np.quantile(distance.reshape(len(distance), -1), 0.98, axis=1))))
    mask = distance > threshold
    area = mask.mean((1, 2))
    if np.median(area) < MIN_AREA:
        return found
    inner = pixels[mask & (distance >= np.median(distance[mask]))]
    found["colour"] = _nearest(COLOURS, np.median(inner, axis=0))
    seen = np.flatnonzero(area >= MIN_AREA)
    outlines = np.stack([_outline(mask[f]) for f in seen])
    found["shape"] = _shape(outlines, area[seen])
    found["motion"] = _motion(mask, area, outlines, found["shape"])
    return found


def detect_sound(waveform: np.ndarray) -> dict:
    """Sound class and pan drift of a float [2, N] waveform."""
    energy = np.asarray(waveform, np.float64) ** 2
    third = energy.shape[1] // 3
    share = [float(part[1].sum() / (part.sum() + 1e-12)) for part in (energy[:, :third], energy[:, -third:])]
    pan = share[1] - share[0]
    mono = np.asarray(waveform, np.float64).sum(0)
    if np.sqrt((mono**2).mean()) < 1e-3:
        return {"sound": None, "pan": pan}
    power = np.abs(np.fft.rfft(mono * np.hanning(len(mono)))) ** 2
    hz = np.fft.rfftfreq(len(mono), 1 / SAMPLE_RATE_HZ)
    total = power[hz > 60].sum()
    shares = {}
    for name, tone in TONE_HZ.items():
        near = (np.abs(hz - tone) < 15) | (np.abs(hz - 2 * tone) < 15)
        shares[name] = float(power[near].sum() / total)
    best = max(shares, key=shares.get)
    comb = np.abs(hz - PULSE_HZ * np.rint(hz / PULSE_HZ)) < 8
    comb_share = float(power[comb & (hz > 60)].sum() / total)
    sound = best if shares[best] > 0.5 else "pulse" if comb_share > 0.6 else None
    return {"sound": sound, "pan": pan}


def _nearest(palette: dict, colour: np.ndarray) -> str:
    return min(palette, key=lambda name: float(((np.asarray(palette[name]) - colour) ** 2).sum()))


def _outline(mask: np.ndarray) -> np.ndarray:
    """Distance of the outline from the centroid in 120 directions, [120], as a fraction of its mean."""
    y, x = np.nonzero(mask)
    x = x - x.mean()
    y = y - y.mean()
    direction = ((np.arctan2(y, x) + math.pi) / (2 * math.pi) * ANGLES).astype(int) % ANGLES
    reach = np.zeros(ANGLES)
    np.maximum.at(reach, direction, np.sqrt(x * x + y * y))
    empty = reach == 0
    if empty.any():
        at = np.arange(ANGLES)
        reach[empty] = np.interp(at[empty], at[~empty], reach[~empty], period=ANGLES)
    return reach / reach.mean()


def _shape(outlines: np.ndarray, area: np.ndarray) -> str:
    """Strongest of the harmonics 3, 4, 5 of the outline, over the frames with the largest objects."""
    large = outlines[area >= np.median(area)]
    harmonics = np.abs(np.fft.rfft(large, axis=1)).mean(0) / ANGLES
    strength = {name: harmonics[n] for name, n in SYMMETRY.items() if n}
    strength["square"] *= 1.25
    best = max(strength, key=strength.get)
    return "circle" if strength[best] < ROUND_BELOW else best


def _motion(mask: np.ndarray, area: np.ndarray, outlines: np.ndarray, shape: str) -> str:
    """Growth first (it also moves the centroid a little), then travel, then turning, else still."""
    edge = max(2, len(mask) // 7)
    if area[-edge:].mean() > GROWTH * max(area[:edge].mean(), MIN_AREA / 2):
        return "grows"
    height, width = mask.shape[1:]
    weight = mask.sum((1, 2)).clip(1)
    x = (mask.sum(1) * (np.arange(width) + 0.5)).sum(1) / weight
    y = (mask.sum(2) * (np.arange(height) + 0.5)).sum(1) / weight
    dx, dy = (x[-edge:].mean() - x[:edge].mean()) / width, (y[-edge:].mean() - y[:edge].mean()) / height
    if max(abs(dx), abs(dy)) > TRAVEL:
        if abs(dx) > abs(dy):
            return "right" if dx > 0 else "left"
        return "down" if dy > 0 else "up"
    return "spins" if abs(_turn(outlines, shape)) > SPIN_RAD else "still"


def _turn(outlines: np.ndarray, shape: str) -> float:
    """Radians the outline turned: unwrapped phase of its own harmonic."""
    order = SYMMETRY[shape]
    if order == 0 or len(outlines) < 4:
        return 0.0
    phase = np.unwrap(np.angle(np.fft.rfft(outlines, axis=1)[:, order]))
    return float(phase[-1] - phase[0]) / order
