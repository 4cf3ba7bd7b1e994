"""The backend in torch on the CPU, float32: the oracle of the native kernels and the fallback without them.

Each operation uses the torch functions of the diffusers MiniMax-H3 classes in the same order and memory layout, so
that a forward pass written against the backend reproduces diffusers to the last bit where the products have the same
shapes. The trap is layout: convolutions and their activations run on contiguous channels-first tensors, because torch
picks other kernels for other strides. Proof: tests/core/kernels/test_reference.py, float64 NumPy for every operation.
"""

import warnings
from collections.abc import Sequence

import numpy as np
import torch
import torch.nn.functional as F

from core.errors import KernelError
from core.kernels.backend import (
    FLOAT_ATTENTION,
    Accuracy,
    Activation,
    AttentionMode,
    CancelFlag,
    Conv1d,
    Conv3d,
    HeadLayout,
    Modulation,
    NextNorm,
    Window,
)
from core.kernels.matrix import Matrix
from core.kernels.reference_dequant import expand, expand_rows
from core.kernels.reference_schemes import transform

Tensor = torch.Tensor


class ReferenceBackend:
    """`Backend` in torch. Arrays are CPU tensors, float32 or int32; a weight is its Matrix, expanded at every use."""

    name = "reference"

    def __init__(self, cancel: CancelFlag | None = None, threads: int | None = None):
        """threads: for all of torch in this process, which knows no other way; None leaves torch alone"""
        self.cancel = cancel or CancelFlag()
        if threads is not None:
            torch.set_num_threads(threads)

    # ---- arrays and weights
    def from_numpy(self, values: np.ndarray) -> Tensor:
        if values.dtype not in (np.float32, np.int32):
            raise KernelError(f"Backend arrays are float32 or int32, got {values.dtype}.")
        return _tensor(values)

    def to_numpy(self, array: Tensor) -> np.ndarray:
        return array.numpy()

    def empty(self, shape: Sequence[int]) -> Tensor:
        return torch.empty(tuple(shape), dtype=torch.float32)

    def reshape(self, array: Tensor, shape: Sequence[int]) -> Tensor:
        return array.view(tuple(shape))

    def row_slice(self, array: Tensor, start: int, stop: int) -> Tensor:
        return array[start:stop]

    def weight(self, matrix: Matrix) -> Matrix:
        return matrix

    def conv_weight(self, values: np.ndarray, *, transposed: bool = False) -> Tensor:
        """The weight as it is: torch takes file order for both kinds of convolution."""
        return self.from_numpy(values)

    # ---- rows
    def concat_rows(self, arrays: Sequence[Tensor]) -> Tensor:
        self.cancel.check()
        return torch.cat(tuple(arrays), dim=0)

    def take_rows(self, x: Tensor, index: Tensor) -> Tensor:
        self.cancel.check()
        return x.index_select(0, index)

    def embedding(self, ids: Tensor, table: Matrix) -> Tensor:
        self.cancel.check()
        return _tensor(expand_rows(table, ids.numpy()))

    # ---- products
    def product_input(self, rows: int, weight: Matrix, accuracy: Accuracy, memory: Tensor) -> Tensor:
        return memory.reshape(-1)[: rows * weight.columns].reshape(rows, weight.columns)

    def linear(
        self, x: Tensor, weight: Matrix, *, bias: Tensor | None = None, activation: Activation = Activation.NONE,
        accuracy: Accuracy = Accuracy.FLOAT, out: Tensor | None = None,
    ) -> Tensor:  # fmt: skip
        self.cancel.check()
        if weight.is_transformed:
            x = _tensor(transform(weight, x.numpy()))
        y = F.linear(x, _tensor(expand(weight)), bias)
        return _deliver(_activate(y, activation), out)

    def attention(
        self, qkv: Tensor, layout: HeadLayout, *, causal: bool = False,
        mode: AttentionMode = FLOAT_ATTENTION, out: Tensor | None = None,
    ) -> Tensor:  # fmt: skip
        self.cancel.check()
        q, k, v = (part.permute(1, 0, 2).unsqueeze(0) for part in _split_heads(qkv, layout))
        grouped = layout.heads != layout.kv_heads
        mask = None if mode.window is None else _window_mask(len(qkv), mode.window)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=causal, enable_gqa=grouped)
        return _deliver(y.squeeze(0).permute(1, 0, 2).flatten(1), out)

    # ---- norms and element-wise
    def rms_norm(self, x: Tensor, weight: Tensor | None, eps: float, *, out: Tensor | None = None) -> Tensor:
        self.cancel.check()
        return _deliver(F.rms_norm(x, x.shape[-1:], weight, eps), out)

    def layer_norm(self, x: Tensor, weight: Tensor, bias: Tensor, eps: float, *, out: Tensor | None = None) -> Tensor:
        self.cancel.check()
        return _deliver(F.layer_norm(x, x.shape[-1:], weight, bias, eps), out)

    def norm_modulate(
        self, x: Tensor, weight: Tensor, eps: float, modulation: Modulation, *, shift_slot: int, scale_slot: int,
        out: Tensor | None = None,
    ) -> Tensor:  # fmt: skip
        self.cancel.check()
        normed = F.rms_norm(x, x.shape[-1:], weight, eps)
        shift, scale = _slot_rows(modulation, shift_slot), _slot_rows(modulation, scale_slot)
        return _deliver(normed * (1.0 + scale) + shift, out)

    def gated_residual(self, h: Tensor, y: Tensor, modulation: Modulation, *, gate_slot: int) -> Tensor:
        self.cancel.check()
        h += _slot_rows(modulation, gate_slot) * y
        return h

    def gated_residual_norm(
        self, h: Tensor, y: Tensor, modulation: Modulation, *, gate_slot: int, norm: NextNorm,
        out: Tensor | None = None,
    ) -> Tensor:  # fmt: skip
        self.gated_residual(h, y, modulation, gate_slot=gate_slot)
        following = Modulation(norm.table, modulation.row_index)
        slots = {"shift_slot": norm.shift_slot, "scale_slot": norm.scale_slot}
        return self.norm_modulate(h, norm.weight, norm.eps, following, **slots, out=out)

    def scaled_residual(self, h: Tensor, y: Tensor, scale: Tensor | float = 1.0) -> Tensor:
        self.cancel.check()
        h += y * scale
        return h

    def qk_norm_rope(
        self, qkv: Tensor, layout: HeadLayout, *, q_weight: Tensor | None, k_weight: Tensor | None, eps: float,
        cos: Tensor | None, sin: Tensor | None,
    ) -> Tensor:  # fmt: skip
        self.cancel.check()
        q, k, _ = _split_heads(qkv, layout)
        for part, weight in ((q, q_weight), (k, k_weight)):
            normed = F.rms_norm(part.contiguous(), part.shape[-1:], weight, eps)
            part.copy_(normed if cos is None else _rotate(normed, cos, sin))
        return qkv

    # ---- convolution (channels last outside, channels first inside)
    def conv1d(self, x: Tensor, weight: Tensor, bias: Tensor | None, spec: Conv1d) -> Tensor:
        self.cancel.check()
        x, padding = _channels_first(x), spec.pad_left
        if spec.pad_left != spec.pad_right:
            x, padding = F.pad(x, (spec.pad_left, spec.pad_right)), 0
        return _channels_last(F.conv1d(x, weight, bias, spec.stride, padding, spec.dilation))

    def conv_transpose1d(self, x: Tensor, weight: Tensor, bias: Tensor | None, *, stride: int, padding: int) -> Tensor:
        self.cancel.check()
        return _channels_last(F.conv_transpose1d(_channels_first(x), weight, bias, stride, padding))

    def conv3d(
        self, x: Tensor, weight: Tensor, bias: Tensor | None, spec: Conv3d, *, past: Tensor | None = None
    ) -> Tensor:
        self.cancel.check()
        if past is not None:
            x = torch.cat((past, x), dim=0)
        x = _channels_first(x)
        if spec.pad_before or spec.pad_after:
            x = F.pad(x, (spec.pad_before, spec.pad_after) * 2 + (0, 0), mode="reflect")
        if past is None and spec.history:
            x = F.pad(x, (0, 0, 0, 0, spec.history, 0))
        return _channels_last(F.conv3d(x, weight, bias, (spec.stride_t, spec.stride, spec.stride)))

    def group_norm_silu(self, x: Tensor, weight: Tensor, bias: Tensor, *, groups: int, eps: float) -> Tensor:
        self.cancel.check()
        frames_first = x.permute(0, 3, 1, 2).contiguous().unsqueeze(2)  # [frames, channels, 1, h, w]
        y = F.silu(F.group_norm(frames_first, groups, weight, bias, eps))
        return y.squeeze(2).permute(0, 2, 3, 1).contiguous()

    def snake(self, x: Tensor, alpha: Tensor) -> Tensor:
        self.cancel.check()
        alpha = alpha.view(1, -1, 1)
        return _channels_last(_add_sine(_channels_first(x), alpha, alpha))

    def anti_aliased_snake(self, x: Tensor, log_alpha: Tensor, log_beta: Tensor, taps: Tensor) -> Tensor:
        self.cancel.check()
        channels = x.shape[1]
        taps = taps.view(1, 1, 12).expand(channels, -1, -1)
        u = F.pad(_channels_first(x), (5, 5), mode="replicate")
        u = 2 * F.conv_transpose1d(u, taps, stride=2, groups=channels)
        u = u[..., 15:-15]
        u = _add_sine(u, torch.exp(log_alpha.view(1, -1, 1)), torch.exp(log_beta.view(1, -1, 1)))
        u = F.pad(u, (5, 6), mode="replicate")
        return _channels_last(F.conv1d(u, taps, stride=2, groups=channels))


def _tensor(values: np.ndarray) -> Tensor:
    """A tensor over the array. Mapped weights are read-only, which torch warns of and we respect."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        return torch.from_numpy(np.ascontiguousarray(values).reshape(values.shape))


def _deliver(y: Tensor, out: Tensor | None) -> Tensor:
    return y if out is None else out.copy_(y)


def _activate(y: Tensor, activation: Activation) -> Tensor:
    if activation is Activation.SILU:
        return F.silu(y)
    if activation is Activation.GELU_TANH:
        return F.gelu(y, approximate="tanh")
    if activation is Activation.SWIGLU:
        gate, value = y.chunk(2, dim=-1)
        return value * F.silu(gate)
    return y


def _window_mask(rows: int, window: Window) -> Tensor:
    """[rows, rows], true where a row (first axis) sees another."""
    row = torch.arange(rows)
    frame = torch.where(row < window.start, -1, (row - window.start) // window.rows_per_frame)
    outside = (frame[:, None] < 0) | (frame[None, :] < 0)
    return outside | ((frame[:, None] - frame[None, :]).abs() <= window.radius)


def _split_heads(qkv: Tensor, layout: HeadLayout) -> tuple[Tensor, Tensor, Tensor]:
    """Views [rows, heads, head_dim] of the q, k and v parts of a packed row."""
    counts = (layout.heads, layout.kv_heads, layout.kv_heads)
    parts = qkv.split([count * layout.head_dim for count in counts], dim=-1)
    return tuple(part.unflatten(-1, (count, layout.head_dim)) for part, count in zip(parts, counts, strict=True))


def _rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate-half RoPE on [rows, heads, head_dim]; cos, sin [rows, n] serve channels c and c + n."""
    cos, sin = (torch.cat((table, table), dim=-1).unsqueeze(1) for table in (cos, sin))
    width = cos.shape[-1]
    rotary, passed = x[..., :width], x[..., width:]
    first, second = rotary.chunk(2, dim=-1)
    rotated = rotary * cos + torch.cat((-second, first), dim=-1) * sin
    return torch.cat((rotated, passed), dim=-1)


def _slot_rows(modulation: Modulation, slot: int) -> Tensor:
    return modulation.table[:, slot].index_select(0, modulation.row_index)


def _channels_first(x: Tensor) -> Tensor:
    """[..., channels] to contiguous [1, channels, ...]."""
    return x.movedim(-1, 0).contiguous().unsqueeze(0)


def _channels_last(x: Tensor) -> Tensor:
    """[1, channels, ...] to contiguous [..., channels]."""
    return x.squeeze(0).movedim(0, -1).contiguous()


def _add_sine(x: Tensor, frequency: Tensor, magnitude: Tensor) -> Tensor:
    return x + (magnitude + 1e-9).reciprocal() * torch.sin(frequency * x).pow(2)
