"""A bench of tiny shapes runs through every branch and names its rows as the judge expects them.

Tier: self-consistency. Says nothing about speed.
"""

import pytest
import torch

from core.kernels.matrix import WeightFormat
from dev.bench import linear, peers
from dev.bench.judge import best_rates, ratios


class StillMeter:
    """Limits without the program that measures them."""

    def samplers(self):
        return {"limit int8": lambda: 200.0, "limit fp32": lambda: 100.0}


@pytest.fixture
def bench(monkeypatch):
    monkeypatch.setattr("dev.bench.synthetic.ROTATED_BYTES", 1)
    monkeypatch.setattr("dev.bench.machine.SAMPLE_SECONDS", 1e-6)
    monkeypatch.setattr(linear, "SHAPES", {"out": (64, 256), "fc1": (128, 256)})
    monkeypatch.setattr(linear, "becomes_quiet", lambda: True)
    plan = linear.Plan(
        shapes=("out",), peered=(WeightFormat.Q4_K,), others=(WeightFormat.Q6_K,), rounds={64: 1, 256: 1},
        large_shapes=("out",), large_formats=(WeightFormat.Q4_K,), large_rounds=1,
    )  # fmt: skip
    peers.one_thread()
    with torch.inference_mode():
        yield linear.Bench(StillMeter(), plan)


@pytest.mark.native
def test_one_shape_has_every_row_that_is_judged(bench):
    bench.shape("out")
    best = best_rates(bench.section.rows)
    walls = f"out 256, {linear.CORES} threads"
    assert set(best) == {"out 64", "out 256", "out 1024", "out 64 float", "out 256 float", walls}
    for mode in ("exact", "near", "fast"):
        for theirs in (["limit int8"], peers.ort_names(), [peers.TORCH_FP32], peers.int8_names()):
            cases = {"out 64", "out 256", "out 1024"} if mode == "exact" else {"out 256", "out 1024"}
            assert set(ratios(best, f"q4_k {mode}", theirs, (64, 256, 1024))) == cases
        assert "q6_k " + mode in best["out 256"] and "q6_k " + mode not in best["out 1024"]
    assert {"f32 float", "f16 float", "bf16 float", "torch bf16"} < set(best["out 64 float"])


@pytest.mark.native
@pytest.mark.parametrize(("quiet", "seconds", "note"), [
    (False, 1.0, "not quiet"), (True, None, "not quiet"), (True, 1.0, "wall time"),
])  # fmt: skip
def test_wall_rows_say_whether_the_machine_was_quiet(bench, monkeypatch, quiet, seconds, note):
    monkeypatch.setattr(linear, "becomes_quiet", lambda: quiet)
    monkeypatch.setattr(linear, "quiet_wall", lambda call: (call(), seconds)[1])
    bench.shape("out")
    rows = [row for row in bench.section.rows if row.case.endswith("threads")]
    assert {row.note for row in rows} == {note}
    assert {row.name for row in rows} >= {"torch fp32", "q4_k exact", *peers.int8_names()}


@pytest.mark.native
def test_fc1_is_measured_with_its_activation(bench):
    bench.swiglu()
    assert {row.name for row in bench.section.rows} >= {"torch fp32", "q4_k exact", "q8_0 exact"}
