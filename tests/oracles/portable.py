"""Numbers from a counter hash instead of a framework's generator: the same weights and inputs in any program, for ever.

h(name) is FNV-1a 64 over the name, u(i) the splitmix64 finalizer of h + (i + 1) * golden gamma, and
r(i) = (u >> 40) * 2^-23 - 1, exact in float32, in [-1, 1). Matrices are scaled to unit gain, biases to 0.1, norm
weights to 1 +- 0.25, inputs to unit variance.
"""

import math

import numpy as np
import torch

MASK = (1 << 64) - 1


def hash_uniform(name: str, count: int) -> np.ndarray:
    """float32 [count] in [-1, 1)."""
    h = 0xCBF29CE484222325
    for byte in name.encode():
        h = ((h ^ byte) * 0x100000001B3) & MASK
    with np.errstate(over="ignore"):
        z = np.uint64(h) + np.arange(1, count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z = z ^ (z >> np.uint64(31))
    return ((z >> np.uint64(40)).astype(np.float64) * 2.0**-23 - 1.0).astype(np.float32)


def normal_like(name: str, *shape: int) -> np.ndarray:
    """float32 of unit variance (uniform on +-sqrt 3), for inputs."""
    return (hash_uniform(name, math.prod(shape)) * np.float32(math.sqrt(3.0))).reshape(shape)


@torch.no_grad()
def fill(model: torch.nn.Module) -> torch.nn.Module:
    """Give every parameter its numbers, by its own name."""
    for name, parameter in model.named_parameters():
        r = hash_uniform(name, parameter.numel()).reshape(parameter.shape)
        if parameter.ndim >= 2:
            r = r * np.float32(math.sqrt(3.0 / math.prod(parameter.shape[1:])))
        elif name.endswith(".bias"):
            r = r * np.float32(0.1)
        else:
            r = np.float32(1.0) + r * np.float32(0.25)
        parameter.copy_(torch.from_numpy(r))
    return model.eval()
