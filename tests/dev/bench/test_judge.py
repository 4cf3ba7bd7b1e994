"""Ratios, targets and the report's last line.

Tier: closed form over made-up rows.
"""

import json

import pytest

from dev.bench import judge, report
from dev.bench.result import Row, Section, Target, worst_of


def row(case: str, name: str, best: float) -> Row:
    return Row(case=case, name=name, best=best, median=best * 0.9)


def sections() -> tuple[Section, Section]:
    """Q4_K at two shapes and 64 rows; the second shape is the worse one."""
    speeds, errors = Section("speeds"), Section("errors")
    for case, ours in (("out 256", 120.0), ("fc2 256", 110.0), ("fc2 64", 90.0), ("out 256 2 threads", 1.0)):
        speeds.rows += [
            row(case, "limit int8", 200.0), row(case, "torch fp32", 80.0), row(case, "torch int8 onednn", 160.0),
            row(case, "torch int8 fbgemm", 100.0), row(case, "onnxruntime 4-bit fp32", 30.0),
            row(case, "onnxruntime 4-bit int8", 40.0), row(case, "q4_k exact", ours), row(case, "q4_k near", ours),
            row(case, "q4_k fast", 152.0 if ours == 120 else 168.0),
        ]  # fmt: skip
    errors.rows = [row("q4_k", n, e) for n, e in (("near", 9e-5), ("fast", 0.01), ("torch int8 onednn, 8", 0.02))]
    return speeds, errors


def test_the_best_peer_and_the_worst_shape_count():
    targets = {target.name: target for target in judge.judge_linear(*sections())}
    assert targets["q4_k exact / onnxruntime 4-bit"].value == pytest.approx(110 / 40)
    assert not targets["q4_k exact / onnxruntime 4-bit"].ok
    assert targets["q4_k exact / int8 limit"].value == pytest.approx(0.55)
    assert targets["q4_k exact / int8 limit, 64 rows"].value == pytest.approx(0.45)
    assert targets["q4_k near / torch fp32"].value == pytest.approx(110 / 80)
    assert "fc2 256" in targets["q4_k exact / int8 limit"].note


def test_fast_is_judged_by_the_geometric_mean_and_its_error():
    targets = {target.name: target for target in judge.judge_linear(*sections())}
    assert targets["fast / torch int8"].value == pytest.approx((0.95 * 1.05) ** 0.5)
    assert targets["q4_k fast error"].ok and targets["q4_k near error"].ok


def test_formats_that_were_not_measured_are_left_out():
    assert not any("q8_0" in target.name for target in judge.judge_linear(*sections()))


def test_a_target_that_is_not_a_number_is_missed():
    assert not Target(name="t", value=float("nan"), target=1.0).ok
    assert not Target(name="t", value=float("inf"), target=1.0).ok
    assert worst_of("t", {"a": 2.0, "b": 3.0}, 2.0).ok


@pytest.mark.parametrize(("value", "flags", "status"), [(0.9, [], 1), (0.9, ["--no-fail"], 0), (1.1, [], 0)])
def test_the_exit_code_and_the_last_line_tell_a_missed_target(monkeypatch, capsys, value, flags, status):
    section = Section("part", targets=[Target(name="t", value=value, target=1.0)])
    monkeypatch.setattr(report, "PARTS", {"linear": lambda meter, quick: [section]})
    monkeypatch.setattr(report, "limit_rows", lambda rounds: [row("1 thread", "limit", 1.0)])
    monkeypatch.setattr(report, "describe", lambda: {"load": "0"})
    monkeypatch.setattr(report, "LimitMeter", lambda: type("Meter", (), {"close": lambda self: None})())
    assert report.main(["--size", "quick", *flags]) == status
    last = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert last["ok"] is (value >= 1.0)
    (target,) = last["targets"]
    assert (target["name"], target["value"], target["ok"]) == ("t", value, value >= 1.0)
