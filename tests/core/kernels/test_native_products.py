"""Products, attention and embedding of the native backend against float64 NumPy.

Tier: independent transcription of the equations; weights are expanded by the reference code, which has its own proof
against gguf. Cannot catch a slow kernel.
"""

import numpy as np
import pytest

from core.errors import Cancelled, KernelError
from core.kernels.backend import Activation, CancelFlag, HeadLayout
from core.kernels.matrix import Matrix, WeightFormat
from core.kernels.native import NativeBackend
from core.kernels.reference_dequant import expand
from tests.native.kernel_data import (
    ATTENTION_TOLERANCE,
    FORMATS,
    LENGTHS,
    PRODUCT_TOLERANCE,
    assert_close,
    normal,
    random_matrix,
    width_for,
)

pytestmark = pytest.mark.native


@pytest.fixture(scope="module")
def backend() -> NativeBackend:
    return NativeBackend(threads=2)


def product(x: np.ndarray, matrix: Matrix, bias: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
    """The sum in float64 and the sum of absolute terms."""
    x, w = x.astype(np.float64), expand(matrix).astype(np.float64)
    bias = np.zeros(len(w)) if bias is None else bias.astype(np.float64)
    return x @ w.T + bias, np.abs(x) @ np.abs(w).T + np.abs(bias)


def activated(total: np.ndarray, magnitude: np.ndarray, activation: Activation) -> tuple[np.ndarray, np.ndarray]:
    """Expected output and the magnitude its error is measured by: slopes of silu and gelu stay below 1.13."""
    with np.errstate(over="ignore"):
        silu = total / (1 + np.exp(-total))
    if activation is Activation.NONE:
        return total, magnitude
    if activation is Activation.SILU:
        return silu, 1.13 * magnitude
    if activation is Activation.GELU_TANH:
        return 0.5 * total * (1 + np.tanh(np.sqrt(2 / np.pi) * (total + 0.044715 * total**3))), 1.13 * magnitude
    half = total.shape[1] // 2
    value, seen = total[:, half:], 1.13 * magnitude[:, :half] * np.abs(total[:, half:])
    return silu[:, :half] * value, seen + np.abs(silu[:, :half]) * magnitude[:, half:]


@pytest.mark.parametrize("activation", Activation, ids=lambda a: a.value)
@pytest.mark.parametrize("format", FORMATS, ids=lambda f: f.label)
def test_linear_is_close_to_float64(backend, format, activation):
    for m, n, k in ((1, 2, 1), (17, 64, 193), (193, 66, 257)):
        matrix = random_matrix(format, n, width_for(format, k), seed=m)
        x, bias = normal(m, matrix.columns), normal(n, seed=1)
        for used_bias in (None, bias):
            expected, magnitude = activated(*product(x, matrix, used_bias), activation)
            got = backend.linear(x, matrix, bias=used_bias, activation=activation)
            assert_close(got, expected, PRODUCT_TOLERANCE[format], magnitude=magnitude)


@pytest.mark.parametrize("k", LENGTHS)
def test_linear_takes_any_width_of_float_rows(backend, k):
    x, matrix = normal(7, k), Matrix.from_float32("weight", normal(9, k, seed=1))
    expected, magnitude = product(x, matrix, None)
    assert_close(backend.linear(x, matrix), expected, PRODUCT_TOLERANCE[WeightFormat.F32], magnitude=magnitude)


@pytest.mark.parametrize("format", FORMATS, ids=lambda f: f.label)
def test_threads_and_addresses_change_no_bit(format):
    k = width_for(format, 300)
    x, expected = normal(389, k), None
    for threads, offset in ((1, 0), (2, 1), (4, 3), (8, 5)):
        matrix = random_matrix(format, 70, k, offset=offset)
        got = NativeBackend(threads=threads).linear(x, matrix, activation=Activation.SWIGLU)
        expected = got if expected is None else expected
        assert np.array_equal(got.view(np.uint32), expected.view(np.uint32)), (threads, offset)


def test_a_row_does_not_depend_on_the_rows_beside_it(backend):
    matrix, x = random_matrix(WeightFormat.Q8_0, 70, 512), normal(200, 512)
    whole = backend.linear(x, matrix)
    for start, stop in ((0, 1), (5, 11), (60, 199), (192, 200)):
        assert np.array_equal(backend.linear(x[start:stop], matrix), whole[start:stop])


def test_spans_of_several_formats_fill_their_columns(backend):
    rows = (1, 7, 8, 9, 65, 4, 3, 2, 11, 16, 5, 17, 6, 12, 19, 1)
    parts = [random_matrix(f, count, 256, seed=count) for f, count in zip(FORMATS, rows, strict=True)]
    matrix, x, bias = Matrix.stack("mixed", parts), normal(23, 256), normal(sum(rows))
    expected, magnitude = product(x, matrix, bias)
    assert_close(backend.linear(x, matrix, bias=bias), expected, 1e-6, magnitude=magnitude)
    expected, magnitude = activated(expected, magnitude, Activation.SWIGLU)
    got = backend.linear(x, matrix, bias=bias, activation=Activation.SWIGLU)
    assert_close(got, expected, 1e-6, magnitude=magnitude)


def test_swiglu_over_unequal_spans_of_one_format_equals_one_span(backend):
    whole, x, bias = random_matrix(WeightFormat.Q4_0, 130, 64), normal(9, 64), normal(130)
    cut = Matrix.stack("cut", [whole.row_range(a, b) for a, b in ((0, 30), (30, 70), (70, 75), (75, 130))])
    one, many = (backend.linear(x, w, bias=bias, activation=Activation.SWIGLU) for w in (whole, cut))
    assert np.array_equal(one, many)


def test_linear_writes_into_a_row_view(backend):
    x, matrix, out = normal(3, 8), Matrix.from_float32("weight", normal(5, 8, seed=1)), np.full((6, 5), 7, np.float32)
    target = backend.row_slice(out, 2, 5)
    assert backend.linear(x, matrix, out=target) is target
    assert np.array_equal(out[2:5], backend.linear(x, matrix)) and (out[[0, 1, 5]] == 7).all()


def test_zeros_extremes_and_nan(backend):
    matrix = Matrix.from_float32("weight", np.full((9, 64), 1e-30, np.float32))
    x = np.zeros((4, 64), np.float32)
    x[1, 5], x[2, 63] = np.nan, np.inf
    x[3] = np.where(np.arange(64) % 2, 3e38, -3e38)
    y = backend.linear(x, matrix)
    assert (y[0] == 0).all() and np.isnan(y[1]).all() and (y[2] == np.inf).all() and (np.abs(y[3]) < 1e3).all()


def test_impossible_products_are_refused(backend):
    matrix = Matrix.from_float32("weight", normal(5, 8))
    with pytest.raises(KernelError, match=r"x is \(3, 7\), expected \[rows, 8\]"):
        backend.linear(normal(3, 7), matrix)
    with pytest.raises(KernelError, match="5 rows, expected an even number"):
        backend.linear(normal(3, 8), matrix, activation=Activation.SWIGLU)
    with pytest.raises(KernelError, match=r"bias is \(4,\), expected \(5,\)"):
        backend.linear(normal(3, 8), matrix, bias=normal(4))
    with pytest.raises(KernelError, match=r"out is \(3, 4\), expected \(3, 5\)"):
        backend.linear(normal(3, 8), matrix, out=normal(3, 4))


@pytest.mark.parametrize("format", FORMATS, ids=lambda f: f.label)
def test_embedding_reads_rows_of_every_span(backend, format):
    columns = width_for(format, 193)
    spans = [random_matrix(format, 3, columns, offset=1), random_matrix(format, 5, columns, seed=1)]
    table = Matrix.stack("table", spans)
    ids = np.array([7, 0, 2, 3, 3], dtype=np.int32)
    assert np.array_equal(backend.embedding(ids, table), expand(table)[ids])
    for wrong in (-1, 8):
        with pytest.raises(KernelError, match="expected 0..7"):
            backend.embedding(np.array([wrong], dtype=np.int32), table)


def softmax_attention(qkv: np.ndarray, layout: HeadLayout, causal: bool) -> np.ndarray:
    rows, d = len(qkv), layout.head_dim
    parts = qkv.astype(np.float64).reshape(rows, -1, d)
    out = np.empty((rows, layout.heads, d))
    for head in range(layout.heads):
        group = layout.heads + head // (layout.heads // layout.kv_heads)
        scores = parts[:, head] @ parts[:, group].T / np.sqrt(d)
        if causal:
            scores[np.triu_indices(rows, 1)] = -np.inf
        weights = np.exp(scores - scores.max(axis=1, keepdims=True))
        out[:, head] = weights / weights.sum(axis=1, keepdims=True) @ parts[:, group + layout.kv_heads]
    return out.reshape(rows, -1)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(
    ("rows", "heads", "kv_heads", "d"),
    [(1, 1, 1, 4), (17, 6, 2, 12), (63, 2, 1, 256), (65, 3, 3, 20), (95, 2, 2, 64), (97, 1, 1, 128), (193, 4, 2, 16)],
)
def test_attention_is_close_to_float64(backend, rows, heads, kv_heads, d, causal):
    layout = HeadLayout(heads=heads, kv_heads=kv_heads, head_dim=d)
    qkv = normal(rows, layout.width)
    expected = softmax_attention(qkv, layout, causal)
    assert_close(backend.attention(qkv, layout, causal=causal), expected, ATTENTION_TOLERANCE)
    out = np.empty_like(expected, dtype=np.float32)
    assert backend.attention(qkv, layout, causal=causal, out=out) is out
    assert_close(out, expected, ATTENTION_TOLERANCE)


def test_attention_is_the_same_on_any_number_of_threads():
    layout = HeadLayout(heads=3, kv_heads=1, head_dim=20)
    qkv = normal(230, layout.width)
    one, *others = (NativeBackend(threads=threads).attention(qkv, layout) for threads in (1, 2, 4, 8))
    assert all(np.array_equal(one.view(np.uint32), other.view(np.uint32)) for other in others)


def test_attention_keeps_nan_in_its_row_and_survives_large_scores(backend):
    layout = HeadLayout(heads=1, kv_heads=1, head_dim=4)
    qkv = normal(100, layout.width)
    qkv[40, 0] = np.nan
    y = backend.attention(qkv, layout)
    assert np.isnan(y[40]).all() and np.isfinite(np.delete(y, 40, axis=0)).all()
    qkv = np.concatenate((3e4 * normal(100, 8), normal(100, 4)), axis=1)
    y = backend.attention(qkv, layout)
    assert np.isfinite(y).all() and np.abs(y).max() <= np.abs(qkv[:, 8:]).max()


def test_attention_refuses_other_widths(backend):
    layout = HeadLayout(heads=2, kv_heads=1, head_dim=4)
    with pytest.raises(KernelError, match=r"expected \[rows, 16\]"):
        backend.attention(normal(3, 15), layout)
    odd = HeadLayout(heads=1, kv_heads=1, head_dim=6)
    with pytest.raises(KernelError, match="bad argument"):
        backend.attention(normal(3, odd.width), odd)


def test_a_set_flag_cancels_every_product():
    flag = CancelFlag()
    backend = NativeBackend(threads=2, cancel=flag)
    x, matrix = normal(3, 8), Matrix.from_float32("weight", normal(4, 8))
    layout = HeadLayout(heads=1, kv_heads=1, head_dim=4)
    flag.set()
    for call in (
        lambda: backend.linear(x, matrix),
        lambda: backend.linear(x, matrix, activation=Activation.SWIGLU),
        lambda: backend.attention(normal(3, 12), layout),
        lambda: backend.embedding(np.zeros(1, np.int32), matrix),
    ):
        with pytest.raises(Cancelled):
            call()
    flag.clear()
    assert backend.linear(x, matrix).shape == (3, 4)
