"""Score the embedded model through the application's own engine, on compositions it was never trained on.

    python -m dev.mini.eval_mini [--clips 64] [--seed 1] [--paired 64]

First the detector proves itself: on true clips it must be right, against shuffled prompts at chance. Then clips are
made from English and Chinese captions in turn and read back. With --paired the same clips are made once more with
Q8_0 weights, and compared with those of the float32 weights, seed by seed. One JSON object is the last line; the exit
code is 1 when a rate falls short of what is asked of it.
"""

import argparse
import json
import random
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from core import paths
from core.kernels.backend import CancelFlag
from core.kernels.matrix import WeightFormat
from core.kernels.provider import TensorSource
from core.phase import Phase
from core.pipeline import phases
from core.pipeline.engine import Engine
from core.pipeline.preview import CellColours
from core.request import GenerationRequest
from core.weights.checkpoint import ModelSet, open_model_set
from core.weights.components import ComponentKind
from core.weights.quantize import Float32Source, QuantizedSource
from dev.mini import world
from dev.mini.detector import detect
from dev.mini.requests import Request, make_requests

ASKED = {"colour": 0.95, "motion": 0.90, "background": 0.95, "sound": 0.90, "shape": 0.85}
ASKED_TRUTH = 0.99
ATTRIBUTES = tuple(ASKED)


@dataclass(frozen=True, slots=True)
class Case:
    """A request with the seed of its noise."""

    request: Request
    seed: int

    @property
    def composition(self) -> world.Composition:
        return self.request.composition


@dataclass(frozen=True, slots=True)
class Made:
    """A finished clip: its latents [24, T, h, w] and what the detector reads."""

    latent: np.ndarray
    read: dict


class Silent:
    """A reporter nobody listens to."""

    def phase(self, phase: Phase, total: int) -> None:
        pass

    def progress(self, done: int, total: int) -> None:
        pass

    def preview(self, step: int, rgb: np.ndarray) -> None:
        pass

    def notice(self, text: str) -> None:
        print(text, file=sys.stderr)


def make_cases(count: int, seed: int) -> list[Case]:
    """`count` held-out requests with noise of their own."""
    return [Case(request, 1000 * seed + number) for number, request in enumerate(make_requests(count, seed))]


def rates(cases: list[Case], reads: list[dict]) -> dict[str, float]:
    """Share of clips per attribute that show what was asked for."""
    right = {
        name: [read[name] == getattr(case.composition, name) for case, read in zip(cases, reads, strict=True)]
        for name in ATTRIBUTES
    }
    return {name: round(float(np.mean(values)), 4) for name, values in right.items()}


def prove_detector(cases: list[Case], seed: int) -> dict:
    """Rates on drawn clips, and against prompts that belong to other clips."""
    rng = random.Random(seed)
    reads = [detect(*world.render(case.composition, rng, 128, 128, 22)) for case in cases]
    others = cases[1:] + cases[:1]
    return {"truth": rates(cases, reads), "shuffled": rates(others, reads)}


def render(engine: Engine, case: Case, size: tuple[int, int, int]) -> tuple[phases.ClipLatents, dict]:
    """One case through the same phases as the application, without writing a file: latents, what the detector reads."""
    width, height, frame_count = size
    prompt = case.request.prompt
    request = GenerationRequest(prompt=prompt, width=width, height=height, frame_count=frame_count, seed=case.seed)
    run = engine.start(request, Silent(), CancelFlag())
    latents = phases.denoise(run, phases.encode_text(run))
    waveform = phases.decode_audio(run, latents.audio)
    colours = CellColours(*latents.video.shape[1:])
    frames = np.concatenate(list(phases.decode_video(run, latents.video, colours)))
    return latents, detect(frames, waveform)


def make_clip(engine: Engine, case: Case, size: tuple[int, int, int]) -> Made:
    """The clip of one case."""
    latents, read = render(engine, case, size)
    return Made(latents.video, read)


def seen_through(path: Path, wrap: Callable[[TensorSource], TensorSource]) -> ModelSet:
    """The model with its denoiser's and text encoder's weights seen through `wrap`."""
    files = open_model_set(path)
    changed = {
        kind: replace(files.components[kind], source=wrap(files.components[kind].source))
        for kind in (ComponentKind.DENOISER, ComponentKind.TEXT_ENCODER)
    }
    return replace(files, components=files.components | changed)


def compare_formats(cases: list[Case], size: tuple[int, int, int]) -> dict:
    """Q8_0 against float32 weights, clip by clip: attributes that flip, and the distance of the latents."""
    exact = Engine(open_model=lambda path: seen_through(path, Float32Source))
    small = Engine(open_model=lambda path: seen_through(path, lambda s: QuantizedSource(s, WeightFormat.Q8_0)))
    flips, errors = dict.fromkeys(ATTRIBUTES, 0), []
    for case in cases:
        a, b = make_clip(exact, case, size), make_clip(small, case, size)
        errors.append(float(np.linalg.norm(a.latent - b.latent) / np.linalg.norm(a.latent)))
        for name in ATTRIBUTES:
            flips[name] += a.read[name] != b.read[name]
    return {
        "clips": len(cases),
        "disagreement": {name: round(count / len(cases), 4) for name, count in flips.items()},
        "latent_relative_l2_median": round(float(np.median(errors)), 5),
        "latent_relative_l2_max": round(float(np.max(errors)), 5),
    }


def evaluate(arguments: argparse.Namespace) -> dict:
    """All figures as JSON types."""
    cases, size = make_cases(arguments.clips, arguments.seed), (arguments.width, arguments.height, arguments.frames)
    result = {"clips": len(cases), "size": size, **prove_detector(cases, arguments.seed)}
    engine, reads, started = Engine(), [], time.process_time()
    for case in cases:
        reads.append(make_clip(engine, case, size).read)
        wrong = [name for name in ATTRIBUTES if reads[-1][name] != getattr(case.composition, name)]
        print(f"{case.composition.key} {case.request.language} wrong: {' '.join(wrong) or '-'}", file=sys.stderr)
    result["held_out"] = rates(cases, reads)
    for language in world.LANGUAGES:
        chosen = [(case, read) for case, read in zip(cases, reads, strict=True) if case.request.language == language]
        result[f"held_out_{language}"] = rates(*map(list, zip(*chosen, strict=True)))
    result["cpu_s_per_clip"] = round((time.process_time() - started) / len(cases), 2)
    if arguments.paired:
        result["q8_0_against_f32"] = compare_formats(cases[: arguments.paired], size)
    return result


def shortfalls(result: dict) -> list[str]:
    """Rates below what is asked."""
    faults = [f"truth {name} {rate}" for name, rate in result["truth"].items() if rate < ASKED_TRUTH]
    faults += [f"held-out {name} {rate}" for name, rate in result["held_out"].items() if rate < ASKED[name]]
    return faults


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clips", type=int, default=64)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--paired", type=int, default=0, help="clips to compare between Q8_0 and float32 weights")
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--height", type=int, default=128)
    parser.add_argument("--frames", type=int, default=22)
    result = evaluate(parser.parse_args())
    result["model"] = paths.mini_model_path().name
    result["short"] = shortfalls(result)
    print(json.dumps(result))
    return 1 if result["short"] else 0


if __name__ == "__main__":
    sys.exit(main())
