"""The convolution family of the native backend: weights packed for the kernels, shapes worked out, calls made.

The trap: the kernels read panels of eight output channels without a length, so a weight that does not fit the input
must be refused here. Proof: tests/core/kernels/test_native_conv.py, against the reference backend.
"""

from math import prod
from typing import Any

import numpy as np

from core.errors import KernelError
from core.kernels import sizes
from core.kernels.backend import Conv1d, Conv3d

PANEL_CHANNELS = 8  # output channels per panel; H3K_PANEL of the library


class ConvWeight:
    """A convolution weight ready for the kernels.

    values:     file order [out, in, *kernel], or [in, out, kernel] when `transposed`
    A transposed weight is packed per stride (its taps fall into `stride` phases), at its first use.
    """

    def __init__(self, values: np.ndarray, *, transposed: bool = False):
        if values.dtype != np.float32 or values.ndim < 3:
            raise KernelError(f"A convolution weight is float32 [out, in, *kernel], got {values.dtype} {values.shape}.")
        by_output = values.swapaxes(0, 1) if transposed else values
        self.transposed = transposed
        self.channels_out, self.channels_in = by_output.shape[:2]
        self.kernel = values.shape[2:]
        self._by_output = by_output
        self._packed: dict[int, np.ndarray] = {}

    def panels(self, stride: int = 1) -> np.ndarray:
        """Panels as float32 [floats]; `stride` matters to a transposed weight only."""
        if stride not in self._packed:
            if self.transposed:  # descending taps of each phase read ascending source rows
                phases = [self._by_output[:, :, phase::stride][:, :, ::-1] for phase in range(stride)]
                self._packed[stride] = np.concatenate([_pack(phase) for phase in phases])
            else:
                self._packed[stride] = _pack(self._by_output)
        return self._packed[stride]


def _pack(values: np.ndarray) -> np.ndarray:
    """[out, in, *kernel] to panels [ceil(out / 8), taps, in, 8], zeros where there is no output channel; flat."""
    channels_out, channels_in = values.shape[:2]
    terms = values.reshape(channels_out, channels_in, prod(values.shape[2:])).transpose(2, 1, 0)
    panels = np.zeros((-(-channels_out // PANEL_CHANNELS), *terms.shape[:2], PANEL_CHANNELS), dtype=np.float32)
    for index, panel in enumerate(panels):
        part = terms[:, :, index * PANEL_CHANNELS : (index + 1) * PANEL_CHANNELS]
        panel[:, :, : part.shape[2]] = part
    return panels.reshape(-1)


class NativeConvolution:
    """Mixin of the native backend, which gives `empty`, `threads` and `run`."""

    def conv_weight(self, values: np.ndarray, *, transposed: bool = False) -> ConvWeight:
        return ConvWeight(values, transposed=transposed)

    def conv1d(self, x: np.ndarray, weight: ConvWeight, bias: np.ndarray | None, spec: Conv1d) -> np.ndarray:
        _check_weight(weight, x, (spec.kernel,), transposed=False)
        reach = x.shape[0] + spec.pad_left + spec.pad_right - spec.dilation * (spec.kernel - 1)
        y = self.empty((_positions(reach, spec.stride), weight.channels_out))
        numbers = {"out": weight.channels_out, "kernel": spec.kernel, "stride": spec.stride, "dilation": spec.dilation}
        numbers |= {"pad_left": spec.pad_left, "pad_right": spec.pad_right}
        self._run_conv("h3k_conv1d", {"x": x, "panels": weight.panels(), "bias": bias, "y": y}, numbers)
        return y

    def conv_transpose1d(
        self, x: np.ndarray, weight: ConvWeight, bias: np.ndarray | None, *, stride: int, padding: int
    ) -> np.ndarray:
        _check_weight(weight, x, weight.kernel[:1], transposed=True)
        time = (x.shape[0] - 1) * stride - 2 * padding + weight.kernel[0]
        if time < 1:
            raise KernelError(f"A transposed convolution of {x.shape[0]} rows with padding {padding} leaves no row.")
        y = self.empty((time, weight.channels_out))
        numbers = {"out": weight.channels_out, "kernel": weight.kernel[0], "stride": stride, "padding": padding}
        arrays = {"x": x, "panels": weight.panels(stride), "bias": bias, "y": y}
        self._run_conv("h3k_conv_transpose1d", arrays, numbers)
        return y

    def conv3d(
        self, x: np.ndarray, weight: ConvWeight, bias: np.ndarray | None, spec: Conv3d, *,
        past: np.ndarray | None = None,
    ) -> np.ndarray:  # fmt: skip
        _check_weight(weight, x, (spec.kernel_t, spec.kernel, spec.kernel), transposed=False)
        frames, height, width = x.shape[:3]
        margin = spec.pad_before + spec.pad_after - (spec.kernel - 1)
        shape = (
            _positions(frames + spec.history - (spec.kernel_t - 1), spec.stride_t),
            _positions(height + margin, spec.stride),
            _positions(width + margin, spec.stride),
            weight.channels_out,
        )
        y = self.empty(shape)
        numbers = {"kernel_t": spec.kernel_t, "kernel": spec.kernel, "stride_t": spec.stride_t, "stride": spec.stride}
        numbers |= {"pad_before": spec.pad_before, "pad_after": spec.pad_after, "history": spec.history}
        numbers["out"] = weight.channels_out
        arrays = {"x": x, "past": past, "panels": weight.panels(), "bias": bias, "y": y}
        self._run_conv("h3k_conv3d", arrays, numbers)
        return y

    def group_norm_silu(
        self, x: np.ndarray, weight: np.ndarray, bias: np.ndarray, *, groups: int, eps: float
    ) -> np.ndarray:
        frames, height, width, channels = x.shape
        y = self.empty(x.shape)
        flat = (frames, height * width, channels)
        arrays = {"x": x.reshape(flat), "weight": weight, "bias": bias, "y": y.reshape(flat)}
        scratch_bytes = sizes.group_norm_scratch_bytes(*flat)
        self.run("h3k_group_norm_silu", arrays, {"groups": groups, "eps": eps}, scratch_bytes=scratch_bytes)
        return y

    def snake(self, x: np.ndarray, alpha: np.ndarray) -> np.ndarray:
        return self._run_snake("h3k_snake", {"x": x, "alpha": alpha})

    def anti_aliased_snake(
        self, x: np.ndarray, log_alpha: np.ndarray, log_beta: np.ndarray, taps: np.ndarray
    ) -> np.ndarray:
        arrays = {"x": x, "log_alpha": log_alpha, "log_beta": log_beta, "taps": taps}
        return self._run_snake("h3k_anti_aliased_snake", arrays)

    def _run_conv(self, symbol: str, arrays: dict[str, Any], numbers: dict[str, int]) -> None:
        self.run(symbol, arrays, numbers, scratch_bytes=sizes.conv_scratch_bytes(self.threads))

    def _run_snake(self, symbol: str, arrays: dict[str, Any]) -> np.ndarray:
        y = self.empty(arrays["x"].shape)
        scratch_bytes = sizes.snake_scratch_bytes(y.shape[-1], self.threads)
        self.run(symbol, arrays | {"y": y}, {}, scratch_bytes=scratch_bytes)
        return y


def _positions(reach: int, stride: int) -> int:
    """Output positions when `reach` first taps fit."""
    if reach < 1:
        raise KernelError(f"The kernel of a convolution is larger than its padded input by {1 - reach}.")
    return (reach - 1) // stride + 1


def _check_weight(weight: ConvWeight, x: np.ndarray, kernel: tuple[int, ...], *, transposed: bool) -> None:
    if not isinstance(weight, ConvWeight):
        raise KernelError(f"A convolution takes a weight made by conv_weight, got {type(weight).__name__}.")
    if weight.transposed != transposed or weight.kernel != kernel or weight.channels_in != x.shape[-1]:
        raise KernelError(
            f"A {'transposed ' if weight.transposed else ''}convolution weight of kernel {weight.kernel} and "
            f"{weight.channels_in} input channels does not fit kernel {kernel}, {x.shape[-1]} channels and "
            f"{'a transposed' if transposed else 'an ordinary'} convolution."
        )
