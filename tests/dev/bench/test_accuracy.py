"""Errors of the linears.

Tier: closed form for the error itself, self-consistency for the section.
"""

import numpy as np
import pytest

from dev.bench import accuracy


def test_the_error_is_relative_in_l2():
    assert accuracy.relative_error(np.float32([3, 4.5]), np.float64([3, 4])) == pytest.approx(0.1)


@pytest.mark.native
def test_every_format_and_accuracy_has_a_row(monkeypatch):
    monkeypatch.setattr(accuracy, "OUTPUTS", 16)
    monkeypatch.setattr(accuracy, "COLUMNS", 512)
    rows = accuracy.run().rows
    errors = {(row.case, row.name): row.best for row in rows}
    for case in ("q4_0", "q4_k", "q8_0", "q5_k", "q6_k"):
        assert errors[case, "float"] < 1e-6 and errors[case, "near"] <= 1e-4
        assert errors[case, "exact"] < 2e-2 and errors[case, "fast"] < 3e-2
        assert any(name.startswith("torch int8") for at, name in errors if at == case)
