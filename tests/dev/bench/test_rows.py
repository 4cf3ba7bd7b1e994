"""The comparison of the row kernels with eager torch: both forms agree, and a missed ratio is reported.

Tier: executed reference (torch). Says nothing about speed: few rows are measured, and no ratio of theirs is judged.
"""

import json

import pytest
import torch

from core.kernels.native import NativeBackend
from dev.bench import rows
from dev.bench.result import Section, Target

pytestmark = pytest.mark.native
STEPS = ("norm + modulate", "gate + residual", "gate + residual + norm", "SwiGLU", "norm + RoPE")


@pytest.fixture(scope="module")
def steps() -> dict[str, rows.Step]:
    backend = NativeBackend(threads=1)
    return {step.name: step for make in rows.MAKERS for step in make(backend, 3)}


@pytest.mark.parametrize("name", STEPS)
def test_both_forms_of_a_step_agree(steps, name):
    assert rows.error(steps[name]) <= rows.MAX_ERROR


def test_a_step_in_place_starts_over(steps):
    for name in ("gate + residual", "norm + RoPE"):
        steps[name].ours()
        assert rows.error(steps[name]) <= rows.MAX_ERROR


def test_a_wrong_result_is_not_measured(monkeypatch):
    monkeypatch.setattr(rows, "MAX_ERROR", 0.0)
    with pytest.raises(ArithmeticError, match="norm \\+ modulate differs from torch"):
        rows.run(rows=3, rounds=1)


def test_every_target_is_measured_and_torch_keeps_its_threads():
    before = torch.get_num_threads()
    section = rows.run(rows=3, rounds=1)
    assert [target.name for target in section.targets] == [f"{name} / eager torch fp32" for name in rows.TARGETS]
    assert [(row.case, row.name) for row in section.rows] == [
        (step, who) for step in STEPS for who in ("ours", "eager torch")
    ]
    assert torch.get_num_threads() == before


@pytest.mark.parametrize(("value", "code"), [(3.9, 1), (4.0, 0)])
def test_the_last_line_is_json_and_a_missed_target_fails(monkeypatch, capsys, value, code):
    target = Target(name="SwiGLU / eager torch fp32", value=value, target=4.0)
    monkeypatch.setattr(rows, "run", lambda *_: Section("rows", targets=[target]))
    assert rows.main([]) == code
    result = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert result["ok"] is (code == 0) and result["targets"][0]["value"] == value
