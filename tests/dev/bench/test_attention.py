"""The attention benchmark: what it counts, what it compares with, and how it judges.

Tier: closed form and self-consistency. Cannot catch a wrong clock; test_machine.py tests the timing.
"""

import numpy as np
import pytest

from core.kernels.backend import HeadLayout
from core.kernels.native import NativeBackend
from dev.bench import attention
from dev.bench.machine import Rates


def rates(**values: float) -> dict[str, Rates]:
    return {name.replace("_", " "): Rates(samples=(value,)) for name, value in values.items()}


def test_operations_are_two_products_of_two_operations_each():
    assert attention.operations(512, 3) == 2 * 2 * 3 * 512 * 512 * 128


def test_the_oracle_of_one_row_is_its_value():
    qkv = np.arange(3 * 2 * 8, dtype=np.float32).reshape(1, -1)
    assert np.array_equal(attention.exact_attention(qkv, HeadLayout(heads=2, kv_heads=2, head_dim=8)), qkv[:, 32:])


@pytest.mark.parametrize(("speed", "error", "ok"), [(2.6, 0.01, True), (2.4, 0.01, False), (2.6, 0.03, False)])
def test_both_speed_and_error_are_judged(speed, error, ok):
    measured = {512: rates(torch_fp32=1.0, near=1.6, exact_int8=speed)}
    assert all(target.ok for target in attention.judge(measured, {"exact int8": error})) is ok


@pytest.mark.native
def test_errors_of_all_modes_meet_their_targets(monkeypatch):
    monkeypatch.setattr(attention, "ERROR_ROWS", 193)
    found = attention.errors(NativeBackend(threads=1))
    assert all(found[name] <= most for name, most in attention.MOST_ERROR.items()), found


@pytest.mark.native
def test_every_mode_and_torch_are_timed():
    cases = attention.samplers(NativeBackend(threads=1), 33, 2)
    assert set(cases) == {attention.TORCH, *attention.MODES}
