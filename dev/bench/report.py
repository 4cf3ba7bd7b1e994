"""make bench: measure, print tables, and judge every ratio against its target.

    python -m dev.bench.report [--size quick|full] [--only linear|attention|rows|block ...] [--no-fail]

The last line is one JSON object; the exit code is 1 when a target is missed (0 with --no-fail).

A part is a function of (meter, quick) that returns sections.
"""

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable

import torch

from dev.bench import accuracy, attention, block, judge, linear, peers, rows
from dev.bench.machine import LIMITS_PROGRAM, LimitMeter, describe, peak_memory_bytes
from dev.bench.result import Row, Section

LIMIT_ROUNDS = {"quick": 3, "full": 5}


def limit_rows(rounds: int) -> list[Row]:
    """All limits of this machine, on one thread and on all."""
    output = subprocess.run(
        [LIMITS_PROGRAM, "--rounds", str(rounds), "--json"], check=True, capture_output=True, text=True
    ).stdout
    found = json.loads(output)
    listed = []
    for name, row in found["rows"].items():
        common = {"name": f"{name}: {row['name'].strip()}", "unit": row["unit"]}
        listed.append(Row(case="1 thread", best=row["best"], median=row["median"], **common))
        listed.append(Row(case=f"{found['threads']} threads", best=row["all_best"], median=row["all_median"], **common))
    return listed


def measure_linear(meter: LimitMeter, quick: bool) -> list[Section]:
    section, errors = linear.run(meter, quick), accuracy.run()
    section.targets = judge.judge_linear(section, errors)
    return [section, errors]


def measure_block(meter: LimitMeter, quick: bool) -> list[Section]:
    return [block.run(meter, quick)]


def measure_attention(meter: LimitMeter, quick: bool) -> list[Section]:
    return [attention.run()]


def measure_rows(meter: LimitMeter, quick: bool) -> list[Section]:
    return [rows.run(rounds=rows.QUICK_ROUNDS if quick else rows.ROUNDS)]


PARTS: dict[str, Callable[[LimitMeter, bool], list[Section]]] = {
    "linear": measure_linear,
    "attention": measure_attention,
    "rows": measure_rows,
    "block": measure_block,
}


# ---- printing
def table(rows: list[Row]) -> list[str]:
    """Names down, cases across; each cell best (median)."""
    cases, names = list(dict.fromkeys(row.case for row in rows)), list(dict.fromkeys(row.name for row in rows))
    cells = {(row.name, row.case): _cell(row) for row in rows}
    width = max(map(len, names)) + 2
    columns = [max(len(case), *(len(cells.get((name, case), "")) for name in names)) + 2 for case in cases]
    lines = ["".ljust(width) + "".join(case.rjust(size) for case, size in zip(cases, columns, strict=True))]
    for name in names:
        row = (cells.get((name, case), "").rjust(size) for case, size in zip(cases, columns, strict=True))
        lines.append(name.ljust(width) + "".join(row))
    return lines


def _cell(row: Row) -> str:
    if row.note == "not quiet":
        return row.note
    if row.unit == "error":
        return f"{row.best:.2e}"
    return f"{row.best:.1f} ({row.median:.1f})"


def print_section(section: Section, most_columns: int = 4) -> None:
    print(f"\n== {section.title}")
    cases = list(dict.fromkeys(row.case for row in section.rows))
    for start in range(0, len(cases), most_columns):
        chosen = cases[start : start + most_columns]
        print("\n".join(table([row for row in section.rows if row.case in chosen])) + "\n")
    for remark in section.remarks:
        print(f"   {remark}")
    for target in section.targets:
        sign = "<=" if target.at_most else ">="
        verdict = "ok  " if target.ok else "MISS"
        print(f"{verdict} {target.name:38s} {target.value:10.4g} {sign} {target.target:<8.4g} {target.note}")


def summary(facts: dict[str, str], sections: list[Section], seconds: float) -> dict:
    """The object of the last line."""
    targets = [target for section in sections for target in section.targets]
    return {
        "machine": facts,
        "seconds": round(seconds, 1),
        "rows": [
            [section.title, row.case, row.name, round(row.best, 7), round(row.median, 7), row.unit, row.note]
            for section in sections for row in section.rows
        ],
        "targets": [target.as_json() for target in targets],
        "ok": all(target.ok for target in targets),
    }  # fmt: skip


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m dev.bench.report", description=__doc__.split("\n", 1)[0])
    parser.add_argument("--size", choices=LIMIT_ROUNDS, default="full")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--no-fail", action="store_true", help="exit 0 whatever is missed")
    options = parser.parse_args(arguments)
    start, quick = time.perf_counter(), options.size == "quick"
    peers.one_thread()
    facts = describe() | {"torch": torch.__version__, "onnxruntime": peers.onnxruntime.__version__}
    for key, value in facts.items():
        print(f"{key:14s} {value}")
    sections = [Section("Limits of this machine, best (median)", rows=limit_rows(LIMIT_ROUNDS[options.size]))]
    print_section(sections[0])
    meter = LimitMeter()
    for part in options.only:
        began = time.perf_counter()
        found = PARTS[part](meter, quick)
        found[0].remarks.append(f"This part took {time.perf_counter() - began:.0f} s.")
        for section in found:
            print_section(section)
        sections += found
    meter.close()
    facts["load_at_end"] = describe()["load"]
    print(f"\n{time.perf_counter() - start:.0f} s, at most {peak_memory_bytes() / 2**30:.1f} GiB of memory")
    result = summary(facts, sections, time.perf_counter() - start)
    print(json.dumps(result))
    return 0 if result["ok"] or options.no_fail else 1


if __name__ == "__main__":
    sys.exit(main())
