"""Stored scenes: colourless geometry and sound latents, from which any composition is coloured at training time.

One stored scene of (shape, motion) serves all 8 colours, 5 backgrounds and 4 sounds, so a few thousand scenes give
millions of distinct clips; which compositions are drawn is the trainer's business (it never draws a held-out one).
Shards are float16 files `<width>x<height>x<frames>-<seed>.pt`; a trainer picks up new ones while it runs.
"""

import argparse
import random
from dataclasses import dataclass
from pathlib import Path

import torch

from dev.mini import world
from dev.mini.audio_latents import band_latents
from dev.mini.latents import Basis, colour_geometry, load_basis, scene_geometry
from dev.mini.world import SOUNDS, Composition


@dataclass(frozen=True, slots=True)
class Canvas:
    """Size of a clip in pixels and frames."""

    width: int
    height: int
    frame_count: int

    @property
    def name(self) -> str:
        """File-name part, `128x128x22`."""
        return f"{self.width}x{self.height}x{self.frame_count}"

    @staticmethod
    def parse(name: str) -> "Canvas":
        """Inverse of `name`."""
        return Canvas(*(int(part) for part in name.split("x")))


class ScenePool:
    """All shards of one canvas in memory."""

    def __init__(self, folder: Path, canvas: Canvas, basis: Basis) -> None:
        self.canvas = canvas
        self._folder = folder
        self._basis = basis
        self._read: set[str] = set()
        self._by_kind: dict[tuple[str, str], list[dict]] = {}

    def refresh(self) -> int:
        """Read shards that appeared since the last call; returns the number of scenes held."""
        for path in sorted(self._folder.glob(f"{self.canvas.name}-*.pt")):
            if path.name not in self._read:
                self._read.add(path.name)
                for scene in torch.load(path, weights_only=True):
                    self._by_kind.setdefault((scene["shape"], scene["motion"]), []).append(scene)
        return sum(len(scenes) for scenes in self._by_kind.values())

    def draw(self, composition: Composition, rng: random.Random) -> tuple[torch.Tensor, torch.Tensor]:
        """Latents of a random scene of this composition.

        returns: model-space video [24, T, h, w]; raw audio [2, 32, A]; float32
        """
        scene = rng.choice(self._by_kind[composition.shape, composition.motion])
        opacity, semantic = scene["opacity"].float(), scene["semantic"].float()
        video = colour_geometry(opacity, semantic, composition, self._basis)
        return video, scene["audio"][SOUNDS.index(composition.sound)].float()


def make_scenes(canvas: Canvas, count: int, seed: int, basis: Basis) -> list[dict]:
    """Draw `count` scenes, shapes and motions in turn."""
    rng = random.Random(seed)
    kinds = sorted({(c.shape, c.motion) for c in world.compositions()})
    scenes = []
    for i in range(count):
        shape, motion = kinds[i % len(kinds)]
        composition = Composition("red", shape, motion, "black", "low")
        scene = world.make_scene(composition, rng, canvas.frame_count)
        geometry = scene_geometry(composition, scene, (canvas.width, canvas.height), basis)
        waves = [world.sound(Composition("red", shape, motion, "black", sound), scene) for sound in SOUNDS]
        audio = band_latents(torch.stack([torch.from_numpy(wave) for wave in waves]))
        scenes.append({
            "shape": shape, "motion": motion, "opacity": geometry.opacity.half(), "semantic": geometry.semantic.half(),
            "audio": audio.half(),
        })  # fmt: skip
    return scenes


def main() -> None:
    """Write shards: `--canvas 128x128x22 --shards 10 --count 540 --seed 0`."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--basis", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--canvas", type=Canvas.parse, required=True)
    parser.add_argument("--shards", type=int, default=1)
    parser.add_argument("--count", type=int, default=540)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    basis = load_basis(arguments.basis)
    for seed in range(arguments.seed, arguments.seed + arguments.shards):
        path = arguments.out / f"{arguments.canvas.name}-{seed:04d}.pt"
        if not path.exists():
            scenes = make_scenes(arguments.canvas, arguments.count, seed, basis)
            torch.save(scenes, path.with_suffix(".part"))
            path.with_suffix(".part").rename(path)


if __name__ == "__main__":
    main()
