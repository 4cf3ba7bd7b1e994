"""What a video latent means: 18 principal components of pixel blocks and 6 channels that say shape and orientation.

A token is a 4x16x16 block of ImageNet-normalised pixels. Its first 18 principal components (scaled to unit variance)
carry colour and position; outlines live in components with almost no variance, which a denoiser learns last (shape
stayed at chance for 1475 steps with 24 components). So six channels carry them as strong, smooth signals: coverage,
coverage times a 4-way shape code (corners of a tetrahedron, three channels) and coverage times (cos, sin) of
symmetry * angle.

The trap: tokens 0, 5, 10, ... hold one frame; the three missing frames in front are zeros in *normalised* pixels,
because that is what the encoder's causal padding supplies. Proof: tests/dev/mini/test_latents.py.

Raw latents are what the VAE encodes and decodes; model-space latents are (raw - mean) / std.
"""

import argparse
import math
import random
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
import torch

from dev.mini import world
from dev.mini.world import Composition, Scene

CHANNELS = 24
COMPONENTS = 18
BLOCK = 4 * 16 * 16
PIXEL_MEAN = (0.485, 0.456, 0.406)
PIXEL_STD = (0.229, 0.224, 0.225)
TETRAHEDRON = {"circle": (1, 1, 1), "square": (1, -1, -1), "triangle": (-1, 1, -1), "star": (-1, -1, 1)}
CODE_STD = 0.8  # of coverage and shape code in model space, next to 1.0 of the first colour component
PHASE_STD = 0.6
FINE_GAIN = 2.0  # component i gets deviation min(1, FINE_GAIN * sqrt(s_i / s_0))


@dataclass(frozen=True, slots=True, eq=False)
class Basis:
    """The fixed linear part of the latents.

    centre:     [3072] mean block
    components: [3072, 18] orthonormal columns
    deviation:  [18] standard deviation along each
    mean, std:  [24] of the raw latents: model-space latent = (raw - mean) / std
    """

    centre: torch.Tensor
    components: torch.Tensor
    deviation: torch.Tensor
    mean: torch.Tensor
    std: torch.Tensor


def save_basis(path: Path, basis: Basis) -> None:
    """Write a basis with torch.save."""
    torch.save({name: getattr(basis, name) for name in Basis.__slots__}, path)


def load_basis(path: Path) -> Basis:
    """Read what `save_basis` wrote."""
    return Basis(**torch.load(path, weights_only=True))


def latent_count(frame_count: int) -> int:
    """Latent frames of a clip of 17n+5 frames."""
    return (frame_count - 5) // 17 * 5 + 2


def frame_groups(frame_count: int) -> list[list[int]]:
    """Frames behind each latent frame: one for every fifth, four for the others."""
    groups = []
    for start in range(0, frame_count, 17):
        groups.append([start])
        stop = min(start + 17, frame_count)
        groups += [list(range(f, f + 4)) for f in range(start + 1, stop, 4)]
    return groups


def to_blocks(planes: torch.Tensor) -> torch.Tensor:
    """Cut [C, F, H, W] planes into token blocks.

    returns: [T, H/16, W/16, C * 1024]; missing leading frames are zeros
    """
    channels, frame_count, height, width = planes.shape
    chunks = []
    for start in range(0, frame_count, 17):
        chunks += [planes.new_zeros(channels, 3, height, width), planes[:, start : start + 17]]
    joined = torch.cat(chunks, 1).reshape(channels, -1, 4, height // 16, 16, width // 16, 16)
    return joined.permute(1, 3, 5, 0, 2, 4, 6).flatten(3)


def presence(frame_count: int) -> torch.Tensor:
    """[T, 1024] ones where a block holds a real frame, zeros in the missing leading frames."""
    return to_blocks(torch.ones(1, frame_count, 16, 16))[:, 0, 0]


def normalised_rgb(colour: tuple[int, int, int]) -> torch.Tensor:
    """[3] colour in ImageNet-normalised pixels."""
    value = torch.tensor(colour, dtype=torch.float32) / 255
    return (value - torch.tensor(PIXEL_MEAN)) / torch.tensor(PIXEL_STD)


@dataclass(frozen=True, slots=True)
class Geometry:
    """Colourless latents of one scene, from which any colouring follows linearly.

    opacity:  [T, h, w, 3, 18] opacity blocks projected on each colour plane of the components
    semantic: [T, h, w, 6] coverage, shape code, phase
    """

    opacity: torch.Tensor
    semantic: torch.Tensor


def scene_geometry(composition: Composition, scene: Scene, size: tuple[int, int], basis: Basis) -> Geometry:
    """Geometry of a scene on a canvas of `size` = (width, height)."""
    alpha = torch.from_numpy(world.coverage(composition, scene, *size))
    planes = basis.components.view(3, BLOCK, COMPONENTS)
    blocks = to_blocks(alpha[None])
    opacity = torch.einsum("thwb,cbk->thwck", blocks, planes)
    return Geometry(opacity, _semantic(composition, scene, blocks))


def _semantic(composition: Composition, scene: Scene, blocks: torch.Tensor) -> torch.Tensor:
    groups = frame_groups(len(scene.x))
    frames_in_token = torch.tensor([len(group) for group in groups], dtype=torch.float32)
    cover = blocks.sum(-1) / (256 * frames_in_token)[:, None, None]
    order = world.SYMMETRY[composition.shape]
    phase = torch.tensor([order * float(np.mean(scene.angle[group])) for group in groups])
    on = 1.0 if order else 0.0
    code = [torch.full_like(phase, value) for value in TETRAHEDRON[composition.shape]]
    channels = torch.stack([torch.ones_like(phase), *code, on * phase.cos(), on * phase.sin()], -1)
    return cover[..., None] * channels[:, None, None, :]


def colour_geometry(
    opacity: torch.Tensor, semantic: torch.Tensor, composition: Composition, basis: Basis
) -> torch.Tensor:
    """Model-space latent [24, T, h, w] of a geometry ([T, h, w, 3, 18], [T, h, w, 6]) in the composition's colours."""
    back = normalised_rgb(world.BACKGROUNDS[composition.background])
    front = normalised_rgb(world.COLOURS[composition.colour])
    empty = torch.einsum("tck,c->tk", _presence_projection(opacity.shape[0], basis), back)
    empty = empty - basis.centre @ basis.components
    pca = (empty[:, None, None] + torch.einsum("thwck,c->thwk", opacity, front - back)) / basis.deviation
    raw = torch.cat([pca, semantic], -1)
    return ((raw - basis.mean) / basis.std).permute(3, 0, 1, 2)


@lru_cache(maxsize=32)
def _presence_projection(latent_t: int, basis: Basis) -> torch.Tensor:
    """[T, 3, 18] components of blocks that are one on one colour plane where a frame exists."""
    filled = presence((latent_t - 2) // 5 * 17 + 5)
    return torch.einsum("tb,cbk->tck", filled, basis.components.view(3, BLOCK, COMPONENTS))


def _random_blocks(rng: random.Random, sizes: list, clips: int, per_clip: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Random blocks of random clips, [clips * per_clip, 3072], and their semantic channels."""
    blocks, semantics = [], []
    generator = torch.Generator().manual_seed(rng.randrange(1 << 30))
    for _ in range(clips):
        composition = rng.choice(world.compositions())
        scene = world.make_scene(composition, rng, 22)
        alpha = torch.from_numpy(world.coverage(composition, scene, *rng.choice(sizes)))
        back = normalised_rgb(world.BACKGROUNDS[composition.background]).view(3, 1, 1, 1)
        front = normalised_rgb(world.COLOURS[composition.colour]).view(3, 1, 1, 1)
        block = to_blocks(back + (front - back) * alpha)
        semantic = _semantic(composition, scene, to_blocks(alpha[None]))
        pick = torch.randperm(block[..., 0].numel(), generator=generator)[:per_clip]
        blocks.append(block.flatten(0, 2)[pick])
        semantics.append(semantic.flatten(0, 2)[pick])
    return torch.cat(blocks), torch.cat(semantics)


def fit_basis(seed: int, clips: int = 240) -> Basis:
    """Principal components and scales from random clips on 128x128 and 256x256."""
    rng = random.Random(seed)
    blocks, semantic = _random_blocks(rng, [(128, 128), (128, 128), (256, 256)], clips, 160)
    centre = blocks.mean(0)
    centred = blocks - centre
    variance, vectors = torch.linalg.eigh(centred.T @ centred / len(centred))
    deviation = variance[-COMPONENTS:].flip(0).sqrt()
    kept = float(variance[-COMPONENTS:].sum() / variance.sum())
    print(f"components keep {kept:.4f} of the variance; deviations {[round(float(s), 2) for s in deviation]}")
    gain = (FINE_GAIN * (deviation / deviation[0]).sqrt()).clamp(max=1)
    semantic_std = torch.tensor([CODE_STD] * 4 + [PHASE_STD] * 2) / semantic.std(0)
    return Basis(
        centre=centre,
        components=vectors[:, -COMPONENTS:].flip(1).contiguous(),
        deviation=deviation,
        mean=torch.cat([torch.zeros(COMPONENTS), semantic.mean(0)]),
        std=1 / torch.cat([gain, semantic_std]),
    )


def linear_pixels(latent: torch.Tensor, basis: Basis) -> torch.Tensor:
    """Best linear reconstruction from model-space latents, the baseline every decoder must beat.

    latent:  [24, T, h, w] with T = 5n+2
    returns: [3, F, H, W] ImageNet-normalised pixels
    """
    raw = latent.permute(1, 2, 3, 0) * basis.std + basis.mean
    blocks = (raw[..., :COMPONENTS] * basis.deviation) @ basis.components.T + basis.centre
    latent_t, h, w = blocks.shape[:3]
    planes = blocks.reshape(latent_t, h, w, 3, 4, 16, 16).permute(3, 0, 4, 1, 5, 2, 6)
    planes = planes.reshape(3, 4 * latent_t, 16 * h, 16 * w)
    keep = [f for token, group in enumerate(frame_groups((latent_t - 2) // 5 * 17 + 5))
            for f in range(4 * token + 4 - len(group), 4 * token + 4)]  # fmt: skip
    return planes[:, keep]


def main() -> None:
    """Fit the basis and write it."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=5)
    arguments = parser.parse_args()
    basis = fit_basis(arguments.seed)
    rng = random.Random(arguments.seed + 1)
    errors = []
    for _ in range(16):
        composition = rng.choice(world.compositions())
        scene = world.make_scene(composition, rng, 22)
        geometry = scene_geometry(composition, scene, (128, 128), basis)
        latent = colour_geometry(geometry.opacity, geometry.semantic, composition, basis)
        alpha = torch.from_numpy(world.coverage(composition, scene, 128, 128))
        back = normalised_rgb(world.BACKGROUNDS[composition.background]).view(3, 1, 1, 1)
        front = normalised_rgb(world.COLOURS[composition.colour]).view(3, 1, 1, 1)
        error = (linear_pixels(latent, basis) - back - (front - back) * alpha) * torch.tensor(PIXEL_STD).view(
            3, 1, 1, 1
        )
        errors.append(float((error**2).mean()))
    print(f"linear reconstruction {-10 * math.log10(sum(errors) / len(errors)):.2f} dB")
    save_basis(arguments.out, basis)


if __name__ == "__main__":
    main()
