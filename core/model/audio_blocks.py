"""Long sound in blocks: what a block of output needs of the input, and the cutting and joining.

A convolution stack run on a block with enough extra input on both sides (the halo) gives the same numbers as on the
whole, up to rounding. The trap: at the true ends there is no halo, because zero padding and replicated edges there are
part of the model; only interior cuts get one. Too small a halo is audible.

Receptive fields are computed by walking the layers backwards with an interval of samples, so they follow the config.
Proof: tests/core/model/test_audio_blocks.py, in float64 and by moving single samples.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

ACTIVATION_RADIUS = 5  # samples that up2, sin^2, down2 with 12 taps look to either side


@dataclass(frozen=True, slots=True)
class Span:
    """Samples first..last, both included."""

    first: int
    last: int

    def widened(self, radius: int) -> "Span":
        return Span(self.first - radius, self.last + radius)

    def before_conv(self, kernel: int, stride: int, padding: int) -> "Span":
        """Input of a convolution with symmetric zero padding that this output needs."""
        return Span(self.first * stride - padding, self.last * stride - padding + kernel - 1)

    def before_transposed(self, kernel: int, stride: int, padding: int) -> "Span":
        """Input of a transposed convolution that this output needs."""
        return Span(-((kernel - 1 - padding - self.first) // stride), (self.last + padding) // stride)


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockPlan:
    """Blocks of `block` units with `halo_before` and `halo_after` units; a unit is `unit_in` input samples."""

    block: int
    halo_before: int
    halo_after: int
    unit_in: int = 1
    unit_out: int = 1


def run_in_blocks(
    run: Callable[[np.ndarray], np.ndarray],
    x: np.ndarray,
    plan: BlockPlan,
    *,
    advance: Callable[[int], None] = lambda units: None,
) -> np.ndarray:
    """run(x) for x [units * unit_in, channels], block by block: [units * unit_out, channels']. Short x is run whole.

    advance: told the units of each finished block
    """
    units = len(x) // plan.unit_in
    parts = []
    for start in range(0, units, plan.block):
        stop = min(units, start + plan.block)
        low, high = max(0, start - plan.halo_before), min(units, stop + plan.halo_after)
        y = run(x[low * plan.unit_in : high * plan.unit_in])
        parts.append(y[(start - low) * plan.unit_out : (stop - low) * plan.unit_out].copy())
        advance(stop - start)
    return np.concatenate(parts)


def residual_radius(kernel: int, dilations: Iterable[int]) -> int:
    """Samples to either side that one anti-aliased residual block of the decoder sees."""
    half = kernel // 2
    return sum(ACTIVATION_RADIUS + dilation * half + ACTIVATION_RADIUS + half for dilation in dilations)
