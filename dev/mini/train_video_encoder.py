"""Set the video encoder analytically, then train its residual branches on what is not linear in the pixels.

Coverage, shape code and phase need to see the outline. Batches are mostly single frames (keyframes, the encoder's
use in the app) and some five-frame clips. Reports the explained variance per channel group on unseen clips.
"""

import argparse
import random
import time
from pathlib import Path

import torch

from dev.mini import world
from dev.mini.latents import COMPONENTS, Basis, colour_geometry, load_basis, normalised_rgb, scene_geometry
from dev.mini.linear_encoder import start_encoder
from dev.mini.video_vae import build_video_vae

GROUPS = {"components": slice(0, COMPONENTS), "coverage": slice(18, 19), "shape": slice(19, 22), "phase": slice(22, 24)}
CANVASES = ((128, 128), (128, 128), (128, 128), (192, 128), (256, 256))
CODE_WEIGHT = 2.0
RATE = 1.5e-3


def random_clip(rng: random.Random, basis: Basis, canvas: tuple[int, int]) -> tuple[torch.Tensor, torch.Tensor]:
    """Pixels [3, 22, H, W] (normalised) and model-space latents [24, 7, h, w]."""
    composition = rng.choice(world.compositions())
    scene = world.make_scene(composition, rng, 22)
    geometry = scene_geometry(composition, scene, canvas, basis)
    latent = colour_geometry(geometry.opacity, geometry.semantic, composition, basis)
    alpha = torch.from_numpy(world.coverage(composition, scene, *canvas))
    back = normalised_rgb(world.BACKGROUNDS[composition.background]).view(3, 1, 1, 1)
    front = normalised_rgb(world.COLOURS[composition.colour]).view(3, 1, 1, 1)
    return back + (front - back) * alpha, latent


def encode(vae: torch.nn.Module, clips: torch.Tensor, basis: Basis) -> torch.Tensor:
    """Model-space latents of clips [B, 3, 1 or 5 or 17, H, W]."""
    moments = vae.quant_conv(vae.encoder(clips))[:, :24]
    return (moments - basis.mean.view(1, -1, 1, 1, 1)) / basis.std.view(1, -1, 1, 1, 1)


@torch.no_grad()
def explained(vae: torch.nn.Module, basis: Basis, seed: int, frames: int) -> dict[str, float]:
    """Explained variance per channel group on unseen 128x128 clips: single frames (1) or the closing five (5)."""
    rng = random.Random(seed)
    ours, theirs = [], []
    for _ in range(24):
        clip, latent = random_clip(rng, basis, (128, 128))
        ours.append(encode(vae, clip[None, :, 17 : 17 + frames], basis))
        theirs.append(latent[None, :, 5 : 6 if frames == 1 else 7])
    ours, theirs = torch.cat(ours), torch.cat(theirs)
    spread = theirs - theirs.mean((0, 2, 3, 4), keepdim=True)
    return {
        name: round(1 - float((ours - theirs)[:, part].pow(2).sum() / spread[:, part].pow(2).sum()), 4)
        for name, part in GROUPS.items()
    }


def start(vae: torch.nn.Module, basis: Basis) -> None:
    """Analytic start from 12 clips."""
    rng = random.Random(3)
    drawn = [random_clip(rng, basis, (128, 128)) for _ in range(12)]
    shape = (-1, 1, 1, 1)
    raw = [latent * basis.std.view(shape) + basis.mean.view(shape) for _, latent in drawn]
    clips = [clip[None, :, :17] for clip, _ in drawn] + [clip[None, :, 17:] for clip, _ in drawn]
    start_encoder(vae, clips, [r[None, :, :5] for r in raw] + [r[None, :, 5:] for r in raw])


def make_batch(rng: random.Random, basis: Basis) -> tuple[torch.Tensor, torch.Tensor]:
    """Six single frames (two thirds of the batches) or two five-frame clips, with their latents."""
    canvas = rng.choice(CANVASES)
    single = rng.random() < 0.67
    count = max(1, (6 if single else 2) * 128 * 128 // (canvas[0] * canvas[1]))
    clips, latents = [], []
    for _ in range(count):
        clip, latent = random_clip(rng, basis, canvas)
        if single:
            first = rng.randrange(2)
            clips.append(clip[:, 17 * first : 17 * first + 1])
            latents.append(latent[:, 5 * first : 5 * first + 1])
        else:
            clips.append(clip[:, 17:])
            latents.append(latent[:, 5:])
    return torch.stack(clips), torch.stack(latents)


def train(vae: torch.nn.Module, basis: Basis, minutes: float) -> None:
    """Train residual branches and head for a fixed time, cooling over the last 60 %."""
    names = [
        n
        for n, _ in vae.encoder.named_parameters()
        if "resnets" in n or "conv_out" in n or "down_blocks.3.downsamplers" in n
    ]
    parameters = [p for n, p in vae.encoder.named_parameters() if n in names]
    optimiser = torch.optim.AdamW(parameters, lr=RATE, betas=(0.9, 0.95), weight_decay=0.0)
    weight = torch.ones(1, 24, 1, 1, 1)
    weight[:, COMPONENTS:] = CODE_WEIGHT
    rng = random.Random(4)
    began = printed = time.monotonic()
    step = 0
    while (done := (time.monotonic() - began) / (60 * minutes)) < 1:
        optimiser.param_groups[0]["lr"] = RATE * min(1, (step + 1) / 30) * min(1.0, max(0.02, (1 - done) / 0.6))
        clips, latents = make_batch(rng, basis)
        loss = ((encode(vae, clips, basis) - latents).pow(2) * weight).mean()
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimiser.step()
        step += 1
        if time.monotonic() - printed > 60:
            printed = time.monotonic()
            print(f"step {step} loss {float(loss.detach()):.4f} frame {explained(vae, basis, 99, 1)}", flush=True)


def main() -> None:
    """`python -m dev.mini.train_video_encoder --run FOLDER --data FOLDER --minutes 15`."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--run", type=Path, required=True)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--minutes", type=float, required=True, help="0 keeps the analytic start")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(8)
    arguments.run.mkdir(parents=True, exist_ok=True)
    path = arguments.run / "encoder.pt"
    basis = load_basis(arguments.data / "basis.pt")
    vae = build_video_vae(basis)
    if path.exists():
        vae.load_state_dict(torch.load(path, weights_only=True), strict=False)
    else:
        start(vae, basis)
        print("analytic", explained(vae, basis, 99, 1), explained(vae, basis, 99, 5), flush=True)
    if arguments.minutes > 0:
        train(vae, basis, arguments.minutes)
    print("final frame", explained(vae, basis, 99, 1), "clip", explained(vae, basis, 99, 5), flush=True)
    torch.save({n: w for n, w in vae.state_dict().items() if n.startswith(("encoder.", "quant_conv."))}, path)


if __name__ == "__main__":
    main()
