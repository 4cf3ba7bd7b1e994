"""Timing and the limit benchmark.

Tier: self-consistency. Cannot tell whether a limit is the machine's: another program measured that.
"""

import json
import subprocess
import time

import pytest

from dev.bench.machine import LIMITS_PROGRAM, LimitMeter, Rates, describe, interleave, quiet_wall, timed


def test_cases_take_turns():
    calls = []
    rates = interleave({name: lambda name=name: calls.append(name) or float(len(calls)) for name in "abc"}, 3)
    assert calls == list("abc" * 3)
    assert rates["b"] == Rates(samples=(2.0, 5.0, 8.0)) and rates["b"].best == 8.0 and rates["b"].median == 5.0


def test_sleeping_costs_no_processor_time():
    def work():
        time.sleep(0.02)
        sum(range(200_000))

    def plain():
        sum(range(200_000))

    assert timed(work, 1e6)() > 0.5 * timed(plain, 1e6)()


def test_wall_time_counts_when_nobody_else_works(monkeypatch):
    monkeypatch.setattr("dev.bench.machine._busy_seconds", lambda: (time.perf_counter(), time.perf_counter()))
    assert quiet_wall(lambda: time.sleep(0.05)) == pytest.approx(0.05, abs=0.02)


def test_wall_time_does_not_count_when_others_work(monkeypatch):
    monkeypatch.setattr("dev.bench.machine._busy_seconds", lambda: (time.perf_counter(), 0.0))
    assert quiet_wall(lambda: time.sleep(0.05)) is None


@pytest.fixture(scope="module")
def limits():
    subprocess.run(["make", "-s", str(LIMITS_PROGRAM.relative_to(LIMITS_PROGRAM.parents[3]))], check=True,
                   cwd=LIMITS_PROGRAM.parents[3])  # fmt: skip
    return LIMITS_PROGRAM


@pytest.mark.native
def test_the_meter_knows_both_limits_of_the_variant_in_use(limits):
    meter = LimitMeter(limits)
    rates = {name: sampler() for name, sampler in meter.samplers().items()}
    assert rates["limit int8"] > rates["limit fp32"] > 1
    with pytest.raises(ValueError):
        meter.ask("int9_256")
    meter.close()


@pytest.mark.native
def test_the_multiplication_of_bytes_is_not_moved_out_of_the_loop(limits):
    meter = LimitMeter(limits)
    if meter.int8 != "int8_256":
        pytest.skip("only processors without a dot product of bytes multiply them apart")
    whole, without = (max(meter.ask(row) for _ in range(3)) for row in ("int8_256", "int8_madd_only_256"))
    meter.close()
    assert 1.2 * whole < without


@pytest.mark.native
def test_the_description_names_the_variant_in_use():
    facts = describe()
    assert facts["isa"] in facts["isas_offered"].split() and json.dumps(facts)
