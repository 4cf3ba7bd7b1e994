"""What faster arithmetic and smaller weights cost, seen in the clips of the embedded model.

    python -m dev.mini.eval_modes [--clips 64] [--only exact q4_k] [--fresh]

Every variant makes the same held-out clips from the same noise and is compared with its baseline, clip by clip: which
attributes the detector reads differently, and how far the latents are apart. Modes are compared with float32 products
of the same weights, weight formats with float32 weights. Clips are kept below build/eval_modes, so that a run
that was stopped goes on; what was made by another kernel library, model or table of modes is made again.
The last line is one JSON object; the exit code is 1 when a variant with a target flips an attribute in too many clips.

The trap: products of float32 weights may have no faster way, and then a mode costs nothing because it does nothing. So
modes run on Q8_0 and Q4_K weights as well, and there the very bits of the baseline count as a failure.
Proof: tests/dev/mini/test_eval_modes.py.
"""

import argparse
import hashlib
import json
import os
import sys
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, replace
from multiprocessing import get_context
from pathlib import Path

import numpy as np

from core import paths
from core.kernels.backend import Accuracy, KvFormat
from core.kernels.matrix import SCALED_FORMATS, WeightFormat
from core.kernels.provider import TensorSource
from core.kernels.threads import available_processors
from core.model.modes import EXACT, FAST, FLOAT, FLOAT_MODEL, NEAR, ModelModes
from core.pipeline.engine import Engine
from core.weights.checkpoint import ModelSet, open_model_set
from core.weights.components import ComponentKind
from core.weights.quantize import Float32Source
from dev.mini.eval_mini import ATTRIBUTES, Case, make_cases, render
from dev.mini.weight_formats import EncodedSource

ROOT = Path(__file__).resolve().parents[2]
KEPT = ROOT / "build" / "eval_modes"
TARGET = 0.97  # share of clips in which no attribute may flip
SHORT, LONG = (128, 128, 22), (128, 128, 90)
LONG_SHARE = 8  # a long clip costs about this many short ones
LAYER_SHARE = 2  # kinds of layers are told apart by their distances, which fewer clips show
SEED = 1
F32 = "f32 float"
MODE_WEIGHTS = (WeightFormat.F32, WeightFormat.Q8_0, WeightFormat.Q4_K)  # the modes run on these
BYTES = (WeightFormat.F16, WeightFormat.BF16, WeightFormat.Q8_0)
BITS_6_5 = (WeightFormat.Q6_K, WeightFormat.Q5_K, WeightFormat.Q5_1, WeightFormat.Q5_0)
BITS_4_3_2 = (WeightFormat.Q4_K, WeightFormat.Q4_1, WeightFormat.Q4_0, WeightFormat.Q3_K, WeightFormat.Q2_K)
FORMATS = BYTES + BITS_6_5 + BITS_4_3_2 + SCALED_FORMATS
KV = (KvFormat.BF16, KvFormat.INT8, KvFormat.INT4)
RADII = (8, 4)
LAYERS = ("qkv", "out", "fc1", "fc2")


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """One way to make the clips. `baseline` names the variant it is compared with, "" where there is none.

    weights: format of the denoiser's blocks; text_weights: of the text encoder's; None: as in the file
    share:   makes the first of so many parts of the cases
    target:  share of clips in which no attribute may differ from the baseline's
    """

    name: str
    baseline: str = ""
    weights: WeightFormat = WeightFormat.F32
    text_weights: WeightFormat | None = None
    modes: ModelModes = FLOAT_MODEL
    size: tuple[int, int, int] = SHORT
    share: int = 1
    target: float | None = None


@dataclass(frozen=True, slots=True)
class Clips:
    """What a variant made: latents [clips, n], sound behind picture, and what the detector read of each clip."""

    latents: np.ndarray
    reads: list[dict]


def all_variants() -> list[Variant]:
    """The two baselines of float32 weights, then formats, modes, layers, keys and values, text encoder, window."""
    long = Variant(name="long float", size=LONG, share=LONG_SHARE)
    text = Variant(name="text q8_0 float", baseline=F32, text_weights=WeightFormat.Q8_0)
    return [
        Variant(name=F32),
        long,
        *(Variant(name=f"{weights.label} float", baseline=F32, weights=weights) for weights in FORMATS),
        *(variant for weights in MODE_WEIGHTS for variant in _modes_on(weights)),
        *_layers_alone(),
        *(Variant(name=f"kv {kv.value}", baseline=F32, modes=ModelModes(denoiser=FLOAT.with_kv(kv))) for kv in KV),
        text,
        replace(text, name="text q8_0 near", baseline=text.name, modes=ModelModes(text_encoder=Accuracy.NEAR)),
        *(replace(long, name=f"long window {radius}", baseline=long.name,
                  modes=ModelModes(denoiser=replace(FLOAT, window_radius=radius))) for radius in RADII),
    ]  # fmt: skip


def _modes_on(weights: WeightFormat) -> list[Variant]:
    """Every mode on one format of weights, against float32 products of the same weights."""
    named = (("near", NEAR, TARGET), ("exact", EXACT, TARGET), ("fast", FAST, None))
    return [
        Variant(name=f"{weights.label} {name}", baseline=f"{weights.label} float", weights=weights,
                modes=ModelModes(denoiser=denoiser), target=target)
        for name, denoiser, target in named
    ]  # fmt: skip


def _layers_alone() -> list[Variant]:
    """One kind of layer at a time in a faster mode: what the table of modes is chosen by.

    On Q4_K weights, since instruction sets without a product of bytes take formats of 8 bits with 16-bit inputs.
    """
    modes = {f"exact {layer}": replace(FLOAT, **{layer: Accuracy.EXACT}) for layer in LAYERS}
    modes |= {f"{a.attention.accuracy.value} attention": replace(FLOAT, attention=a.attention) for a in (NEAR, EXACT)}
    base = Variant(name="", baseline="q4_k float", weights=WeightFormat.Q4_K, share=LAYER_SHARE)
    return [replace(base, name=f"q4_k {n}", modes=ModelModes(denoiser=m)) for n, m in modes.items()]


# ---- making
def make_variant(variant: Variant, cases: list[Case]) -> Clips:
    """Every case through the phases of the application."""
    engine = Engine(open_model=lambda path: recoded(path, variant), modes=variant.modes)
    latents, reads = [], []
    for case in cases:
        latent, read = make_clip(engine, case, variant.size)
        latents.append(latent)
        reads.append(read)
    return Clips(np.stack(latents), reads)


def make_clip(engine: Engine, case: Case, size: tuple[int, int, int]) -> tuple[np.ndarray, dict]:
    """(latents of picture and sound in one row, what the detector reads)."""
    latents, found = render(engine, case, size)
    row = np.concatenate([latents.video.reshape(-1), latents.audio.reshape(-1)])
    return row, {name: found[name] for name in ATTRIBUTES}


def recoded(path: Path, variant: Variant) -> ModelSet:
    """The model with the variant's weights."""
    files = open_model_set(path)
    changed = {ComponentKind.DENOISER: variant.weights}
    if variant.text_weights:
        changed[ComponentKind.TEXT_ENCODER] = variant.text_weights
    parts = {kind: replace(files.components[kind], source=_coded(files.components[kind].source, weights))
             for kind, weights in changed.items()}  # fmt: skip
    return replace(files, components=files.components | parts)


def _coded(source: TensorSource, weights: WeightFormat) -> TensorSource:
    return Float32Source(source) if weights is WeightFormat.F32 else EncodedSource(source, weights)


# ---- keeping
def fingerprint(variant: Variant, count: int) -> str:
    """What the clips of a variant depend on: kernels, model, modes, cases."""
    digest = hashlib.sha256(
        repr((variant.weights, variant.text_weights, variant.size, variant.share, count, SEED)).encode()
    )
    digest.update(json.dumps(variant.modes.describe(), sort_keys=True).encode())
    digest.update(open_model_set(paths.mini_model_path()).content_key.encode())
    for library in sorted((ROOT / "build" / "native").glob("libh3k.*")):
        digest.update(library.read_bytes())
    return digest.hexdigest()


def _file(folder: Path, variant: Variant) -> Path:
    return folder / f"{variant.name.replace(' ', '-')}.npz"


def keep(folder: Path, variant: Variant, mark: str, clips: Clips) -> None:
    """Write the clips of a variant, whole or not at all."""
    folder.mkdir(parents=True, exist_ok=True)
    target = _file(folder, variant)
    partial = target.with_suffix(".partial.npz")
    np.savez(partial, latents=clips.latents, reads=np.array(json.dumps(clips.reads)), mark=np.array(mark))
    partial.replace(target)


def kept(folder: Path, variant: Variant, mark: str) -> Clips | None:
    """The clips of a variant when they were made under the same conditions."""
    if not _file(folder, variant).exists():
        return None
    with np.load(_file(folder, variant)) as stored:
        if str(stored["mark"]) != mark:
            return None
        return Clips(stored["latents"], json.loads(str(stored["reads"])))


# ---- comparing
def compare(clips: Clips, baseline: Clips) -> dict:
    """Shares of clips that read the same, and distances of the latents relative to the baseline's length.

    The baseline may have more clips; the first of both are the same cases.
    """
    baseline = Clips(baseline.latents[: len(clips.latents)], baseline.reads[: len(clips.reads)])
    same = {name: [a[name] == b[name] for a, b in zip(clips.reads, baseline.reads, strict=True)] for name in ATTRIBUTES}
    whole = np.all(list(same.values()), axis=0)
    distance = np.linalg.norm((clips.latents - baseline.latents).astype(np.float64), axis=1)
    relative = distance / np.linalg.norm(baseline.latents.astype(np.float64), axis=1)
    return {
        "clips": len(whole),
        "no_flip": round(float(np.mean(whole)), 4),
        "same": {name: round(float(np.mean(values)), 4) for name, values in same.items()},
        "l2_median": float(f"{np.median(relative):.3g}"),
        "l2_max": float(f"{np.max(relative):.3g}"),
        "identical": bool(np.array_equal(clips.latents, baseline.latents)),
    }


def judge(variant: Variant, made: dict[str, Clips]) -> dict:
    """A variant against its baseline and, as `no_flip_f32`, against float32 products of float32 weights."""
    figures = compare(made[variant.name], made[variant.baseline])
    plain = "long float" if variant.size == LONG else F32
    figures["no_flip_f32"] = compare(made[variant.name], made[plain])["no_flip"]
    return figures | {"against": variant.baseline, "target": variant.target}


def table(results: dict[str, dict]) -> str:
    """The results as a Markdown table."""
    head = ["variant", "against", "no flip", "no flip against f32", *ATTRIBUTES, "latent L2 median", "max", "clips"]
    lines = [head, ["---"] * len(head)]
    for name, result in results.items():
        shares = [result["no_flip"], result["no_flip_f32"], *(result["same"][attribute] for attribute in ATTRIBUTES)]
        distances = [f"{result['l2_median']:.2g}", f"{result['l2_max']:.2g}"]
        distances = ["the same bits", ""] if result["identical"] else distances
        shown = [f"{share:.3f}" for share in shares]
        lines.append([name, result["against"], *shown, *distances, str(result["clips"])])
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def shortfalls(results: dict[str, dict]) -> list[str]:
    """Variants that miss their target, or that cannot have shown anything: integers read like floats, to the bit."""
    faults = []
    for name, result in results.items():
        if result["target"] is not None and result["no_flip"] < result["target"]:
            faults.append(f"{name}: {result['no_flip']} < {result['target']}")
        if result["target"] is not None and result["identical"] and not name.startswith(WeightFormat.F32.label):
            faults.append(f"{name}: computes the bits of {result['against']}, so nothing was measured")
    return faults


# ---- running
def chosen(variants: list[Variant], words: list[str]) -> list[Variant]:
    """Variants whose name holds one of the words, and the baselines they need; all of them without words."""
    by_name = {v.name: v for v in variants}
    wanted = [v.name for v in variants if not words or any(word in v.name for word in words)]
    for name in wanted:  # grows while it is read: a baseline has a baseline of its own
        if (baseline := by_name[name].baseline) and baseline not in wanted:
            wanted.append(baseline)
    return [v for v in variants if v.name in wanted]


def cases_of(variant: Variant, count: int) -> list[Case]:
    """The cases of a variant when there are `count` in all."""
    return make_cases(count, SEED)[: max(1, count // variant.share)]


def make_and_keep(variant: Variant, count: int, mark: str) -> float:
    """Seconds it took; runs in a process of its own."""
    started = time.monotonic()
    keep(KEPT, variant, mark, make_variant(variant, cases_of(variant, count)))
    return time.monotonic() - started


def make_missing(variants: list[Variant], count: int, *, fresh: bool, processes: int) -> dict[str, str]:
    """Marks of the variants, all of which are kept afterwards. Each process computes with one thread."""
    marks = {v.name: fingerprint(v, count) for v in variants}
    missing = [v for v in variants if fresh or kept(KEPT, v, marks[v.name]) is None]
    missing.sort(key=lambda v: v.size != LONG)
    os.environ["VIGNETTE_THREADS"] = os.environ["OMP_NUM_THREADS"] = "1"
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        running = {pool.submit(make_and_keep, v, count, marks[v.name]): v for v in missing}
        for done, future in enumerate(as_completed(running), 1):
            name = running[future].name
            print(f"{done}/{len(missing)} {name}: {future.result():.0f} s", file=sys.stderr, flush=True)
    return marks


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("--clips", type=int, default=64)
    parser.add_argument("--only", nargs="*", default=[], help="words that a variant's name must hold")
    parser.add_argument("--fresh", action="store_true", help="make everything again")
    parser.add_argument("--processes", type=int, default=available_processors())
    arguments = parser.parse_args()
    started = time.monotonic()
    variants = chosen(all_variants(), arguments.only)
    marks = make_missing(variants, arguments.clips, fresh=arguments.fresh, processes=arguments.processes)
    made = {v.name: kept(KEPT, v, marks[v.name]) for v in variants}
    results = {}
    for variant in variants:
        if variant.baseline:
            results[variant.name] = judge(variant, made)
    print(table(results))
    short = shortfalls(results)
    print(json.dumps({"seconds": round(time.monotonic() - started), "variants": results, "short": short}))
    return 1 if short else 0


if __name__ == "__main__":
    sys.exit(main())
