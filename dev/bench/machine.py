"""The machine that is measured on, its limits while it is measured, and timing that other load hardly disturbs.

One thread is judged by processor time. Several threads are judged by wall time, and only if everybody else used less
than FOREIGN_SHARE of the machine meanwhile. Everything that is compared takes turns, round by round.

The trap: a limit measured at another moment than the kernel is another clock rate; so a burst of the limit is one of
the things that take turns. Proof: tests/dev/bench/test_machine.py.
"""

import os
import platform
import resource
import statistics
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from core.kernels.bindings import Library

ROOT = Path(__file__).resolve().parents[2]
LIMITS_PROGRAM = ROOT / "build" / "native" / "bench" / "limits"
SAMPLE_SECONDS = 0.1  # a sample repeats short calls for at least so long
FOREIGN_SHARE = 0.04
CORES = os.cpu_count() or 1
LIMIT_OF_ISA = {  # ISA in use -> (row of the limit of int8, of fp32)
    "avx512vnni": ("int8_vnni_512", "fp32_512"),
    "avxvnni": ("int8_vnni_256", "fp32_256"),
    "avx2": ("int8_256", "fp32_256"),
    "i8mm": ("int8_smmla", "fp32_128"),
    "dotprod": ("int8_sdot", "fp32_128"),
}
HOISTED = {
    "int8_256": "int8_madd_only_256"
}  # what the limit would be if the compiler moved the product out of the loop
PLAIN_LIMITS = {"x86_64": ("int8_256", "fp32_256"), "arm64": ("int8_smlal", "fp32_128")}
FLAGS = ("avx2", "fma", "f16c", "avx_vnni", "avx512f", "avx512_vnni", "avx512_bf16", "asimddp", "i8mm")

Sampler = Callable[[], float]  # one sample: 1e9 operations or bytes a second


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """Samples of one case in 1e9 operations or bytes a second."""

    samples: tuple[float, ...]

    @property
    def best(self) -> float:
        return max(self.samples)

    @property
    def median(self) -> float:
        return statistics.median(self.samples)


class LimitMeter:
    """The limit benchmark, kept running and asked for one burst at a time."""

    def __init__(self, program: Path = LIMITS_PROGRAM):
        self._process = subprocess.Popen([program, "--ask"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        isa, machine = Library().isa_name(), platform.machine().replace("aarch64", "arm64")
        self.int8, self.fp32 = LIMIT_OF_ISA.get(isa) or PLAIN_LIMITS[machine]

    def ask(self, row: str) -> float:
        """Rate of one burst of `row` on one thread, by processor time; raises ValueError for a row not offered."""
        self._process.stdin.write(f"{row}\n")
        self._process.stdin.flush()
        return float(self._process.stdout.readline())

    def samplers(self) -> dict[str, Sampler]:
        """The limits as cases that take turns with others."""
        rows = {"limit int8": self.int8, "limit fp32": self.fp32}
        if self.int8 in HOISTED:
            rows["(int8 madd+add only)"] = HOISTED[self.int8]
        return {name: lambda row=row: self.ask(row) for name, row in rows.items()}

    def close(self) -> None:
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait()


def timed(call: Callable[[], object], amount: float) -> Sampler:
    """A sampler over `call`, which does `amount` operations or moves so many bytes, by processor time."""

    def sample() -> float:
        start, calls, spent = time.process_time(), 0, 0.0
        while spent < SAMPLE_SECONDS:
            call()
            calls += 1
            spent = time.process_time() - start
        return amount * calls / spent / 1e9

    return sample


def interleave(cases: dict[str, Sampler], rounds: int) -> dict[str, Rates]:
    """`rounds` samples of each case, in turns. Call each once beforehand when its first call prepares something."""
    samples = {name: [] for name in cases}
    for _ in range(rounds):
        for name, sample in cases.items():
            samples[name].append(sample())
    return {name: Rates(samples=tuple(values)) for name, values in samples.items()}


# ---- several threads: wall time, on a quiet machine only
def _busy_seconds() -> tuple[float, float]:
    """Processor seconds since boot of everybody, and of this process."""
    ticks = [int(word) for word in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    everybody = (sum(ticks) - ticks[3] - ticks[4]) / os.sysconf("SC_CLK_TCK")
    return everybody, time.process_time()


def quiet_wall(call: Callable[[], object]) -> float | None:
    """Wall seconds of one call; None when others used the machine meanwhile, or nobody can tell."""
    if not Path("/proc/stat").exists():
        return None
    everybody, mine = _busy_seconds()
    start = time.perf_counter()
    call()
    seconds = time.perf_counter() - start
    everybody_after, mine_after = _busy_seconds()
    tick = 2 / os.sysconf("SC_CLK_TCK")  # counters move in ticks
    foreign = (everybody_after - everybody) - (mine_after - mine) - tick
    return seconds if foreign < FOREIGN_SHARE * CORES * seconds else None


def becomes_quiet(patience_s: float = 3.0) -> bool:
    """Whether others leave the machine alone for half a second within `patience_s`."""
    end = time.perf_counter() + patience_s
    while quiet_wall(lambda: time.sleep(0.5)) is None:
        if time.perf_counter() > end:
            return False
    return True


# ---- what is printed above the figures
def describe() -> dict[str, str]:
    """Machine, processor and its relevant features, variant of the kernels in use, load."""
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    fields = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in lines)}
    features = fields.get("flags", fields.get("Features", "")).split()
    library = Library()
    return {
        "machine": f"{platform.system()} {platform.machine()}, {CORES} cores",
        "processor": fields.get("model name", platform.processor() or "unknown"),
        "flags": " ".join(flag for flag in FLAGS if flag in features),
        "isa": library.isa_name(),
        "isas_offered": " ".join(library.isas_offered()),
        "load": " ".join(f"{value:.2f}" for value in os.getloadavg()),
    }


def peak_memory_bytes() -> int:
    """Most memory this process ever held."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if platform.system() == "Darwin" else peak * 1024
