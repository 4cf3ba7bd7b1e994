"""Tier: closed form. Cannot tell whether a decoder can draw from these latents."""

import random

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from dev.mini import latents, world  # noqa: E402
from dev.mini.audio_latents import band_latents  # noqa: E402


def _basis():
    generator = torch.Generator().manual_seed(1)
    components = torch.linalg.qr(torch.randn(3072, latents.COMPONENTS, generator=generator)).Q
    return latents.Basis(
        centre=torch.randn(3072, generator=generator), components=components,
        deviation=torch.linspace(9, 1, latents.COMPONENTS), mean=torch.linspace(-0.2, 0.3, 24),
        std=torch.linspace(0.8, 2.0, 24),
    )  # fmt: skip


def test_frame_groups_follow_the_released_grid():
    assert [len(g) for g in latents.frame_groups(39)] == [1, 4, 4, 4, 4, 1, 4, 4, 4, 4, 1, 4]
    assert sum(latents.frame_groups(22), []) == list(range(22))
    assert latents.latent_count(39) == 12


def test_missing_leading_frames_are_zeros():
    blocks = latents.to_blocks(torch.ones(1, 22, 16, 16))[:, 0, 0].view(7, 4, 256)
    assert blocks[[0, 5], :3].abs().max() == 0
    assert bool((blocks[[0, 5], 3] == 1).all()) and bool((blocks[[1, 2, 3, 4, 6]] == 1).all())


def test_coloured_geometry_is_the_projection_of_the_painted_pixels():
    basis, composition = _basis(), world.Composition("cyan", "star", "spins", "pink", "low")
    scene = world.make_scene(composition, random.Random(2), 22)
    geometry = latents.scene_geometry(composition, scene, (64, 96), basis)
    ours = latents.colour_geometry(geometry.opacity, geometry.semantic, composition, basis)
    pixels = world.paint(composition, world.coverage(composition, scene, 64, 96)).astype(np.float32) / 255
    planes = (torch.from_numpy(pixels) - torch.tensor(latents.PIXEL_MEAN)) / torch.tensor(latents.PIXEL_STD)
    blocks = latents.to_blocks(planes.permute(3, 0, 1, 2))
    pca = ((blocks - basis.centre) @ basis.components) / basis.deviation
    expected = (pca - basis.mean[:18]) / basis.std[:18]
    assert torch.allclose(ours[:18], expected.permute(3, 0, 1, 2), atol=0.02)


def test_shape_code_tells_four_shapes_apart_and_a_circle_has_no_phase():
    codes = set(latents.TETRAHEDRON.values())
    assert len(codes) == 4 and set(latents.TETRAHEDRON) == set(world.SHAPES)
    composition = world.Composition("red", "circle", "still", "navy", "low")
    scene = world.make_scene(composition, random.Random(0), 22)
    semantic = latents.scene_geometry(composition, scene, (128, 128), _basis()).semantic
    assert semantic[..., 4:].abs().max() == 0
    assert 0.1 < float(semantic[..., 0].mean()) < 0.2


def test_steady_tone_is_constant_in_audio_latents():
    composition = world.Composition("red", "star", "still", "navy", "mid")
    wave = torch.from_numpy(world.sound(composition, world.make_scene(composition, random.Random(0), 22)))
    raw = band_latents(wave)
    assert raw.shape == (2, 32, 37)
    assert float((raw[:, :, 10] - raw[:, :, 20]).abs().max()) < 1e-3
