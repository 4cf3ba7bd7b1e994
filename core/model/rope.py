"""Rotary angles of the packed sequence: three axes share one set of frequencies.

Row angles are `[t * f | h * f | w * f]`, so with n frequencies channel pair (c, c + 3n) turns by time for c < n, by
height for c < 2n, by width for c < 3n; the remaining channels of a head stay as they are.

The trap: angles are float32 products of float32 positions. A float64 product is more exact and different: the model was
trained with the rounded ones. Proof: tests/core/model/test_rope.py, against the diffusers MiniMax-H3 module.
"""

from dataclasses import dataclass

import numpy as np

from core.kernels.backend import Array, Backend
from core.model.config import DenoiserConfig


@dataclass(frozen=True, slots=True)
class Rope:
    """cos, sin: backend arrays [rows, 3 * rope_freq_dim]."""

    cos: Array
    sin: Array


def inverse_frequencies(config: DenoiserConfig) -> np.ndarray:
    """1 / theta^(i / n), i = 0..n-1, float32 [n]. Checkpoints store the same numbers as `rope.inv_freq`."""
    exponent = np.arange(config.rope_freq_dim, dtype=np.float64) / config.rope_freq_dim
    # The power is rounded before the division, as in the reference: one rounding at the end differs in the last bit.
    return np.float32(1.0) / (config.rope_theta**exponent).astype(np.float32)


def angles(positions: np.ndarray, inv_freq: np.ndarray, *, halve_space: bool = False) -> np.ndarray:
    """Angles [rows, 3n] float32 of positions [rows, 3] float32.

    halve_space: h and w count half, an option for 256x256 px canvases (it hides a lattice pattern there; the reference
                 model does without)
    """
    scale = np.array([1.0, 0.5, 0.5] if halve_space else [1.0, 1.0, 1.0], dtype=np.float32)
    return ((positions * scale)[:, :, None] * inv_freq).reshape(len(positions), -1)


def build_rope(
    backend: Backend, positions: np.ndarray, inv_freq: np.ndarray, *, halve_space: bool = False
) -> Rope:
    """cos and sin of `angles` on the backend."""
    angle = angles(positions, inv_freq, halve_space=halve_space)
    return Rope(backend.from_numpy(np.cos(angle)), backend.from_numpy(np.sin(angle)))
