"""Norms, modulation, residuals, rotation and rows of the native backend against float64 NumPy.

Tier: independent transcription of the equations.
"""

import numpy as np
import pytest

from core.errors import Cancelled, KernelError
from core.kernels.backend import CancelFlag, HeadLayout, Modulation
from core.kernels.native import NativeBackend
from tests.native.kernel_data import LENGTHS, NORM_TOLERANCE, assert_close, normal

pytestmark = pytest.mark.native
EPS = 1e-5


@pytest.fixture(scope="module")
def backend() -> NativeBackend:
    return NativeBackend(threads=2)


def rms(x: np.ndarray, eps: float = EPS) -> np.ndarray:
    x = x.astype(np.float64)
    return x / np.sqrt((x * x).mean(axis=-1, keepdims=True) + eps)


@pytest.mark.parametrize("columns", [*LENGTHS, 8])
def test_rms_norm(backend, columns):
    x, weight = 3 * normal(193, columns), normal(columns)
    assert_close(backend.rms_norm(x, weight, EPS), rms(x) * weight, NORM_TOLERANCE)
    assert_close(backend.rms_norm(x, None, 0.5), rms(x, 0.5), NORM_TOLERANCE)
    pictures = x[:192].reshape(4, 6, 8, columns)
    assert_close(backend.rms_norm(pictures, weight, EPS), rms(pictures) * weight, NORM_TOLERANCE)
    assert backend.rms_norm(x, weight, EPS, out=x) is x


@pytest.mark.parametrize("columns", LENGTHS)
def test_layer_norm(backend, columns):
    x, weight, bias = normal(17, columns) + 40, normal(columns), normal(columns, seed=1)
    centred = x.astype(np.float64) - x.mean(axis=1, keepdims=True, dtype=np.float64)
    expected = centred / np.sqrt((centred**2).mean(axis=1, keepdims=True) + EPS) * weight + bias
    assert_close(backend.layer_norm(x, weight, bias, EPS), expected, NORM_TOLERANCE)


@pytest.mark.parametrize("columns", LENGTHS)
def test_modulation_uses_the_entry_of_each_row(backend, columns):
    rows, table = 193, normal(3, 6, columns)
    index = np.random.default_rng(0).integers(0, 3, rows).astype(np.int32)
    x, weight, modulation = normal(rows, columns), normal(columns), Modulation(table, index)
    normed = rms(x) * weight * (1 + table[index, 4].astype(np.float64)) + table[index, 3]
    got = backend.norm_modulate(x, weight, EPS, modulation, shift_slot=3, scale_slot=4)
    assert_close(got, normed, NORM_TOLERANCE)
    h, gated = x.copy(), x + table[index, 5].astype(np.float64) * got
    assert backend.gated_residual(h, got, modulation, gate_slot=5) is h
    assert_close(h, gated, NORM_TOLERANCE)


def test_modulation_refuses_entries_and_slots_that_do_not_exist(backend):
    x, weight, table = normal(2, 4), normal(4), normal(3, 2, 4)
    for index, slot in (([0, 3], 0), ([-1, 0], 0), ([0, 1], 2)):
        modulation = Modulation(table, np.array(index, dtype=np.int32))
        with pytest.raises(KernelError, match="bad argument"):
            backend.norm_modulate(x, weight, EPS, modulation, shift_slot=slot, scale_slot=0)
        with pytest.raises(KernelError, match="bad argument"):
            backend.gated_residual(x, x.copy(), modulation, gate_slot=slot)


@pytest.mark.parametrize("columns", LENGTHS)
def test_scaled_residual_takes_a_vector_or_a_number(backend, columns):
    h, y, scale = normal(5, columns), normal(5, columns, seed=1), normal(columns)
    expected = h + y.astype(np.float64) * scale
    assert backend.scaled_residual(h, y, scale) is h
    assert_close(h, expected, NORM_TOLERANCE)
    expected = h + 1.25 * y.astype(np.float64)
    assert_close(backend.scaled_residual(backend.scaled_residual(h, y), y, 0.25), expected, NORM_TOLERANCE)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(
    ("rows", "heads", "kv_heads", "d", "half"),
    [(1, 1, 1, 4, 2), (17, 3, 1, 20, 7), (193, 4, 2, 16, 6), (5, 2, 2, 12, 0)],
)
def test_heads_are_normed_and_rotated(backend, rows, heads, kv_heads, d, half, weighted):
    layout = HeadLayout(heads=heads, kv_heads=kv_heads, head_dim=d)
    qkv, q_weight, k_weight = normal(rows, layout.width), normal(d), normal(d, seed=1)
    cos, sin = (normal(rows, half, seed=s) if half else None for s in (1, 2))
    expected = qkv.astype(np.float64).reshape(rows, -1, d)
    rotated = heads + kv_heads
    expected[:, :rotated] = rms(expected[:, :rotated])
    if weighted:
        expected[:, :heads] *= q_weight
        expected[:, heads:rotated] *= k_weight
    if half:
        low, high = expected[:, :rotated, :half].copy(), expected[:, :rotated, half : 2 * half].copy()
        expected[:, :rotated, :half] = low * cos[:, None] - high * sin[:, None]
        expected[:, :rotated, half : 2 * half] = high * cos[:, None] + low * sin[:, None]
    weights = (q_weight, k_weight) if weighted else (None, None)
    got = backend.qk_norm_rope(qkv, layout, q_weight=weights[0], k_weight=weights[1], eps=EPS, cos=cos, sin=sin)
    assert got is qkv
    assert_close(qkv, expected.reshape(rows, -1), NORM_TOLERANCE)


def test_rotation_needs_both_tables_of_fitting_shape(backend):
    layout = HeadLayout(heads=1, kv_heads=1, head_dim=4)
    plain = {"q_weight": None, "k_weight": None, "eps": EPS}
    for cos, sin in ((normal(2, 2), None), (normal(2, 2), normal(2, 1)), (normal(3, 2), normal(3, 2))):
        with pytest.raises(KernelError):
            backend.qk_norm_rope(normal(2, 12), layout, cos=cos, sin=sin, **plain)
    with pytest.raises(KernelError, match="bad argument"):
        backend.qk_norm_rope(normal(2, 12), layout, cos=normal(2, 3), sin=normal(2, 3), **plain)


def test_rows_are_concatenated_and_taken(backend):
    parts = [normal(rows, 3, 5, seed=rows) for rows in (1, 193, 2)]
    both = backend.concat_rows(parts)
    assert np.array_equal(both, np.concatenate(parts))
    index = np.array([195, 0, 0, 7], dtype=np.int32)
    assert np.array_equal(backend.take_rows(both, index), both[index])
    numbers = np.arange(12, dtype=np.int32).reshape(4, 3)
    taken = backend.take_rows(numbers, np.array([3, 3, 1], dtype=np.int32))
    assert taken.dtype == np.int32 and np.array_equal(taken, numbers[[3, 3, 1]])
    with pytest.raises(KernelError, match="bad argument"):
        backend.take_rows(both, np.array([196], dtype=np.int32))


def test_threads_change_no_bit():
    columns, rows = 1023, 193
    x, weight, table = normal(rows, columns), normal(columns), normal(2, 3, columns)
    modulation = Modulation(table, (np.arange(rows) % 2).astype(np.int32))
    results = []
    for threads in (1, 2, 4, 8):
        backend = NativeBackend(threads=threads)
        y = backend.norm_modulate(x, weight, EPS, modulation, shift_slot=0, scale_slot=1)
        y = backend.gated_residual(backend.layer_norm(y, weight, weight, EPS), x, modulation, gate_slot=2)
        results.append(backend.scaled_residual(y, backend.rms_norm(x, None, EPS), weight))
    assert all(np.array_equal(results[0].view(np.uint32), other.view(np.uint32)) for other in results[1:])


def test_extremes_and_nan(backend):
    x = np.full((4, 8), 1e30, np.float32)
    x[1], x[2, 3], x[3] = 0, np.nan, 1e-30
    y = backend.rms_norm(x, None, 0.0)
    assert_close(y[[0, 3]], np.ones((2, 8)), NORM_TOLERANCE)
    assert np.isnan(y[1]).all() and np.isnan(y[2]).all()
    assert (backend.rms_norm(x[1:2], None, EPS) == 0).all()


def test_a_set_flag_cancels_every_operation():
    flag = CancelFlag()
    backend = NativeBackend(threads=2, cancel=flag)
    x, weight, table = normal(3, 12), normal(12), normal(1, 2, 12)
    modulation = Modulation(table, np.zeros(3, dtype=np.int32))
    layout = HeadLayout(heads=1, kv_heads=1, head_dim=4)
    flag.set()
    for call in (
        lambda: backend.rms_norm(x, weight, EPS),
        lambda: backend.layer_norm(x, weight, weight, EPS),
        lambda: backend.norm_modulate(x, weight, EPS, modulation, shift_slot=0, scale_slot=1),
        lambda: backend.gated_residual(x, x.copy(), modulation, gate_slot=0),
        lambda: backend.scaled_residual(x, x.copy()),
        lambda: backend.qk_norm_rope(x, layout, q_weight=None, k_weight=None, eps=EPS, cos=None, sin=None),
        lambda: backend.take_rows(x, np.zeros(1, np.int32)),
        lambda: backend.concat_rows([x, x]),
    ):
        with pytest.raises(Cancelled):
            call()
