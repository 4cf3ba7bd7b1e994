"""The pixel space of the video VAE: ImageNet-normalised RGB, never [-1, 1].

    to the encoder    (u8 / 255 - mean) / std
    from the decoder  round_half_even(255 * clamp(x * std + mean, 0, 1))

The trap: blending happens in the normalised space, before the clamp, so a decoded value is clamped exactly once, here.
NumPy on the host, because pictures enter and leave the pipeline there. Proof: tests/core/model/test_pixels.py.
"""

import numpy as np

from core import constants as c
from core.errors import KernelError

MEAN = np.array(c.PIXEL_MEAN, dtype=np.float32)
STD = np.array(c.PIXEL_STD, dtype=np.float32)


def normalise_pixels(rgb: np.ndarray) -> np.ndarray:
    """Normalised float32 [..., 3] of uint8 RGB [..., 3]."""
    return (rgb.astype(np.float32) / np.float32(255.0) - MEAN) / STD


def denormalise_pixels(pixels: np.ndarray, out: np.ndarray) -> np.ndarray:
    """uint8 RGB of normalised float32 pixels, both [frames, h, w, 3]; writes `out` frame by frame and returns it.

    Raises KernelError for pixels that are not numbers: rounded to 8 bits they would look like any other picture.
    """
    for frame, target in zip(pixels, out, strict=True):
        value = frame * STD
        value += MEAN
        np.clip(value, 0.0, 1.0, out=value)
        if np.isnan(value.sum()):
            raise KernelError("The video decoder returned pixels that are not numbers.", hint="Verify the weight file.")
        value *= np.float32(255.0)
        np.rint(value, out=value)
        target[...] = value
    return out
