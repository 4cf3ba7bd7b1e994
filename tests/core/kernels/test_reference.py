"""Every operation of the reference backend against float64 NumPy written from its equation.

Tier: independent transcription. Cannot catch a wrong reading of the model; test_reference_diffusers.py runs the model's
own classes for that. Tolerance 2e-5 of the largest value: float32 sums of at most a few hundred terms of order one.
"""

import numpy as np
import pytest
import torch

from core.errors import Cancelled, KernelError
from core.kernels.backend import Activation, CancelFlag, Conv1d, Conv3d, HeadLayout, Modulation, NextNorm
from core.kernels.matrix import Matrix
from core.kernels.reference import ReferenceBackend

B = ReferenceBackend()


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng([seed, *shape]).standard_normal(shape, dtype=np.float32)


def put(values) -> torch.Tensor:
    return B.from_numpy(np.asarray(values))


def close(got: torch.Tensor, expected: np.ndarray, tolerance: float = 2e-5) -> None:
    got = B.to_numpy(got)
    assert got.shape == expected.shape and got.dtype == np.float32
    np.testing.assert_allclose(got, expected, rtol=0, atol=tolerance * max(1.0, np.abs(expected).max()))


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def gelu(x: np.ndarray) -> np.ndarray:
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


def rms(x: np.ndarray, eps: float) -> np.ndarray:
    x = x.astype(np.float64)
    return x / np.sqrt((x * x).mean(axis=-1, keepdims=True) + eps)


# ---- arrays and rows


def test_arrays_keep_values_views_and_types():
    values = np.arange(12, dtype=np.float32).reshape(4, 3)
    array = put(values)
    rows = B.row_slice(array, 1, 3)
    rows += 100
    assert np.array_equal(B.to_numpy(array), values) and B.to_numpy(array)[1, 0] == 103
    assert B.reshape(array, (2, 6)).shape == (2, 6) and B.empty((2, 5)).dtype == torch.float32
    assert B.to_numpy(put(np.array([3], dtype=np.int32))).dtype == np.int32
    with pytest.raises(KernelError, match="float64"):
        put(np.zeros(3))


def test_rows_are_concatenated_taken_and_embedded():
    a, b = normal(3, 5), normal(2, 5, seed=1)
    both = np.concatenate((a, b))
    close(B.concat_rows([put(a), put(b)]), both, 0)
    index = np.array([4, 0, 0, 2], dtype=np.int32)
    close(B.take_rows(put(both), put(index)), both[index], 0)
    close(B.embedding(put(index), Matrix.from_float32("table", both)), both[index], 0)


# ---- products

ACTIVATIONS = {
    Activation.NONE: lambda y: y,
    Activation.SILU: lambda y: y * sigmoid(y),
    Activation.GELU_TANH: gelu,
    Activation.SWIGLU: lambda y: y[:, :5] * sigmoid(y[:, :5]) * y[:, 5:],
}


@pytest.mark.parametrize("activation", ACTIVATIONS, ids=lambda a: a.value)
@pytest.mark.parametrize(("m", "k"), [(1, 1), (7, 33)])
def test_linear_with_bias_and_activation(activation, m, k):
    x, w, bias = normal(m, k), normal(10, k, seed=1), normal(10, seed=2)
    expected = ACTIVATIONS[activation](x.astype(np.float64) @ w.T.astype(np.float64) + bias)
    weight = B.weight(Matrix.from_float32("w", w))
    close(B.linear(put(x), weight, bias=put(bias), activation=activation), expected)
    out = B.empty((m + 2, expected.shape[1]))
    target = B.row_slice(out, 1, 1 + m)
    assert B.linear(put(x), weight, bias=put(bias), activation=activation, out=target) is target
    close(B.row_slice(out, 1, 1 + m), expected)


def plain_attention(qkv: np.ndarray, layout: HeadLayout, causal: bool) -> np.ndarray:
    rows, d = qkv.shape[0], layout.head_dim
    parts = qkv.astype(np.float64).reshape(rows, -1, d)
    out = np.zeros((rows, layout.heads, d))
    for head in range(layout.heads):
        group = head // (layout.heads // layout.kv_heads)
        k, v = parts[:, layout.heads + group], parts[:, layout.heads + layout.kv_heads + group]
        scores = parts[:, head] @ k.T / np.sqrt(d)
        if causal:
            scores[np.triu_indices(rows, 1)] = -np.inf
        weights = np.exp(scores - scores.max(axis=1, keepdims=True))
        out[:, head] = weights / weights.sum(axis=1, keepdims=True) @ v
    return out.reshape(rows, -1)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("rows", "heads", "kv_heads", "d"), [(1, 1, 1, 4), (19, 6, 2, 10), (33, 3, 3, 16)])
def test_attention_over_packed_rows(rows, heads, kv_heads, d, causal):
    layout = HeadLayout(heads=heads, kv_heads=kv_heads, head_dim=d)
    qkv = normal(rows, layout.width)
    expected = plain_attention(qkv, layout, causal)
    close(B.attention(put(qkv), layout, causal=causal), expected)
    out = B.empty(expected.shape)
    B.attention(put(qkv), layout, causal=causal, out=out)
    close(out, expected)


# ---- norms and element-wise


def test_rms_norm_with_and_without_weight():
    x, w = 3 * normal(5, 17), normal(17, seed=1)
    close(B.rms_norm(put(x), put(w), 1e-5), rms(x, 1e-5) * w)
    close(B.rms_norm(put(x), None, 0.5), rms(x, 0.5))


def test_layer_norm():
    x, w, bias = normal(5, 17) + 4, normal(17, seed=1), normal(17, seed=2)
    centred = x.astype(np.float64) - x.mean(axis=1, keepdims=True, dtype=np.float64)
    expected = centred / np.sqrt((centred**2).mean(axis=1, keepdims=True) + 1e-5) * w + bias
    close(B.layer_norm(put(x), put(w), put(bias), 1e-5), expected)


def modulation(entries: int, slots: int, channels: int, rows: int) -> tuple[np.ndarray, Modulation]:
    table = normal(entries, slots, channels, seed=7)
    index = np.arange(rows, dtype=np.int32)[::-1].copy() % entries
    return table[index], Modulation(put(table), put(index))


def test_norm_modulate_takes_each_rows_own_entry():
    x, w = normal(7, 12), normal(12, seed=1)
    rows, table = modulation(3, 6, 12, 7)
    expected = rms(x, 1e-6) * w * (1 + rows[:, 4].astype(np.float64)) + rows[:, 3]
    close(B.norm_modulate(put(x), put(w), 1e-6, table, shift_slot=3, scale_slot=4), expected)


def test_residuals_add_in_place():
    h, y, scale = normal(7, 12), normal(7, 12, seed=1), normal(12, seed=2)
    rows, table = modulation(3, 6, 12, 7)
    target = put(h.copy())
    assert B.gated_residual(target, put(y), table, gate_slot=5) is target
    close(target, h + rows[:, 5] * y)
    for factor, value in ((scale, put(scale)), (0.25, 0.25)):
        target = put(h.copy())
        assert B.scaled_residual(target, put(y), value) is target
        close(target, h + factor * y)


@pytest.mark.parametrize("in_place", [False, True])
def test_a_gated_residual_leaves_the_next_norm(in_place):
    h, y, w, other = normal(7, 12), normal(7, 12, seed=1), normal(12, seed=2), normal(3, 6, 12, seed=8)
    rows, table = modulation(3, 6, 12, 7)
    following = other[np.asarray(table.row_index)].astype(np.float64)
    target, branch = put(h.copy()), put(y.copy())
    norm = NextNorm(weight=put(w), eps=1e-6, table=put(other), shift_slot=0, scale_slot=1)
    got = B.gated_residual_norm(target, branch, table, gate_slot=5, norm=norm, out=branch if in_place else None)
    assert (got is branch) == in_place
    close(target, h + rows[:, 5] * y)
    close(got, rms(h + rows[:, 5] * y, 1e-6) * w * (1 + following[:, 1]) + following[:, 0])


@pytest.mark.parametrize("pairs", [0, 3, 5])
def test_qk_norm_rope_turns_pairs_and_leaves_values_alone(pairs):
    layout = HeadLayout(heads=4, kv_heads=2, head_dim=10)
    qkv, weights = normal(6, layout.width), (normal(10, seed=1), normal(10, seed=2))
    angle = normal(6, max(pairs, 1), seed=3).astype(np.float64)
    cos, sin = (None, None) if pairs == 0 else (put(f(angle).astype(np.float32)) for f in (np.cos, np.sin))
    expected = qkv.reshape(6, 8, 10).astype(np.float64)
    for first, stop, weight in ((0, 4, weights[0]), (4, 6, weights[1])):
        normed = rms(expected[:, first:stop], 1e-5) * weight
        turned = (normed[..., :pairs] + 1j * normed[..., pairs : 2 * pairs]) * np.exp(1j * angle[:, None, :pairs])
        expected[:, first:stop] = np.concatenate((turned.real, turned.imag, normed[..., 2 * pairs :]), axis=-1)
    target = put(qkv.copy())
    got = B.qk_norm_rope(
        target, layout, q_weight=put(weights[0]), k_weight=put(weights[1]), eps=1e-5, cos=cos, sin=sin
    )
    assert got is target
    close(target, expected.reshape(6, -1))


# ---- convolution


def plain_conv1d(x: np.ndarray, w: np.ndarray, spec: Conv1d) -> np.ndarray:
    x = np.pad(x.astype(np.float64), ((spec.pad_left, spec.pad_right), (0, 0)))
    length = (x.shape[0] - spec.dilation * (spec.kernel - 1) - 1) // spec.stride + 1
    out = np.zeros((length, w.shape[0]))
    for tap in range(spec.kernel):
        out += x[tap * spec.dilation :][: (length - 1) * spec.stride + 1 : spec.stride] @ w[:, :, tap].T
    return out


@pytest.mark.parametrize(
    "spec",
    [
        Conv1d(kernel=1),
        Conv1d(kernel=3, dilation=2, pad_left=2, pad_right=2),
        Conv1d(kernel=4, stride=3, pad_left=2, pad_right=1),
        Conv1d(kernel=5, pad_left=4),
    ],
)
def test_conv1d_geometry(spec):
    x, w, bias = normal(13, 5), normal(3, 5, spec.kernel, seed=1), normal(3, seed=2)
    expected = plain_conv1d(x, w, spec)
    close(B.conv1d(put(x), B.conv_weight(w), put(bias), spec), expected + bias)
    close(B.conv1d(put(x), B.conv_weight(w), None, spec), expected)


@pytest.mark.parametrize(("kernel", "stride", "padding"), [(1, 1, 0), (4, 2, 1), (9, 5, 2), (3, 4, 0)])
@pytest.mark.parametrize("length", [1, 6])
def test_conv_transpose1d_scatters_each_input(kernel, stride, padding, length):
    x, w, bias = normal(length, 5), normal(5, 3, kernel, seed=1), normal(3, seed=2)
    expected = np.zeros(((length - 1) * stride + kernel, 3))
    for t in range(length):
        expected[t * stride : t * stride + kernel] += np.einsum("c,cok->ko", x[t].astype(np.float64), w)
    expected = expected[padding : expected.shape[0] - padding] + bias
    weight = B.conv_weight(w, transposed=True)
    close(B.conv_transpose1d(put(x), weight, put(bias), stride=stride, padding=padding), expected)


def plain_conv3d(frames: np.ndarray, w: np.ndarray, spec: Conv3d) -> np.ndarray:
    """`frames` already carry the history in front."""
    pad = (spec.pad_before, spec.pad_after)
    x = np.pad(frames.astype(np.float64), ((0, 0), pad, pad, (0, 0)), mode="reflect")
    windows = np.lib.stride_tricks.sliding_window_view(x, (spec.kernel_t, spec.kernel, spec.kernel), axis=(0, 1, 2))
    windows = windows[:: spec.stride_t, :: spec.stride, :: spec.stride]
    return np.einsum("thwcijk,ocijk->thwo", windows, w.astype(np.float64))


CONV3D = [
    Conv3d(),
    Conv3d(stride_t=2, stride=2, pad_before=0),
    Conv3d(stride_t=1, stride=2, pad_before=0),
    Conv3d(kernel_t=1, kernel=1, pad_before=0, pad_after=0, history=0),
]


@pytest.mark.parametrize("spec", CONV3D)
@pytest.mark.parametrize("frames", [1, 5])
def test_conv3d_reflects_space_and_starts_with_zero_frames(spec, frames):
    x, w = normal(frames, 4, 7, 5), normal(3, 5, spec.kernel_t, spec.kernel, spec.kernel, seed=1)
    bias, zeros = normal(3, seed=2), np.zeros((spec.history, 4, 7, 5), dtype=np.float32)
    expected = plain_conv3d(np.concatenate((zeros, x)), w, spec) + bias
    close(B.conv3d(put(x), B.conv_weight(w), put(bias), spec), expected)


def test_conv3d_past_frames_continue_a_longer_clip():
    x, w = normal(6, 4, 7, 5), B.conv_weight(normal(3, 5, 3, 3, 3, seed=1))
    whole = B.to_numpy(B.conv3d(put(x), w, None, Conv3d()))
    close(B.conv3d(put(x[4:]), w, None, Conv3d(), past=put(x[2:4])), whole[4:])


def test_group_norm_silu_uses_statistics_of_each_frame():
    x = normal(3, 4, 5, 6) * np.array([1, 10, 0.1], dtype=np.float32)[:, None, None, None]
    w, bias = normal(6, seed=1), normal(6, seed=2)
    grouped = x.astype(np.float64).reshape(3, 4, 5, 2, 3)
    centred = grouped - grouped.mean(axis=(1, 2, 4), keepdims=True)
    normed = centred / np.sqrt((centred**2).mean(axis=(1, 2, 4), keepdims=True) + 1e-6)
    y = normed.reshape(x.shape) * w + bias
    close(B.group_norm_silu(put(x), put(w), put(bias), groups=2, eps=1e-6), y * sigmoid(y))


def test_snake():
    x, alpha = 3 * normal(11, 5), np.array([0.01, 0.5, 1, 2, 30], dtype=np.float32)
    expected = x + np.sin(alpha.astype(np.float64) * x) ** 2 / (alpha.astype(np.float64) + 1e-9)
    close(B.snake(put(x), put(alpha)), expected)


@pytest.mark.parametrize("length", [1, 2, 23])
def test_anti_aliased_snake_is_two_six_tap_filters_and_a_decimation(length):
    x, log_alpha, log_beta = normal(length, 4), normal(4, seed=1) / 2, normal(4, seed=2) / 2
    half = np.array([0.002, 0.009, -0.025, -0.058, 0.13, 0.442], dtype=np.float32)
    taps = np.concatenate((half, half[::-1] * np.float32(1.01)))  # not symmetric: a mirrored filter must fail
    f, last = taps.astype(np.float64), length - 1
    up = np.zeros((2 * length, 4))
    for m in range(length):
        up[2 * m] = sum(2 * f[5 - 2 * i] * x[np.clip(m + i, 0, last)] for i in range(-3, 3))
        up[2 * m + 1] = sum(2 * f[6 - 2 * i] * x[np.clip(m + i, 0, last)] for i in range(-2, 4))
    up += np.sin(np.exp(log_alpha.astype(np.float64)) * up) ** 2 / (np.exp(log_beta.astype(np.float64)) + 1e-9)
    expected = np.array(
        [sum(f[k] * up[np.clip(2 * m + k - 5, 0, 2 * last + 1)] for k in range(12)) for m in range(length)]
    )
    close(B.anti_aliased_snake(put(x), put(log_alpha), put(log_beta), put(taps)), expected)


# ---- cancelling

X, LAYOUT = put(normal(6, 6)), HeadLayout(heads=1, kv_heads=1, head_dim=2)
TABLE = Modulation(put(normal(1, 3, 6)), put(np.zeros(6, dtype=np.int32)))
ONES, FRAMES = put(np.ones(6, dtype=np.float32)), put(normal(1, 3, 3, 6))
SQUARE = Matrix.from_float32("w", normal(6, 6))
OPERATIONS = {
    "concat_rows": lambda b: b.concat_rows([X, X]),
    "take_rows": lambda b: b.take_rows(X, TABLE.row_index),
    "embedding": lambda b: b.embedding(TABLE.row_index, SQUARE),
    "linear": lambda b: b.linear(X, SQUARE),
    "attention": lambda b: b.attention(X, LAYOUT),
    "rms_norm": lambda b: b.rms_norm(X, None, 1e-6),
    "layer_norm": lambda b: b.layer_norm(X, ONES, ONES, 1e-6),
    "norm_modulate": lambda b: b.norm_modulate(X, ONES, 1e-6, TABLE, shift_slot=0, scale_slot=1),
    "gated_residual": lambda b: b.gated_residual(X.clone(), X, TABLE, gate_slot=2),
    "gated_residual_norm": lambda b: b.gated_residual_norm(
        X.clone(), X, TABLE, gate_slot=2,
        norm=NextNorm(weight=ONES, eps=1e-6, table=TABLE.table, shift_slot=0, scale_slot=1),
    ),
    "scaled_residual": lambda b: b.scaled_residual(X.clone(), X),
    "qk_norm_rope": lambda b: b.qk_norm_rope(
        X.clone(), LAYOUT, q_weight=None, k_weight=None, eps=1e-6, cos=None, sin=None
    ),
    "conv1d": lambda b: b.conv1d(X, put(normal(2, 6, 1)), None, Conv1d(kernel=1)),
    "conv_transpose1d": lambda b: b.conv_transpose1d(X, put(normal(6, 2, 1)), None, stride=1, padding=0),
    "conv3d": lambda b: b.conv3d(FRAMES, put(normal(2, 6, 3, 3, 3)), None, Conv3d()),
    "group_norm_silu": lambda b: b.group_norm_silu(FRAMES, ONES, ONES, groups=2, eps=1e-6),
    "snake": lambda b: b.snake(X, ONES),
    "anti_aliased_snake": lambda b: b.anti_aliased_snake(X, ONES, ONES, put(normal(12))),
}


@pytest.mark.parametrize("name", OPERATIONS)
def test_a_set_flag_stops_every_operation_and_a_cleared_one_none(name):
    flag = CancelFlag()
    backend = ReferenceBackend(flag)
    flag.set()
    with pytest.raises(Cancelled):
        OPERATIONS[name](backend)
    flag.clear()
    assert OPERATIONS[name](backend).shape[0] >= 1
