"""The row kernels at the released model's width against eager torch in float32: the same maths in the same process.

    python -m dev.bench.rows [--rows 1024] [--rounds 9]

One thread, processor time, the two sides taking turns; a ratio is eager torch's best time over ours. Prints a table
and, as the last line, one JSON object; exits with 1 when a ratio falls short of its target.

The trap: torch allocates the result of every step, ours writes into arrays it is given and fuses the steps. That is
how a forward pass uses either, so it belongs to the comparison. Torch's results below 32 MiB come from memory kept by
malloc, larger ones are mapped anew at every call; the report says how many pages that touches.
Proof: tests/dev/bench/test_rows.py compares both forms of every step; run() does so again before it measures.
"""

import argparse
import json
import resource
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F

from core.kernels.backend import HeadLayout, Modulation, NextNorm
from core.kernels.native import NativeBackend
from core.kernels.native_scratch import aligned_empty
from dev.bench.result import Row, Section, Target

HIDDEN, FFN = 5376, 14336  # the released denoiser
LAYOUT = HeadLayout(heads=56, kv_heads=56, head_dim=128)
ROTATED = 96  # of the channels of a head
ENTRIES = 3  # modulations that occur among the rows of a step
EPS = 1e-5
MAX_ERROR = 2e-6  # largest difference from torch, as a share of the largest value: both round some ten times
ROWS, ROUNDS, QUICK_ROUNDS = 1024, 9, 5
TARGETS = {"norm + modulate": 4.0, "gate + residual": 1.4, "SwiGLU": 4.0, "norm + RoPE": 4.0}


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One step of a block in both forms; each call gives its results. traffic_bytes: least a fused kernel must move.

    Steps that work in place start over with `reset`, which is not timed.
    """

    name: str
    traffic_bytes: int
    ours: Callable[[], Sequence[np.ndarray]]
    eager: Callable[[], Sequence[torch.Tensor]]
    reset: Callable[[], None] = lambda: None


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """Seconds of each round, and pages that one call of torch mapped."""

    step: Step
    ours: list[float]
    eager: list[float]
    eager_pages: int

    @property
    def ratio(self) -> float:
        return min(self.eager) / min(self.ours)


def _normal(*shape: int, seed: int = 0) -> np.ndarray:
    array = aligned_empty(shape)
    np.random.default_rng([seed, *shape]).standard_normal(dtype=np.float32, out=array)
    return array


# ---- the steps
class ModulatedRows:
    """Inputs of the steps around the residual stream, in both forms."""

    def __init__(self, backend: NativeBackend, rows: int):
        self.backend, self.bytes = backend, 4 * rows * HIDDEN
        self.x, self.y, self.weight = _normal(rows, HIDDEN), _normal(rows, HIDDEN, seed=1), _normal(HIDDEN)
        self.h, self.out = self.x.copy(), aligned_empty((rows, HIDDEN))
        table, index = _normal(ENTRIES, 6, HIDDEN), np.random.default_rng(0).integers(0, ENTRIES, rows)
        self.modulation = Modulation(table, index.astype(np.int32))
        self.torch_x, self.torch_y, self.torch_weight = map(torch.from_numpy, (self.x, self.y, self.weight))
        self.torch_slots, self.torch_index = torch.from_numpy(table.swapaxes(0, 1).copy()), torch.from_numpy(index)

    def torch_slot(self, slot: int) -> torch.Tensor:
        return self.torch_slots[slot].index_select(0, self.torch_index)

    def torch_norm(self, x: torch.Tensor, shift_slot: int) -> torch.Tensor:
        normed = F.rms_norm(x, (HIDDEN,), self.torch_weight, EPS)
        return normed * (1 + self.torch_slot(shift_slot + 1)) + self.torch_slot(shift_slot)

    def torch_first_norm(self) -> tuple[torch.Tensor]:
        return (self.torch_norm(self.torch_x, 0),)

    def torch_residual(self) -> tuple[torch.Tensor]:
        return (self.torch_x + self.torch_slot(2) * self.torch_y,)

    def torch_both(self) -> tuple[torch.Tensor, torch.Tensor]:
        (h,) = self.torch_residual()
        return h, self.torch_norm(h, 3)

    def norm(self) -> tuple[np.ndarray]:
        slots = {"shift_slot": 0, "scale_slot": 1}
        return (self.backend.norm_modulate(self.x, self.weight, EPS, self.modulation, **slots, out=self.out),)

    def residual(self) -> tuple[np.ndarray]:
        return (self.backend.gated_residual(self.h, self.y, self.modulation, gate_slot=2),)

    def both(self) -> tuple[np.ndarray, np.ndarray]:
        norm = NextNorm(weight=self.weight, eps=EPS, table=self.modulation.table, shift_slot=3, scale_slot=4)
        modulation = self.modulation
        self.backend.gated_residual_norm(self.h, self.y, modulation, gate_slot=2, norm=norm, out=self.out)
        return self.h, self.out

    def reset(self) -> None:
        self.h[:] = self.x


def modulation_steps(backend: NativeBackend, rows: int) -> list[Step]:
    """Norm and modulation, gate and residual, and the two in one."""
    r = ModulatedRows(backend, rows)
    return [
        Step(name="norm + modulate", traffic_bytes=2 * r.bytes, ours=r.norm, eager=r.torch_first_norm),
        Step(name="gate + residual", traffic_bytes=3 * r.bytes, ours=r.residual, eager=r.torch_residual, reset=r.reset),
        Step(name="gate + residual + norm", traffic_bytes=4 * r.bytes, ours=r.both, eager=r.torch_both, reset=r.reset),
    ]


def swiglu_steps(backend: NativeBackend, rows: int) -> list[Step]:
    """silu(gate) * value; torch cuts the two from the result of one product."""
    both = _normal(rows, 2 * FFN)
    gate, value, out = (aligned_empty((rows, FFN)) for _ in range(3))
    gate[:], value[:] = both[:, :FFN], both[:, FFN:]
    uv = torch.from_numpy(both)

    def ours() -> tuple[np.ndarray]:
        backend.run("h3k_swiglu", {"gate": gate.reshape(-1), "value": value.reshape(-1), "y": out.reshape(-1)})
        return (out,)

    def eager() -> tuple[torch.Tensor]:
        return (F.silu(uv[:, :FFN]) * uv[:, FFN:],)

    return [Step(name="SwiGLU", traffic_bytes=3 * 4 * rows * FFN, ours=ours, eager=eager)]


def norm_rope_steps(backend: NativeBackend, rows: int) -> list[Step]:
    """Norm and rotation of q and k: in place on packed rows here, of q and k apart in torch."""
    heads, d, inner = LAYOUT.heads, LAYOUT.head_dim, LAYOUT.heads * LAYOUT.head_dim
    start, weights, angle = _normal(rows, LAYOUT.width), (_normal(d), _normal(d, seed=1)), _normal(rows, ROTATED // 2)
    qkv, cos, sin = start.copy(), np.cos(angle), np.sin(angle)
    parts = [torch.from_numpy(start[:, at : at + inner].copy()).view(rows, heads, d) for at in (0, inner)]
    wide_cos, wide_sin = (torch.from_numpy(np.concatenate([table, table], axis=1))[:, None] for table in (cos, sin))

    def rotated(x: torch.Tensor, weight: np.ndarray) -> torch.Tensor:
        x = F.rms_norm(x, (d,), torch.from_numpy(weight), EPS)
        rotary, rest = x[..., :ROTATED], x[..., ROTATED:]
        first, second = rotary.chunk(2, -1)
        turned = rotary * wide_cos + torch.cat((-second, first), -1) * wide_sin
        return torch.cat((turned, rest), -1)

    def ours() -> tuple[np.ndarray, np.ndarray]:
        backend.qk_norm_rope(qkv, LAYOUT, q_weight=weights[0], k_weight=weights[1], eps=EPS, cos=cos, sin=sin)
        return tuple(qkv[:, at : at + inner].reshape(rows, heads, d) for at in (0, inner))

    def eager() -> tuple[torch.Tensor, ...]:
        return tuple(rotated(part, weight) for part, weight in zip(parts, weights, strict=True))

    def reset() -> None:
        qkv[:] = start

    return [Step(name="norm + RoPE", traffic_bytes=2 * 4 * rows * 2 * inner, ours=ours, eager=eager, reset=reset)]


MAKERS = (modulation_steps, swiglu_steps, norm_rope_steps)  # one after the other: each frees its inputs


# ---- measuring
def error(step: Step) -> float:
    """Largest difference between the two forms, as a share of the largest value."""
    step.reset()
    pairs = zip(step.ours(), (part.numpy() for part in step.eager()), strict=True)
    return max(float(np.abs(ours - eager).max() / np.abs(eager).max()) for ours, eager in pairs)


def _seconds(call: Callable[[], object]) -> float:
    start = time.process_time()
    call()
    return time.process_time() - start


def _pages() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt


def measure(step: Step, rounds: int) -> Measured:
    """Both forms in turn; a first round of each is not counted. `reset` comes first, not between the two."""
    ours, eager, pages = [], [], 0
    for _ in range(rounds + 1):
        step.reset()
        before = _pages()
        eager.append(_seconds(step.eager))
        pages = _pages() - before
        ours.append(_seconds(step.ours))
    return Measured(step=step, ours=ours[1:], eager=eager[1:], eager_pages=pages)


def run(rows: int = ROWS, rounds: int = ROUNDS) -> Section:
    """Rates in GB/s of the least traffic, and the ratios with their targets.

    raises: ArithmeticError when a step's two forms differ by more than MAX_ERROR
    """
    threads, backend = torch.get_num_threads(), NativeBackend(threads=1)
    title = f"row kernels against eager torch fp32, {rows} rows, {backend.library.isa_name()}, one thread"
    section = Section(title=title)
    torch.set_num_threads(1)
    try:
        with torch.inference_mode():
            for make in MAKERS:
                for step in make(backend, rows):
                    if (wrong := error(step)) > MAX_ERROR:
                        raise ArithmeticError(f"{step.name} differs from torch by {wrong:.2g} of the largest value.")
                    torch.empty(31 * 2**18)  # freed at once: from now on glibc keeps freed blocks below 31 MiB
                    _add(section, measure(step, rounds))
    finally:
        torch.set_num_threads(threads)
    section.remarks.append("torch allocates its results, ours are written into arrays that exist: part of the design")
    return section


def _add(section: Section, found: Measured) -> None:
    step, name = found.step, found.step.name
    for who, seconds in (("ours", found.ours), ("eager torch", found.eager)):
        best, median = (step.traffic_bytes / t / 1e9 for t in (min(seconds), statistics.median(seconds)))
        section.rows.append(Row(case=name, name=who, best=best, median=median, unit="GB/s"))
    section.remarks.append(
        f"{name}: {1e3 * min(found.ours):.2f} ms, eager torch {1e3 * min(found.eager):.2f} ms "
        f"({found.eager_pages} pages mapped), {found.ratio:.2f} times"
    )
    if name in TARGETS:
        section.targets.append(Target(name=f"{name} / eager torch fp32", value=found.ratio, target=TARGETS[name]))


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="The row kernels against eager torch.")
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    options = parser.parse_args(arguments)
    section = run(options.rows, options.rounds)
    print(section.title)
    for row in section.rows:
        print(f"  {row.case:24s} {row.name:12s} best {row.best:6.1f}  median {row.median:6.1f} {row.unit}")
    print("\n".join(f"  {remark}" for remark in section.remarks))
    for target in section.targets:
        print(f"  {target.name:40s} {target.value:6.2f}, target {target.target:.1f} {'' if target.ok else 'MISSED'}")
    fine = all(target.ok for target in section.targets)
    result = {"rows": options.rows, "targets": [target.as_json() for target in section.targets], "ok": fine}
    print(json.dumps(result))
    return 0 if fine else 1


if __name__ == "__main__":
    sys.exit(main())
