"""Score a checkpoint on held-out compositions, English and Chinese in turn, with the classical detector.

One JSON line last; `--sheet` writes a contact sheet. `--truth` scores true clips instead (the detector's own error)
and `--shuffle` compares every clip with another clip's prompt (chance).
"""

import argparse
import json
import random
import time
from collections import Counter
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from dev.mini import model, world
from dev.mini.audio_latents import audio_scale
from dev.mini.audio_vae import build_audio_vae, sound_of
from dev.mini.detector import detect
from dev.mini.latents import PIXEL_MEAN, PIXEL_STD, Basis, load_basis
from dev.mini.requests import Request, make_requests
from dev.mini.sampler import Schedule, sample
from dev.mini.scenes import Canvas
from dev.mini.tokenizer import CaptionTokenizer
from dev.mini.train_audio import resume
from dev.mini.video_vae import build_video_vae

ATTRIBUTES = ("colour", "shape", "motion", "background", "sound")
LARGEST_BATCH = 16


class Pipeline:
    """Every trained part of the model, loaded from run folders."""

    def __init__(self, runs: Path, weights: str, checkpoint: str) -> None:
        self.basis: Basis = load_basis(runs / "basis.pt")
        self.audio_scale = audio_scale(runs / "audio_scale.pt")
        self.tokenizer = CaptionTokenizer(runs / "vocabulary.tiktoken")
        self.denoiser, self.text = model.build_denoiser().eval(), model.build_text().eval()
        state = torch.load(runs / "denoiser" / checkpoint, weights_only=True, mmap=True)
        self.step = state["step"]
        load_part(self.denoiser, state[weights], "denoiser.")
        load_part(self.text, state[weights], "text.")
        self.video_vae = build_video_vae(self.basis).eval()
        drawn = torch.load(runs / "video" / "decoder.pt", weights_only=True, mmap=True)["weights"]
        load_part(self.video_vae.decoder, drawn, "decoder.")
        load_part(self.video_vae.post_quant_conv, drawn, "post_quant_conv.")
        self.audio_vae = build_audio_vae().eval()
        if (runs / "audio" / "audio.pt").exists():
            resume(self.audio_vae, runs / "audio" / "audio.pt")
        if (runs / "encoder" / "encoder.pt").exists():
            self.video_vae.load_state_dict(torch.load(runs / "encoder" / "encoder.pt", weights_only=True), strict=False)

    @torch.no_grad()
    def pixels(self, latent: torch.Tensor) -> np.ndarray:
        """Model-space video latents [B, 24, T, h, w] to uint8 [B, F, H, W, 3]."""
        shape = (1, -1, 1, 1, 1)
        raw = latent * self.basis.std.view(shape) + self.basis.mean.view(shape)
        out = self.video_vae.decode(raw).sample
        out = out * torch.tensor(PIXEL_STD).view(shape) + torch.tensor(PIXEL_MEAN).view(shape)
        return (out.clamp(0, 1) * 255).round().byte().permute(0, 2, 3, 4, 1).numpy()

    def generate(self, requests: list[Request], canvas: Canvas, schedule: Schedule, seed: int) -> list[tuple]:
        """(frames, waveform) per request; requests of equal token count share a batch."""
        by_length: dict[int, list[int]] = {}
        ids = [self.tokenizer.encode(request.prompt) for request in requests]
        for i, row in enumerate(ids):
            by_length.setdefault(len(row), []).append(i)
        clips: list = [None] * len(requests)
        for members in by_length.values():
            for start in range(0, len(members), LARGEST_BATCH):
                part = members[start : start + LARGEST_BATCH]
                rows = torch.tensor([ids[i] for i in part])
                video, audio = sample(self.denoiser, self.text, rows, canvas, schedule, seed + part[0])
                with torch.no_grad():
                    waves = sound_of(self.audio_vae, audio, self.audio_scale).numpy()
                frames = np.concatenate([self.pixels(latent[None]) for latent in video])
                for k, i in enumerate(part):
                    clips[i] = (frames[k], waves[k])
        return clips


def load_part(module: torch.nn.Module, weights: dict, prefix: str) -> None:
    """Load the entries of `weights` that start with `prefix`."""
    module.load_state_dict({n.removeprefix(prefix): w.float() for n, w in weights.items() if n.startswith(prefix)})


def rates(requests: list[Request], found: list[dict]) -> dict[str, dict[str, float]]:
    """Share of right answers per attribute: all, en, zh."""
    table: dict[str, dict[str, float]] = {}
    for group in ("all", *world.LANGUAGES):
        right: Counter = Counter()
        members = [i for i, r in enumerate(requests) if group in ("all", r.language)]
        for i in members:
            asked = requests[i].composition
            hits = [found[i][name] == getattr(asked, name) for name in ATTRIBUTES]
            right.update(dict(zip(ATTRIBUTES, hits, strict=True)))
            right["all five"] += all(hits)
        table[group] = {name: round(right[name] / len(members), 3) for name in (*ATTRIBUTES, "all five")}
        panned = [i for i in members if requests[i].composition.motion in ("left", "right")]
        sign = {"left": -1, "right": 1}
        kept = sum(sign[requests[i].composition.motion] * found[i]["pan"] > 0.15 for i in panned)
        table[group]["pan"] = round(kept / max(1, len(panned)), 3)
    return table


def write_sheet(clips: list[tuple], path: Path) -> None:
    """Four frames of the first 24 clips, three clips a row."""
    strips = []
    for frames, _ in clips[:24]:
        picks = [0, len(frames) // 3, 2 * len(frames) // 3, len(frames) - 1]
        strips.append(np.concatenate([frames[f] for f in picks], 1))
    rows = [np.concatenate(strips[i : i + 3], 1) for i in range(0, len(strips) // 3 * 3, 3)]
    Image.fromarray(np.concatenate(rows)).save(path)


def main() -> None:
    """Generate, detect, report."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--runs", type=Path, required=True)
    parser.add_argument("--count", type=int, default=64)
    parser.add_argument("--canvas", type=Canvas.parse, default=Canvas(128, 128, 22))
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--shift", type=float, nargs=2, default=(3.0, 3.0), help="video and audio")
    parser.add_argument("--weights", choices=("weights", "average"), default="average")
    parser.add_argument("--checkpoint", default="last.pt")
    parser.add_argument("--seed", type=int, default=123)
    parser.add_argument("--sheet", type=Path)
    parser.add_argument("--truth", action="store_true")
    parser.add_argument("--shuffle", action="store_true")
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    began = time.monotonic()
    requests = make_requests(arguments.count, arguments.seed)
    canvas, step = arguments.canvas, 0
    if arguments.truth:
        rng = random.Random(arguments.seed)
        clips = [world.render(r.composition, rng, canvas.width, canvas.height, canvas.frame_count) for r in requests]
    else:
        pipeline = Pipeline(arguments.runs, arguments.weights, arguments.checkpoint)
        step = pipeline.step
        clips = pipeline.generate(requests, canvas, Schedule(arguments.steps, *arguments.shift), arguments.seed)
    found = [detect(*clip) for clip in clips]
    if arguments.sheet:
        write_sheet(clips, arguments.sheet)
    for i, (request, answer) in enumerate(zip(requests, found, strict=True)):
        wrong = {n: answer[n] for n in ATTRIBUTES if answer[n] != getattr(request.composition, n)}
        if wrong:
            print(i, request.composition.key, request.language, "read as", wrong)
    if arguments.shuffle:
        found = found[1:] + found[:1]
    summary = {"step": step, "canvas": canvas.name, "count": arguments.count, "steps": arguments.steps,
               "shift": list(arguments.shift), "weights": arguments.weights, **rates(requests, found),
               "seconds": round(time.monotonic() - began, 1)}  # fmt: skip
    print(json.dumps(summary))


if __name__ == "__main__":
    main()
