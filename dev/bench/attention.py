"""Attention at the denoiser's head size against torch in float32, in turns, on one thread by processor time.

    python -m dev.bench.report --only attention

Sizes are 56 heads of 128 channels in groups of HEADS: heads are independent, so fewer give the same rate. Queries,
keys and values are Gaussian, scores have standard deviation 1. The limit of the instruction set is the rate of its
int8 products without any other work; on AVX2 ours sums in int16 first where that is safe, which the limit does not,
so a share above 1 is possible.

The trap: whoever measures torch and ours one after the other measures the clock; they take turns. Errors are taken on
ERROR_ROWS rows. Proof: tests/dev/bench/test_attention.py.
"""

import numpy as np

from core.kernels.backend import Accuracy, AttentionMode, HeadLayout, KvFormat
from core.kernels.native import NativeBackend
from dev.bench import peers
from dev.bench.machine import LimitMeter, Rates, Sampler, interleave, timed
from dev.bench.result import Row, Section, Target
from dev.bench.synthetic import normal

HEAD_DIM = 128
HEADS = {512: 14, 2048: 4}  # rows -> heads of one call; of 56
ROUNDS = 7
ERROR_ROWS, ERROR_HEADS = 1024, 2
TORCH = "torch fp32"
MODES = {
    "float": AttentionMode(),
    "near": AttentionMode(accuracy=Accuracy.NEAR),
    "exact int8": AttentionMode(accuracy=Accuracy.EXACT, kv=KvFormat.INT8),
    "fast int8": AttentionMode(accuracy=Accuracy.FAST, kv=KvFormat.INT8),
}
OVER_TORCH = {"near": 1.5, "exact int8": 2.5}
MOST_ERROR = {"float": 2e-6, "near": 1e-3, "exact int8": 2e-2, "fast int8": 2e-2}


def operations(rows: int, heads: int) -> float:
    """Multiply-adds of the two products, counted as two."""
    return 4.0 * heads * rows * rows * HEAD_DIM


def samplers(backend: NativeBackend, rows: int, heads: int) -> dict[str, Sampler]:
    """torch and each of our modes at one size, everything called once."""
    layout = HeadLayout(heads=heads, kv_heads=heads, head_dim=HEAD_DIM)
    qkv, y = normal(rows, layout.width), backend.empty((rows, heads * HEAD_DIM))
    calls = {TORCH: peers.sdpa(heads, HEAD_DIM, rows)}
    for name, mode in MODES.items():
        calls[name] = lambda mode=mode: backend.attention(qkv, layout, mode=mode, out=y)
    for call in calls.values():
        call()
    return {name: timed(call, operations(rows, heads)) for name, call in calls.items()}


def exact_attention(qkv: np.ndarray, layout: HeadLayout) -> np.ndarray:
    """float64, without grouped heads."""
    q, k, v = qkv.astype(np.float64).reshape(len(qkv), 3, layout.heads, layout.head_dim).transpose(1, 2, 0, 3)
    scores = q @ k.transpose(0, 2, 1) / np.sqrt(layout.head_dim)
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return ((weights / weights.sum(axis=-1, keepdims=True)) @ v).transpose(1, 0, 2).reshape(len(qkv), -1)


def errors(backend: NativeBackend) -> dict[str, float]:
    """Relative L2 error of each mode against float64."""
    layout = HeadLayout(heads=ERROR_HEADS, kv_heads=ERROR_HEADS, head_dim=HEAD_DIM)
    qkv = normal(ERROR_ROWS, layout.width)
    expected = exact_attention(qkv, layout)
    return {
        name: float(np.linalg.norm(backend.attention(qkv, layout, mode=mode) - expected) / np.linalg.norm(expected))
        for name, mode in MODES.items()
    }


def judge(rates: dict[int, dict[str, Rates]], found_errors: dict[str, float]) -> list[Target]:
    """Ratios of medians at every size, and the errors."""
    targets = [
        Target(name=f"{name} / {TORCH}, {rows} rows", value=by_name[name].median / by_name[TORCH].median, target=least)
        for name, least in OVER_TORCH.items() for rows, by_name in rates.items()
    ]  # fmt: skip
    return targets + [
        Target(name=f"error of {name}", value=error, target=MOST_ERROR[name], at_most=True)
        for name, error in found_errors.items()
    ]


def run() -> Section:
    """Rates, shares of the int8 limit, and targets."""
    peers.one_thread()
    backend, meter = NativeBackend(threads=1), LimitMeter()
    section, rates = Section("Attention over heads of 128 channels, one thread by processor time"), {}
    for rows, heads in HEADS.items():
        rates[rows] = interleave(meter.samplers() | samplers(backend, rows, heads), ROUNDS)
        for name, rate in rates[rows].items():
            section.rows.append(Row(case=f"{rows} rows", name=name, best=rate.best, median=rate.median))
        share = rates[rows]["exact int8"].median / rates[rows]["limit int8"].median
        section.remarks.append(f"{rows} rows: {heads} of 56 heads; exact int8 / int8 limit {share:.2f}")
    meter.close()
    section.targets = judge(rates, errors(backend))
    return section
