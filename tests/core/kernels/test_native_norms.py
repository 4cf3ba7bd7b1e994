"""Norms, modulation, residuals, rotation, SwiGLU and rows of the native backend against float64 NumPy.

Tier: independent transcription of the equations; self-consistency where bits are compared. Cannot test an instruction
set that this processor lacks: the names printed by pytest say which ones ran.
"""

import numpy as np
import pytest

from core.errors import Cancelled, KernelError
from core.kernels.backend import CancelFlag, HeadLayout, Modulation, NextNorm
from core.kernels.native import NativeBackend
from tests.native.kernel_data import ISAS, LENGTHS, NORM_TOLERANCE, assert_close, instruction_set, normal

pytestmark = pytest.mark.native
EPS = 1e-5


@pytest.fixture(params=ISAS)
def backend(request, monkeypatch):
    with instruction_set(request.param, monkeypatch) as name:
        backend = NativeBackend(threads=2)
        assert backend.library.isa_name() == name
        yield backend


def misaligned(array: np.ndarray) -> np.ndarray:
    """A copy that starts one float behind a cache line."""
    raw = np.empty(array.size + 32, np.float32)
    start = -raw.ctypes.data % 64 // 4 + 1
    copy = raw[start : start + array.size].reshape(array.shape)
    copy[:] = array
    return copy


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
        norm = NextNorm(weight=weight, eps=EPS, table=table, shift_slot=0, scale_slot=1)
        with pytest.raises(KernelError, match="bad argument"):
            backend.gated_residual_norm(x, x.copy(), modulation, gate_slot=slot, norm=norm)


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


@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("columns", LENGTHS)
def test_a_gated_residual_leaves_the_next_norm(backend, columns, in_place):
    rows, table, other = 17, normal(3, 4, columns), normal(3, 4, columns, seed=1)
    index = np.random.default_rng(1).integers(0, 3, rows).astype(np.int32)
    h, y, weight = misaligned(normal(rows, columns)), misaligned(normal(rows, columns, seed=1)), normal(columns)
    expected_h = h + table[index, 2].astype(np.float64) * y
    expected = rms(expected_h.astype(np.float32)) * weight * (1 + other[index, 0].astype(np.float64)) + other[index, 3]
    norm = NextNorm(weight=weight, eps=EPS, table=other, shift_slot=3, scale_slot=0)
    out = y if in_place else None
    got = backend.gated_residual_norm(h, y, Modulation(table, index), gate_slot=2, norm=norm, out=out)
    assert got is y or not in_place
    assert_close(h, expected_h, NORM_TOLERANCE)
    assert_close(got, expected, NORM_TOLERANCE)


@pytest.mark.parametrize("count", [*LENGTHS, 40000])
def test_swiglu(backend, count):
    gate, value, y = misaligned(9 * normal(count)), normal(count, seed=1), np.full(count, np.nan, np.float32)
    backend.run("h3k_swiglu", {"gate": gate, "value": value, "y": y})
    exact = gate.astype(np.float64) / (1 + np.exp(-gate.astype(np.float64))) * value
    assert_close(y, exact, NORM_TOLERANCE, magnitude=np.abs(exact) + 1e-30)


def every_row_operation(backend: NativeBackend, first: int, stop: int) -> list[np.ndarray]:
    """Results of all row kernels on rows first..stop of one fixed input."""
    columns, rows, layout = 1023, 193, HeadLayout(heads=11, kv_heads=3, head_dim=33)
    x, y, weight, table = normal(rows, columns), normal(rows, columns, seed=1), normal(columns), normal(2, 3, columns)
    index, angle, qkv = (np.arange(rows) % 2).astype(np.int32), normal(rows, 13), normal(rows, layout.width)
    x, y, index, angle, qkv = (array[first:stop].copy() for array in (x, y, index, angle, qkv))
    modulation = Modulation(table, index)
    norm = NextNorm(weight=weight, eps=EPS, table=table, shift_slot=0, scale_slot=1)
    modulated = backend.norm_modulate(x, weight, EPS, modulation, shift_slot=0, scale_slot=1)
    gated = backend.gated_residual(backend.layer_norm(y, weight, weight, EPS), x, modulation, gate_slot=2)
    h = x.copy()
    following = backend.gated_residual_norm(h, y, modulation, gate_slot=2, norm=norm)
    scaled = backend.scaled_residual(y, backend.rms_norm(x, None, EPS), weight)
    weights = {"q_weight": normal(33), "k_weight": None}
    heads = backend.qk_norm_rope(qkv, layout, **weights, eps=EPS, cos=np.cos(angle), sin=np.sin(angle))
    return [modulated, gated, h, following, scaled, heads]


def test_threads_change_no_bit(backend):
    results = [every_row_operation(NativeBackend(threads=threads), 0, 193) for threads in (1, 2, 4, 8)]
    for other in results[1:]:
        assert all(np.array_equal(a.view(np.uint32), b.view(np.uint32)) for a, b in zip(results[0], other, strict=True))


@pytest.mark.parametrize("cuts", [(0, 1, 193), (0, 64, 128, 193), (0, 97, 98, 190, 193)])
def test_a_split_of_the_rows_changes_no_bit(backend, cuts):
    whole = every_row_operation(backend, 0, 193)
    parts = [every_row_operation(backend, *cut) for cut in zip(cuts[:-1], cuts[1:], strict=True)]
    for expected, *pieces in zip(whole, *parts, strict=True):
        assert np.array_equal(expected.view(np.uint32), np.concatenate(pieces).view(np.uint32))


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
        lambda: backend.gated_residual_norm(
            x, x.copy(), modulation, gate_slot=0,
            norm=NextNorm(weight=weight, eps=EPS, table=table, shift_slot=0, scale_slot=1),
        ),
        lambda: backend.scaled_residual(x, x.copy()),
        lambda: backend.qk_norm_rope(x, layout, q_weight=None, k_weight=None, eps=EPS, cos=None, sin=None),
        lambda: backend.take_rows(x, np.zeros(1, np.int32)),
        lambda: backend.concat_rows([x, x]),
    ):
        with pytest.raises(Cancelled):
            call()
