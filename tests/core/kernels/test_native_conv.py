"""The native convolution family against the reference backend on awkward shapes.

Tier: executed reference (torch), itself held against float64 NumPy and diffusers. Both could share a wrong equation
only where those tests do too. Tolerance 5e-6 of the largest value, inputs scaled so that outputs are of order one:
both sides round float32 sums of up to 8100 terms in different orders.
"""

import numpy as np
import pytest

from core.errors import Cancelled, KernelError
from core.kernels.backend import CancelFlag, Conv1d, Conv3d
from core.kernels.native import NativeBackend
from core.kernels.native_conv import ConvWeight
from core.kernels.reference import ReferenceBackend

pytestmark = pytest.mark.native
TOLERANCE = 5e-6
REFERENCE = ReferenceBackend()


@pytest.fixture(scope="module")
def native() -> NativeBackend:
    return NativeBackend(threads=2)


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng([seed, *shape]).standard_normal(shape, dtype=np.float32)


def put(backend, value):
    return backend.from_numpy(value) if isinstance(value, np.ndarray) else value


def run(backend, operation: str, x, weight, *rest, transposed: bool = False, **named) -> np.ndarray:
    """A convolution with a weight in file order."""
    packed = backend.conv_weight(weight, transposed=transposed)
    rest = [put(backend, value) for value in rest]
    named = {name: put(backend, value) for name, value in named.items()}
    return backend.to_numpy(getattr(backend, operation)(put(backend, x), packed, *rest, **named))


def agree(native, operation: str, x, weight, *rest, **named) -> None:
    fan_in = weight.shape[0] if named.get("transposed") else weight.size // weight.shape[0]
    x = x / np.float32(np.sqrt(fan_in))
    got, expected = (run(backend, operation, x, weight, *rest, **named) for backend in (native, REFERENCE))
    assert got.shape == expected.shape and got.dtype == np.float32
    np.testing.assert_allclose(got, expected, rtol=0, atol=TOLERANCE * max(1.0, np.abs(expected).max()))


# time, in, out: single values, odd widths, more than a tile of rows, more than a chunk of terms and a tile of columns
SOUND_SHAPES = [(1, 1, 1), (7, 5, 3), (131, 17, 9), (9, 300, 130)]


@pytest.mark.parametrize("shape", SOUND_SHAPES)
@pytest.mark.parametrize("dilation", [1, 3, 9])
@pytest.mark.parametrize("kernel", [1, 2, 3, 7, 11])
def test_conv1d_agrees(native, kernel, dilation, shape):
    time, channels_in, channels_out = shape
    reach = (kernel - 1) * dilation
    x, bias = normal(time, channels_in), normal(channels_out, seed=2)
    weight = normal(channels_out, channels_in, kernel, seed=1)
    for stride in (1, 2, 5):
        spec = Conv1d(
            kernel=kernel, stride=stride, dilation=dilation, pad_left=reach // 2, pad_right=reach - reach // 2
        )
        agree(native, "conv1d", x, weight, bias, spec)


@pytest.mark.parametrize(("left", "right"), [(0, 0), (6, 0), (0, 6), (9, 1)])
def test_conv1d_pads_each_side_as_asked(native, left, right):
    spec = Conv1d(kernel=4, dilation=2, stride=3, pad_left=left, pad_right=right)
    agree(native, "conv1d", normal(10, 6), normal(5, 6, 4, seed=1), None, spec)


@pytest.mark.parametrize("shape", SOUND_SHAPES)
@pytest.mark.parametrize("kernel", [1, 2, 4, 9, 11])
def test_conv_transpose1d_agrees(native, kernel, shape):
    time, channels_in, channels_out = shape
    x, bias = normal(time, channels_in), normal(channels_out, seed=2)
    weight = normal(channels_in, channels_out, kernel, seed=1)
    for stride in (1, 2, 5, 7):
        for padding in (0, 1, 3):
            if (time - 1) * stride - 2 * padding + kernel >= 1:
                named = {"stride": stride, "padding": padding, "transposed": True}
                agree(native, "conv_transpose1d", x, weight, bias, **named)


VIDEO_SPECS = {
    "plain": Conv3d(),
    "downsample": Conv3d(stride_t=2, stride=2, pad_before=0),
    "spatial downsample": Conv3d(stride=2, pad_before=0),
    "pointwise": Conv3d(kernel_t=1, kernel=1, pad_before=0, pad_after=0, history=0),
    "wide": Conv3d(kernel_t=2, kernel=5, pad_before=1, pad_after=1, history=1),
}


@pytest.mark.parametrize(("height", "width"), [(3, 4), (4, 33), (33, 5), (16, 16)])
@pytest.mark.parametrize("name", VIDEO_SPECS)
def test_conv3d_agrees_with_and_without_past(native, name, height, width):
    spec = VIDEO_SPECS[name]
    for frames, channels_in, channels_out in ((1, 3, 16), (4, 5, 7)):
        kernel = (spec.kernel_t, spec.kernel, spec.kernel)
        x, bias = normal(frames, height, width, channels_in), normal(channels_out, seed=2)
        weight = normal(channels_out, channels_in, *kernel, seed=1)
        agree(native, "conv3d", x, weight, bias, spec)
        if spec.history:
            past = normal(spec.history, height, width, channels_in, seed=3)
            agree(native, "conv3d", x, weight, bias, spec, past=past)


def test_conv3d_agrees_on_the_smallest_reflectable_picture_and_on_many_channels(native):
    agree(native, "conv3d", normal(2, 2, 2, 3), normal(4, 3, 3, 3, 3, seed=1), None, Conv3d())
    agree(native, "conv3d", normal(1, 3, 2, 300), normal(131, 300, 3, 3, 3, seed=1), normal(131, seed=2), Conv3d())


@pytest.mark.parametrize(("frames", "height", "width", "channels", "groups"), [
    (1, 1, 1, 4, 2), (3, 7, 5, 12, 3), (2, 2, 33, 7, 1), (2, 3, 3, 64, 32), (1, 67, 65, 6, 6),
])  # fmt: skip
def test_group_norm_silu_agrees(native, frames, height, width, channels, groups):
    x = 3 * normal(frames, height, width, channels) + 2
    weight, bias = normal(channels, seed=1), normal(channels, seed=2)
    got, expected = (
        b.to_numpy(b.group_norm_silu(*(b.from_numpy(v) for v in (x, weight, bias)), groups=groups, eps=1e-6))
        for b in (native, REFERENCE)
    )
    np.testing.assert_allclose(got, expected, rtol=0, atol=TOLERANCE * max(1.0, np.abs(expected).max()))


def snakes(backend, x, log_alpha, log_beta, taps) -> tuple[np.ndarray, np.ndarray]:
    x, log_alpha, log_beta, taps, alpha = (
        backend.from_numpy(v) for v in (x, log_alpha, log_beta, taps, np.exp(log_alpha))
    )
    return backend.to_numpy(backend.anti_aliased_snake(x, log_alpha, log_beta, taps)), backend.to_numpy(
        backend.snake(x, alpha)
    )


@pytest.mark.parametrize(("time", "channels"), [(1, 1), (2, 3), (3, 200), (33, 7), (129, 64), (2100, 4)])
def test_snakes_agree(native, time, channels):
    arguments = 3 * normal(time, channels), normal(channels, seed=1), normal(channels, seed=2), normal(12) / 4
    for got, expected in zip(snakes(native, *arguments), snakes(REFERENCE, *arguments), strict=True):
        np.testing.assert_allclose(got, expected, rtol=0, atol=TOLERANCE * max(1.0, np.abs(expected).max()))


def test_snake_of_huge_arguments_agrees(native):
    x = np.float32([[1e7, -3.1e6], [2.9e6, 1e20], [0, -0.0]])
    alpha = np.ones(2, dtype=np.float32)
    got = native.snake(x, alpha) - x
    expected = REFERENCE.to_numpy(REFERENCE.snake(REFERENCE.from_numpy(x), REFERENCE.from_numpy(alpha))) - x
    np.testing.assert_array_equal(got, expected)


# ---- not a number, threads, cancelling, refusals


def family(backend) -> dict:
    """Every operation on an input x [time, 6] or [frames, 4, 5, 6] of more than one tile."""
    sound, video = normal(700, 6), normal(7, 12, 17, 6)
    plain, transposed = normal(9, 6, 5, seed=1), normal(6, 9, 5, seed=1)
    picture, vector = normal(9, 6, 3, 3, 3, seed=1), normal(6, seed=1)
    spec = Conv1d(kernel=5, pad_left=2, pad_right=2)
    return {
        "conv1d": (sound, lambda x: backend.conv1d(x, backend.conv_weight(plain), None, spec)),
        "conv_transpose1d": (sound, lambda x: backend.conv_transpose1d(
            x, backend.conv_weight(transposed, transposed=True), None, stride=3, padding=1)),
        "conv3d": (video, lambda x: backend.conv3d(x, backend.conv_weight(picture), None, Conv3d())),
        "group_norm_silu": (video, lambda x: backend.group_norm_silu(x, vector, vector, groups=2, eps=1e-6)),
        "snake": (sound, lambda x: backend.snake(x, vector)),
        "anti_aliased_snake": (sound, lambda x: backend.anti_aliased_snake(x, vector, vector, normal(12))),
    }  # fmt: skip


NAMES = sorted(family(REFERENCE))


@pytest.mark.parametrize("name", NAMES)
def test_every_number_of_threads_gives_the_same_bits(name):
    results = []
    for threads in (1, 2, 4):
        x, operation = family(NativeBackend(threads=threads))[name]
        results.append(operation(x))
    assert np.isfinite(results[0]).all()
    assert all(np.array_equal(results[0].view(np.uint32), other.view(np.uint32)) for other in results[1:])


@pytest.mark.parametrize("name", NAMES)
def test_nan_reaches_what_depends_on_it_and_nothing_else(native, name):
    x, operation = family(native)[name]
    clean = operation(x)
    spoiled = x.copy()
    spoiled[5].reshape(-1)[2] = np.nan
    got = operation(spoiled)
    torch_x, torch_operation = family(_TorchAdapter())[name]
    expected = np.isnan(torch_operation(np.where(np.isnan(spoiled), np.nan, torch_x)))
    assert expected.any() and not expected.all()
    assert np.array_equal(np.isnan(got), expected)
    assert np.array_equal(got[~expected], clean[~expected])


class _TorchAdapter:
    """The reference backend with NumPy arrays on both sides."""

    def __getattr__(self, name):
        def call(*args, **named):
            if name == "conv_weight":
                return REFERENCE.conv_weight(*args, **named)
            return REFERENCE.to_numpy(getattr(REFERENCE, name)(*(put(REFERENCE, a) for a in args), **named))

        return call


@pytest.mark.parametrize("name", NAMES)
def test_a_set_flag_stops_the_operation_and_a_cleared_one_does_not(name):
    flag = CancelFlag()
    x, operation = family(NativeBackend(threads=2, cancel=flag))[name]
    flag.set()
    with pytest.raises(Cancelled):
        operation(x)
    flag.clear()
    assert len(operation(x))


def test_a_weight_that_does_not_fit_is_refused(native):
    weight, transposed = (native.conv_weight(normal(4, 6, 3), transposed=t) for t in (False, True))
    x, spec = normal(8, 6), Conv1d(kernel=3)
    with pytest.raises(KernelError, match="5 channels"):
        native.conv1d(normal(8, 5), weight, None, spec)
    with pytest.raises(KernelError, match="does not fit kernel"):
        native.conv1d(x, weight, None, Conv1d(kernel=5))
    with pytest.raises(KernelError, match="ordinary"):
        native.conv1d(normal(8, 4), transposed, None, spec)
    with pytest.raises(KernelError, match="conv_weight"):
        native.conv1d(x, normal(4, 6, 3), None, spec)
    with pytest.raises(KernelError, match="bias"):
        native.conv1d(x, weight, normal(3), spec)


def test_a_kernel_wider_than_its_input_is_refused(native):
    with pytest.raises(KernelError, match="larger than its padded input by 2"):
        native.conv1d(normal(3, 6), native.conv_weight(normal(4, 6, 5)), None, Conv1d(kernel=5))
    with pytest.raises(KernelError, match="leaves no row"):
        weight = native.conv_weight(normal(6, 4, 3), transposed=True)
        native.conv_transpose1d(normal(1, 6), weight, None, stride=1, padding=2)
    with pytest.raises(KernelError, match="bad argument"):  # one row cannot be mirrored
        native.conv3d(normal(1, 1, 4, 6), native.conv_weight(normal(4, 6, 3, 3, 3)), None, Conv3d())


def test_a_transposed_weight_is_packed_once_per_stride():
    weight = ConvWeight(normal(6, 4, 3), transposed=True)
    first = weight.panels(2)
    assert weight.panels(2) is first and weight.panels(3) is not first
