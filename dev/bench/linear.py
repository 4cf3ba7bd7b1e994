"""The linears of one denoiser block at the real widths: our formats and accuracies, peers and limits in turns.

One thread, processor time; each call of each case has another copy of its weight. A few cases again on all threads by
wall time, if the machine is quiet.

The trap: random weights of a format's full range are not centred, which flatters or hurts integer products; see
synthetic.py. Proof: tests/dev/bench/test_linear.py.
"""

import gc
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import numpy as np
import torch

from core.kernels.backend import Accuracy, Activation
from core.kernels.matrix import WeightFormat
from core.kernels.native import NativeBackend
from dev.bench import peers
from dev.bench.machine import CORES, LimitMeter, Rates, Sampler, becomes_quiet, interleave, quiet_wall, timed
from dev.bench.result import Row, Section
from dev.bench.synthetic import Rotated, copy_count, matrix, normal

SHAPES = {"out": (5376, 7168), "fc2": (5376, 14336), "qkv": (21504, 5376), "fc1": (28672, 5376)}  # name -> (n, k)
PEERED = (WeightFormat.Q4_0, WeightFormat.Q4_K, WeightFormat.Q8_0)  # timed beside every peer
OTHERS = (WeightFormat.Q5_K, WeightFormat.Q6_K)
FLOATS = (WeightFormat.F32, WeightFormat.F16, WeightFormat.BF16)
MOST_COPIES = 28  # of 4-bit weights of the smallest shape
MANY_ROWS = (256, 1024)  # where all accuracies are judged
INTEGER_MODES = (Accuracy.EXACT, Accuracy.NEAR, Accuracy.FAST)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What is measured. rounds: by number of rows; `large` are the shapes and formats measured with 1024 rows."""

    shapes: tuple[str, ...] = tuple(SHAPES)
    peered: tuple[WeightFormat, ...] = PEERED
    others: tuple[WeightFormat, ...] = OTHERS
    float_shapes: tuple[str, ...] = ("out",)
    rounds: dict[int, int] = field(default_factory=lambda: {64: 4, 256: 3})
    large_shapes: tuple[str, ...] = ("out", "fc2")
    large_formats: tuple[WeightFormat, ...] = (WeightFormat.Q4_K, WeightFormat.Q8_0)
    large_rounds: int = 2
    bf16_rounds: int = 1


FULL = Plan()
QUICK = Plan(
    shapes=("out", "fc2"), peered=(WeightFormat.Q4_K, WeightFormat.Q8_0), others=(WeightFormat.Q6_K,),
    float_shapes=(), rounds={64: 3, 256: 2}, large_shapes=(), bf16_rounds=0,
)  # fmt: skip


def log(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


class Bench:
    """Backend, meter and plan of one run, and the rows it has found."""

    def __init__(self, meter: LimitMeter, plan: Plan):
        self.meter, self.plan = meter, plan
        self.backend = NativeBackend(threads=1)
        self.section = Section("Linears of one block, one thread by processor time")

    def ours(
        self, weights: Rotated, x: np.ndarray, accuracy: Accuracy, activation: Activation = Activation.NONE
    ) -> Callable[[], None]:
        """A call of our linear into an output that is made once, as the model does."""
        rows = weights.matrices[0].rows // (2 if activation is Activation.SWIGLU else 1)
        y = self.backend.empty((len(x), rows))

        def call() -> None:
            self.backend.linear(x, weights.next(), activation=activation, accuracy=accuracy, out=y)

        return call

    def measure(self, case: str, cases: dict[str, Sampler], rounds: int) -> dict[str, Rates]:
        """Time the cases and the limits in turns, and keep the rows."""
        log(f"  {case}: {len(cases)} cases, {rounds} rounds")
        rates = interleave(self.meter.samplers() | cases, rounds)
        self.section.rows += [Row(case=case, name=n, best=r.best, median=r.median) for n, r in rates.items()]
        return rates

    # ---- one shape
    def shape(self, name: str) -> None:
        n, k = SHAPES[name]
        plan = self.plan
        weight = torch.from_numpy(np.resize(normal(256, k) * np.float32(0.02), (n, k)))
        products = {peers.TORCH_FP32: peers.torch_float(_turned(weight))}
        products |= {peer: peers.torch_int8(peer, weight) for peer in peers.int8_names()}
        weights = {f: Rotated(matrix(f, n, k)) for f in plan.peered}
        self.every_count(name, weights, products | {peer: peers.ort_4bit(peer, n, k) for peer in peers.ort_names()})
        self.all_threads(name, weights, products)
        weights.clear()
        self.every_count(name, {f: Rotated(matrix(f, n, k)) for f in plan.others}, products)
        if name in plan.float_shapes:
            self.float_formats(name, weight)

    def every_count(self, shape: str, weights: dict[WeightFormat, Rotated], products: dict[str, peers.Product]) -> None:
        """All numbers of rows that are planned for these formats; with few rows only EXACT, as only it is judged."""
        n, k = SHAPES[shape]
        _warm_up(products.values(), k)
        for m, rounds in self.plan.rounds.items():
            modes = INTEGER_MODES if m in MANY_ROWS else INTEGER_MODES[:1]
            self.rows(f"{shape} {m}", 2.0 * n * k * m, (weights, modes), products, rounds)
        large = {f: w for f, w in weights.items() if f in self.plan.large_formats and shape in self.plan.large_shapes}
        if large:
            self.rows(f"{shape} 1024", 2.0 * n * k * 1024, (large, INTEGER_MODES), products, self.plan.large_rounds)
        gc.collect()

    def rows(
        self, case: str, operations: float, ours: tuple[dict[WeightFormat, Rotated], tuple[Accuracy, ...]],
        products: dict[str, peers.Product], rounds: int,
    ) -> None:  # fmt: skip
        """One number of rows: all peers, and our formats in the accuracies of `ours`."""
        weights, modes = ours
        x = self.backend.empty((int(case.split()[1]), next(iter(weights.values())).matrices[0].columns))
        x[:] = normal(*x.shape)
        shared = torch.from_numpy(x)
        calls = {peer: lambda product=product: product(shared) for peer, product in products.items()}
        for weight_format, copies in weights.items():
            calls |= {f"{weight_format.label} {a.value}": self.ours(copies, x, a) for a in modes}
        self.measure(case, {name: timed(call, operations) for name, call in calls.items()}, rounds)

    def float_formats(self, shape: str, weight: torch.Tensor) -> None:
        """Unquantised weights in float32 products, beside torch in float32 and bfloat16."""
        n, k = SHAPES[shape]
        halves = _turned(weight.bfloat16())
        for m, rounds in self.plan.rounds.items():
            x = normal(m, k)
            wide, narrow = torch.from_numpy(x), torch.from_numpy(x).bfloat16()
            fp32, bf16 = peers.torch_float(_turned(weight)), peers.torch_float(halves)
            calls = {"torch fp32": lambda product=fp32, x=wide: product(x)}
            for weight_format in FLOATS:
                rotated = Rotated(matrix(weight_format, n, k))
                calls[f"{weight_format.label} float"] = self.ours(rotated, x, Accuracy.FLOAT)
            self.measure(f"{shape} {m} float", {c: timed(call, 2.0 * n * k * m) for c, call in calls.items()}, rounds)
            if m <= 64 and self.plan.bf16_rounds:
                call = timed(lambda product=bf16, x=narrow: product(x), 2.0 * n * k * m)
                self.measure(f"{shape} {m} float", {peers.TORCH_BF16: call}, self.plan.bf16_rounds)

    def all_threads(
        self, shape: str, weights: dict[WeightFormat, Rotated], products: dict[str, peers.Product], m: int = 256
    ) -> None:
        """Wall time on every core, in turns; rows say so when the machine was not quiet."""
        n, k = SHAPES[shape]
        x, backend = normal(m, k), NativeBackend(threads=CORES)
        shared, quiet = torch.from_numpy(x), becomes_quiet()
        if quiet:  # three calls each: a few copies are enough, as all the others' weights pass in between
            products = products | {name: peers.ort_4bit(name, n, k, 3, threads=CORES) for name in peers.ort_names()}
        calls = {name: lambda product=product: product(shared) for name, product in products.items()}
        for weight_format, copies in weights.items():
            calls[f"{weight_format.label} exact"] = (
                lambda copies=copies: backend.linear(x, copies.next(), accuracy=Accuracy.EXACT)
            )  # fmt: skip
        seconds: dict[str, list[float]] = {name: [] for name in calls}
        torch.set_num_threads(CORES)
        for _ in range(3 if quiet else 0):
            for name, call in calls.items():
                second = quiet_wall(call)
                seconds[name] += [] if second is None else [second]
        torch.set_num_threads(1)
        rates = {name: [2.0 * n * k * m / second / 1e9 for second in found] for name, found in seconds.items()}
        self.section.rows += [_wall_row(f"{shape} {m}, {CORES} threads", name, found) for name, found in rates.items()]

    # ---- fc1 with its activation
    def swiglu(self, m: int = 256) -> None:
        """fc1 and SwiGLU together; torch does the product, then silu(gate) * value."""
        n, k = SHAPES["fc1"]
        x = normal(m, k)
        shared, weight = torch.from_numpy(x), torch.from_numpy(np.resize(normal(256, k) * np.float32(0.02), (n, k)))
        product = peers.torch_float([weight])

        def eager() -> torch.Tensor:
            gate, value = product(shared).chunk(2, -1)
            return torch.nn.functional.silu(gate) * value

        calls = {"torch fp32": eager}
        for weight_format in (WeightFormat.Q4_K, WeightFormat.Q8_0):
            weights = Rotated(matrix(weight_format, n, k))
            calls[f"{weight_format.label} exact"] = self.ours(weights, x, Accuracy.EXACT, Activation.SWIGLU)
        operations = 2.0 * n * k * m
        self.measure(f"fc1+swiglu {m}", {c: timed(call, operations) for c, call in calls.items()}, 3)


def _wall_row(case: str, name: str, rates: list[float]) -> Row:
    if not rates:
        return Row(case=case, name=name, best=0.0, median=0.0, note="not quiet")
    return Row(case=case, name=name, best=max(rates), median=float(np.median(rates)), note="wall time")


def _warm_up(products: Iterable[peers.Product], columns: int) -> None:
    """Use every copy of the peers once: some lay out their weights at the first call."""
    few = torch.zeros(8, columns)
    for product in products:
        for _ in range(MOST_COPIES):
            product(few)


def _turned(weight: torch.Tensor) -> list[torch.Tensor]:
    """Copies as of `Rotated`, of a float tensor."""
    count = copy_count(weight.numel() * weight.element_size())
    return [weight, *(torch.roll(weight, i, 0) for i in range(1, count))]


def run(meter: LimitMeter, quick: bool) -> Section:
    """All of it."""
    peers.one_thread()
    bench = Bench(meter, QUICK if quick else FULL)
    with torch.inference_mode():
        for name in bench.plan.shapes:
            bench.shape(name)
            gc.collect()
        if not quick:
            bench.swiglu()
    formats = ", ".join(f.label for f in bench.plan.large_formats)
    shapes = ", ".join(bench.plan.large_shapes) or "no shape"
    bench.section.remarks.append(f"With 1024 rows only {shapes} and {formats}; bfloat16 torch only with 64 rows.")
    return bench.section
