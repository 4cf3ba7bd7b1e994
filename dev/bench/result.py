"""What a part of the benchmark hands to the report."""

import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One measured case. `case` says the sizes, `unit` what best and median count (1e9 operations a second)."""

    case: str
    name: str
    best: float
    median: float
    unit: str = "G/s"
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A ratio and what it must reach; `at_most` turns the comparison round (errors)."""

    name: str
    value: float
    target: float
    at_most: bool = False
    note: str = ""

    @property
    def ok(self) -> bool:
        reached = self.value <= self.target if self.at_most else self.value >= self.target
        return math.isfinite(self.value) and reached

    def as_json(self) -> dict:
        return asdict(self) | {"ok": self.ok}


@dataclass(slots=True)
class Section:
    """One part of the benchmark."""

    title: str
    rows: list[Row] = field(default_factory=list)
    targets: list[Target] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)


def geometric_mean(values: Iterable[float]) -> float:
    logs = [math.log(value) for value in values]
    return math.exp(sum(logs) / len(logs))


def worst_of(name: str, ratios: dict[str, float], target: float) -> Target:
    """The smallest of the ratios of several cases is what counts; the note names its case and the geometric mean."""
    case = min(ratios, key=ratios.__getitem__)
    note = f"smallest of {len(ratios)} at {case}; geometric mean {geometric_mean(ratios.values()):.3f}"
    return Target(name=name, value=ratios[case], target=target, note=note)
