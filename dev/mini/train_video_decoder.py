"""Train the video decoder alone, from known latents to the pixels they stand for.

The inputs imitate an under-trained denoiser: noise everywhere, fine components shrunk or blurred at random, shape
code nearly intact, so that the decoder learns to draw the outline from code and coarse blob instead of copying fine
components. Scenes are rendered on the way; canvases 128 and 256, second windows of 39 frames and odd canvases mixed.
Resumes from `decoder.pt`; `control.json` (threads, stop, cool_from) is read again every 20 steps.
"""

import argparse
import math
import random
import time
from dataclasses import dataclass
from pathlib import Path

import torch

from dev.mini import world
from dev.mini.latents import (
    COMPONENTS,
    PIXEL_STD,
    Basis,
    colour_geometry,
    load_basis,
    normalised_rgb,
    scene_geometry,
    to_blocks,
)
from dev.mini.muon import BlockMuon
from dev.mini.scenes import Canvas
from dev.mini.train_denoiser import Control
from dev.mini.video_vae import WINDOW, build_video_vae, start_decoder, window_features

MIX = {
    "128x128x22": 0.62,
    "256x256x22": 0.16,
    "128x128x39": 0.10,
    "192x128x22": 0.04,
    "128x192x22": 0.04,
    "160x96x22": 0.04,
}
POOL = {"128x128x22": 400, "256x256x22": 60, "128x128x39": 60, "192x128x22": 30, "128x192x22": 30, "160x96x22": 30}
PIXELS = 4 * 128 * 128  # per batch: four clips of 128x128
FRAME_EXISTS = torch.ones(WINDOW, 4)
FRAME_EXISTS[[0, 5], :3] = 0  # latents 0 and 5 stand for one frame
COARSE = 4  # components before this one are never shrunk


@dataclass(frozen=True, slots=True)
class Rendered:
    """One window of a scene: opacity in pixels, cut into token blocks, and as latent geometry."""

    composition: world.Composition
    alpha: torch.Tensor  # [7, h, w, 1024] uint8
    opacity: torch.Tensor
    semantic: torch.Tensor


class RenderedPool:
    """Scenes of every canvas; a fresh one replaces a random one before every batch."""

    def __init__(self, basis: Basis, seed: int) -> None:
        self._basis, self._rng = basis, random.Random(seed)
        self._held: dict[str, list[Rendered]] = {}

    def batch(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Latents [B, 24, 7, h, w], pixel blocks [B, 7*h*w, 3072] (normalised), nearness [B, 7*h*w].

        Nearness is 2 on the object, 1 in blocks next to it, 0 elsewhere.
        """
        name = self._rng.choices(list(MIX), list(MIX.values()))[0]
        canvas, held = Canvas.parse(name), self._held.setdefault(name, [])
        fresh = [self._render(canvas) for _ in range(1 if len(held) >= 16 else 16 - len(held))]
        held[:] = (held + fresh)[-POOL[name] :]
        count = max(1, PIXELS // (canvas.width * canvas.height))
        items = [self._colour(scene) for scene in [held[-1], *self._rng.choices(held, k=count - 1)]]
        return tuple(torch.stack(part) for part in zip(*items, strict=True))

    def _render(self, canvas: Canvas) -> Rendered:
        composition = self._rng.choice(world.compositions())
        scene = world.make_scene(composition, self._rng, canvas.frame_count)
        alpha = torch.from_numpy(world.coverage(composition, scene, canvas.width, canvas.height))
        geometry = scene_geometry(composition, scene, (canvas.width, canvas.height), self._basis)
        window = self._rng.randrange((len(geometry.opacity) - 2) // 5)
        cut = slice(5 * window, 5 * window + WINDOW)
        blocks = to_blocks(alpha[None, 17 * window : 17 * window + 22])
        return Rendered(composition, (blocks * 255).round().byte(), geometry.opacity[cut], geometry.semantic[cut])

    def _colour(self, scene: Rendered) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        old, rng = scene.composition, self._rng
        colours = rng.choice(list(world.COLOURS)), rng.choice(list(world.BACKGROUNDS))
        composition = world.Composition(colours[0], old.shape, old.motion, colours[1], old.sound)
        latent = colour_geometry(scene.opacity, scene.semantic, composition, self._basis)
        alpha = (scene.alpha.float() / 255).flatten(0, 2)[:, None]
        back = normalised_rgb(world.BACKGROUNDS[composition.background]).view(1, 3, 1)
        front = normalised_rgb(world.COLOURS[composition.colour]).view(1, 3, 1)
        inside = (scene.semantic[..., 0] > 0).float()
        near = inside + torch.nn.functional.max_pool2d(inside[:, None], 3, 1, 1)[:, 0]
        return latent, (back + (front - back) * alpha).flatten(1), near.flatten()


def disturb(latent: torch.Tensor) -> torch.Tensor:
    """Errors like those of an under-trained denoiser, different for every clip; [B, 24, 7, h, w] to the same."""
    count = len(latent)

    def draw(low: float, high: float) -> torch.Tensor:
        return torch.empty(count, 1, 1, 1, 1).uniform_(low, high)

    coarse, fine, code = latent.split([COARSE, COMPONENTS - COARSE, 24 - COMPONENTS], 1)
    shrink = torch.where(draw(0, 1) < 0.6, draw(0, 1), torch.ones(1))
    blurred = torch.nn.functional.avg_pool3d(fine, (1, 3, 3), 1, (0, 1, 1), count_include_pad=False)
    fine = torch.where(draw(0, 1) < 0.3, blurred, fine) * shrink
    code = code * draw(0.85, 1.1)
    mixed = torch.cat([coarse, fine, code], 1)
    return mixed + draw(0, 0.2) * draw(0, 1) * torch.randn_like(mixed)


def loss_of(
    vae: torch.nn.Module, basis: Basis, latent: torch.Tensor, blocks: torch.Tensor, near: torch.Tensor
) -> torch.Tensor:
    """Absolute error of the frames that exist, in the blocks near the object and in 4 % of the others."""
    chosen = (near > 0) | (torch.rand_like(near) < 0.04)
    features = window_features(vae, latent, basis)[chosen]
    error = (vae.decoder.proj_out(features) - blocks[chosen]).abs().view(-1, 3, 4, 256).mean((1, 3))
    token = chosen.nonzero()[:, 1] // (near.shape[1] // WINDOW)
    weight = FRAME_EXISTS[token] * (0.5 + near[chosen])[:, None]
    return (error * weight).sum() / weight.sum()


class DecoderTrainer:
    """Decoder weights, optimisers and counters."""

    def __init__(self, folder: Path, basis: Basis) -> None:
        torch.manual_seed(11)
        self.folder, self.basis, self.step, self.seconds = folder, basis, 0, 0.0
        self.vae = build_video_vae(basis)
        start_decoder(self.vae, basis)
        self.named = {f"decoder.{n}": p for n, p in self.vae.decoder.named_parameters()}
        self.named |= {f"post_quant_conv.{n}": p for n, p in self.vae.post_quant_conv.named_parameters()}
        wide = [p for n, p in self.named.items() if p.ndim == 2 and "blocks" in n]
        chosen = {id(p) for p in wide}
        self.muon = BlockMuon(wide, lr=1e-3)
        rest = [p for p in self.named.values() if id(p) not in chosen]
        self.adam = torch.optim.AdamW(rest, lr=1e-3, betas=(0.9, 0.95), weight_decay=0.0, fused=True)

    def save(self) -> None:
        """Write `decoder.pt`."""
        state = {"weights": {n: p.detach() for n, p in self.named.items()}, "step": self.step, "seconds": self.seconds}
        state |= {"muon": self.muon.state_dict(), "adam": self.adam.state_dict()}
        torch.save(state, self.folder / "decoder.part")
        (self.folder / "decoder.part").rename(self.folder / "decoder.pt")

    def resume(self) -> None:
        """Continue from `decoder.pt`."""
        state = torch.load(self.folder / "decoder.pt", weights_only=True)
        with torch.no_grad():
            for name, parameter in self.named.items():
                parameter.copy_(state["weights"][name])
        self.muon.load_state_dict(state["muon"])
        self.adam.load_state_dict(state["adam"])
        self.step, self.seconds = state["step"], state["seconds"]

    def update(self, pool: RenderedPool, control: Control) -> float:
        """One step; returns the loss."""
        began = time.monotonic()
        factor = control.left() * min(1.0, (self.step + 1) / 50)
        self.muon.param_groups[0]["lr"] = control.muon_rate * factor
        self.adam.param_groups[0]["lr"] = control.adam_rate * factor
        latent, blocks, near = pool.batch()
        loss = loss_of(self.vae, self.basis, disturb(latent), blocks, near)
        for optimiser in (self.muon, self.adam):
            optimiser.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.named.values(), 1.0)
        self.muon.step()
        self.adam.step()
        self.step += 1
        self.seconds += time.monotonic() - began
        return float(loss.detach())


@torch.no_grad()
def quality_db(trainer: DecoderTrainer, batches: list) -> dict[str, float]:
    """PSNR on fixed batches from exact latents and from latents without their fine components."""
    result = {}
    scale = torch.tensor(PIXEL_STD).view(1, 3, 1, 1)
    for name, keep in (("exact", 1.0), ("coarse", 0.3)):
        errors = []
        for latent, blocks, _ in batches:
            shrunk = latent.clone()
            shrunk[:, COARSE:COMPONENTS] *= keep
            drawn = trainer.vae.decoder.proj_out(window_features(trainer.vae, shrunk, trainer.basis))
            error = ((drawn - blocks).view(-1, 3, 4, 256) * scale).pow(2).mean((1, 3)).view(len(latent), WINDOW, -1, 4)
            errors.append(float((error.mean((0, 2)) * FRAME_EXISTS).sum() / FRAME_EXISTS.sum()))
        result[name] = -10 * math.log10(sum(errors) / len(errors))
    return result


def main() -> None:
    """`python -m dev.mini.train_video_decoder --run FOLDER --data FOLDER`."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--run", type=Path, required=True)
    parser.add_argument("--data", type=Path, required=True)
    arguments = parser.parse_args()
    arguments.run.mkdir(parents=True, exist_ok=True)
    basis = load_basis(arguments.data / "basis.pt")
    trainer = DecoderTrainer(arguments.run, basis)
    if (arguments.run / "decoder.pt").exists():
        trainer.resume()
    torch.manual_seed(1000 + trainer.step)
    probe_pool = RenderedPool(basis, 99)
    probes = [probe_pool.batch() for _ in range(5)]
    pool = RenderedPool(basis, 100 + trainer.step)
    control = Control.read(arguments.run / "control.json")
    print("start", quality_db(trainer, probes), flush=True)
    saved, losses = time.monotonic(), []
    while control.left() > 0:
        if trainer.step % 20 == 0:
            control = Control.read(arguments.run / "control.json")
            torch.set_num_threads(control.threads)
        losses.append(trainer.update(pool, control))
        if time.monotonic() - saved > 60:
            quality = " ".join(f"{k} {v:.2f} dB" for k, v in quality_db(trainer, probes).items())
            print(
                f"step {trainer.step} min {trainer.seconds / 60:.1f} loss {sum(losses) / len(losses):.4f} {quality}",
                flush=True,
            )
            trainer.save()
            saved, losses = time.monotonic(), []
    trainer.save()


if __name__ == "__main__":
    main()
