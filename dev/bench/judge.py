"""Ratios of measured rows, and what each must reach.

The best peer counts where there are several. A share of a limit or of a peer is the smallest over all measured shapes
unless a geometric mean is asked for.
"""

from core.kernels.matrix import WeightFormat
from dev.bench import peers
from dev.bench.linear import MANY_ROWS
from dev.bench.result import Row, Section, Target, geometric_mean, worst_of

LIMIT_SHARE = {
    WeightFormat.Q4_0: 0.60, WeightFormat.Q4_K: 0.60, WeightFormat.Q8_0: 0.60, WeightFormat.Q5_K: 0.55,
    WeightFormat.Q6_K: 0.55,
}  # fmt: skip
FEW_ROWS_SHARE = 0.38  # of the int8 limit, with 64 rows
OVER_ORT, OVER_FP32, OVER_INT8 = 3.0, 1.5, 0.95
NEAR_ERROR = 1e-4

Best = dict[str, dict[str, float]]  # case -> name -> best rate


def best_rates(rows: list[Row]) -> Best:
    """Best rate by case and name; of peers measured twice in a case, the better counts."""
    found: Best = {}
    for row in rows:
        names = found.setdefault(row.case, {})
        names[row.name] = max(row.best, names.get(row.name, 0.0))
    return found


def ratios(best: Best, ours: str, theirs: list[str], row_counts: tuple[int, ...]) -> dict[str, float]:
    """ours / the best of theirs, by case of two words (shape and rows) that has both."""
    result = {}
    for case, names in best.items():
        words = case.split()
        present = [names[name] for name in theirs if name in names]
        if len(words) == 2 and int(words[1]) in row_counts and ours in names and present:
            result[case] = names[ours] / max(present)
    return result


def judge_linear(section: Section, errors: Section) -> list[Target]:
    """Targets of the linears; formats that were not measured are left out."""
    best, targets = best_rates(section.rows), []
    measured = [f for f in LIMIT_SHARE if ratios(best, f"{f.label} exact", ["limit int8"], MANY_ROWS)]

    def judge(name: str, ours: str, theirs: list[str], target: float, rows: tuple[int, ...] = MANY_ROWS) -> None:
        found = ratios(best, ours, theirs, rows)
        if found:
            targets.append(worst_of(name, found, target))

    for weight_format in measured:
        label = weight_format.label
        if weight_format in (WeightFormat.Q4_0, WeightFormat.Q4_K):
            judge(f"{label} exact / onnxruntime 4-bit", f"{label} exact", peers.ort_names(), OVER_ORT)
        judge(f"{label} exact / int8 limit", f"{label} exact", ["limit int8"], LIMIT_SHARE[weight_format])
        judge(f"{label} exact / int8 limit, 64 rows", f"{label} exact", ["limit int8"], FEW_ROWS_SHARE, (64,))
        judge(f"{label} near / torch fp32", f"{label} near", [peers.TORCH_FP32], OVER_FP32)
    targets += _fast(best, [f.label for f in measured]) + _errors(errors, [f.label for f in measured])
    return targets


def _fast(best: Best, labels: list[str]) -> list[Target]:
    found = {}
    for label in labels:
        shares = ratios(best, f"{label} fast", peers.int8_names(), MANY_ROWS)
        found |= {f"{label} {case}": share for case, share in shares.items()}
    if not found:
        return []
    case = min(found, key=found.__getitem__)
    note = f"geometric mean of {len(found)}; smallest {found[case]:.3f} at {case}"
    return [Target(name="fast / torch int8", value=geometric_mean(found.values()), target=OVER_INT8, note=note)]


def _errors(errors: Section, labels: list[str]) -> list[Target]:
    """near within its bound; fast below the most exact of torch's ways."""
    by_case: Best = {}
    for row in errors.rows:
        by_case.setdefault(row.case, {})[row.name] = row.best
    targets = []
    for label in labels:
        error = by_case[label]
        targets.append(Target(name=f"{label} near error", value=error["near"], target=NEAR_ERROR, at_most=True))
        theirs = min(value for name, value in error.items() if name.startswith("torch int8"))
        targets.append(Target(name=f"{label} fast error", value=error["fast"], target=theirs, at_most=True,
                              note="target is torch int8's error on the same weights"))  # fmt: skip
    return targets
