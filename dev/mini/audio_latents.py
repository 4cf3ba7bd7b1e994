"""What an audio latent means: 32 band energies of 50 ms around each 25 ms step, to the power 1/4.

The trap: the power 1/4 makes a pan smooth in latent space; with a logarithm a silent channel is a deep, noisy hole.
Proof: tests/dev/mini/test_latents.py.
"""

import math
import random
from pathlib import Path

import torch

from dev.mini import world
from dev.mini.world import SAMPLE_RATE_HZ, SAMPLES_PER_LATENT

BANDS = 32
WINDOW = 1600
FLOOR = 1e-3
LEAST_STD = 0.1  # bands above 6 kHz are nearly silent; scaling them up would only teach noise


def filter_bank() -> torch.Tensor:
    """Triangular bands spaced in mel from 60 Hz to 14 kHz, at least 25 Hz wide; [32, 801]."""

    def mel(hz: float) -> float:
        return 2595 * math.log10(1 + hz / 700)

    edges_hz = 700 * (10 ** (torch.linspace(mel(60.0), mel(14000.0), BANDS + 2) / 2595) - 1)
    hz = torch.linspace(0, SAMPLE_RATE_HZ / 2, WINDOW // 2 + 1)
    bank = torch.zeros(BANDS, len(hz))
    for band in range(BANDS):
        low, middle, high = edges_hz[band : band + 3].tolist()
        middle = max(middle, low + 25)
        high = max(high, middle + 25)
        bank[band] = torch.minimum((hz - low) / (middle - low), (high - hz) / (high - middle)).clamp(min=0)
    return bank


def band_latents(waveform: torch.Tensor) -> torch.Tensor:
    """Raw audio latents of float [..., 800 * A] waveforms: [..., 32, A]."""
    padded = torch.nn.functional.pad(waveform, (SAMPLES_PER_LATENT // 2, SAMPLES_PER_LATENT // 2))
    windows = padded.unfold(-1, WINDOW, SAMPLES_PER_LATENT) * torch.hann_window(WINDOW)
    power = torch.fft.rfft(windows).abs() ** 2
    return (power @ filter_bank().T + FLOOR).pow(0.25).transpose(-1, -2)


def audio_scale(path: Path) -> tuple[torch.Tensor, torch.Tensor]:
    """Mean and deviation [32] of the raw latents; fitted on 200 scenes of all sounds and written when missing."""
    if not path.exists():
        rng = random.Random(7)
        drawn = [rng.choice(world.compositions()) for _ in range(200)]
        waves = [world.sound(c, world.make_scene(c, rng, 22)) for c in drawn]
        raw = band_latents(torch.stack([torch.from_numpy(wave) for wave in waves]))
        torch.save((raw.mean((0, 1, 3)), raw.std((0, 1, 3)).clamp(min=LEAST_STD)), path)
    return torch.load(path, weights_only=True)
