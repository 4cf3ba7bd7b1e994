"""Synthetic weights.

Tier: closed form over the reference's expansion. Cannot tell whether real weights are distributed so.
"""

import numpy as np
import pytest

from core.kernels.matrix import WeightFormat
from core.kernels.reference_dequant import expand
from dev.bench.synthetic import ROTATED_BYTES, Rotated, copy_count, matrix

FORMATS = (
    WeightFormat.Q4_0, WeightFormat.Q4_K, WeightFormat.Q8_0, WeightFormat.Q5_K, WeightFormat.Q6_K, WeightFormat.F32,
    WeightFormat.F16, WeightFormat.BF16,
)  # fmt: skip


@pytest.mark.parametrize("weight_format", FORMATS, ids=lambda f: f.label)
def test_weights_are_centred_with_the_spread_of_a_real_layer(weight_format):
    values = np.asarray(expand(matrix(weight_format, 64, 1024)))
    assert np.isfinite(values).all()
    assert 0.012 < values.std() < 0.028
    assert abs(values.mean()) < 0.05 * values.std() + 1e-3
    assert len(np.unique(values)) > 1000


def test_copies_pass_the_promised_bytes_and_differ(monkeypatch):
    weight = matrix(WeightFormat.Q8_0, 40, 1024)
    monkeypatch.setattr("dev.bench.synthetic.ROTATED_BYTES", 3 * weight.data_bytes - 1)
    rotated = Rotated(weight)
    round_trip = [rotated.next() for _ in range(4)]
    assert len(rotated.matrices) == 3 and round_trip[3] is round_trip[0] is weight
    contents = {m.spans[0].data.tobytes() for m in rotated.matrices}
    assert len(contents) == 3
    assert not any(np.shares_memory(a.spans[0].data, weight.spans[0].data) for a in rotated.matrices[1:])


def test_a_full_turn_is_longer_than_any_cache():
    for data_bytes in (1, ROTATED_BYTES - 1, ROTATED_BYTES, 90 * 10**6):
        assert copy_count(data_bytes) * data_bytes >= ROTATED_BYTES > (copy_count(data_bytes) - 1) * data_bytes
