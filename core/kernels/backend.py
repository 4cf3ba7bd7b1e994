"""The interface the forward passes are written against.

A backend owns its arrays (NumPy for `native`, torch for `reference`; later MLX and torch devices); the model code never
does arithmetic on them, it only calls these operations and reads `.shape`. All activations are float32, row-major:
`[rows, channels]` for token sequences, `[time, channels]` for sound, `[frames, height, width, channels]` for pictures.

An operation given `out` writes there and returns it (a fresh array of `empty`, or a row view of one); without `out` it
allocates. Every operation polls `cancel` at least once per call, long ones between tiles, and raises `Cancelled`.
Results do not depend on the number of threads.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Protocol

import numpy as np

from core.errors import Cancelled
from core.kernels.matrix import Matrix

Array = Any  # owned by the backend that made it; has `.shape`
Weight = Any  # a Matrix as the backend wants it (the native backend keeps the Matrix itself)


class CancelFlag:
    """A stop flag that Python sets from any thread and kernels poll: one int32 cell at a stable address."""

    def __init__(self):
        self.cell = np.zeros(1, dtype=np.int32)

    def set(self) -> None:
        self.cell[0] = 1

    def clear(self) -> None:
        self.cell[0] = 0

    def is_set(self) -> bool:
        return bool(self.cell[0])

    def check(self) -> None:
        """Raise `Cancelled` when the flag is set."""
        if self.cell[0]:
            raise Cancelled()


class Accuracy(Enum):
    """How a product is computed. A backend without a faster way may compute any mode as a more exact one."""

    FLOAT = "float"  # float32 products of exactly expanded weights
    NEAR = "near"  # activations as 16-bit integers with one scale per 256 (two int8 terms): relative error <= 1e-4
    EXACT = "exact"  # activations int8 with one scale per 256, weights at the file's own scales
    FAST = "fast"  # as EXACT, and weights requantised to int8 with one scale per 256 where that is faster


class KvFormat(Enum):
    """How attention keeps keys and values while it runs."""

    F32 = "f32"
    BF16 = "bf16"
    INT8 = "int8"  # keys smoothed: their mean over the sequence is taken off first, which changes no softmax
    INT4 = "int4"


class Activation(Enum):
    """Epilogue of `linear`, applied after the bias."""

    NONE = "none"
    SILU = "silu"
    GELU_TANH = "gelu_tanh"
    SWIGLU = "swiglu"  # weight rows are [gate; value]; result [m, n/2] = silu(gate) * value


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadLayout:
    """How a packed row `[q heads | k heads | v heads]` is split; width = (heads + 2 kv_heads) * head_dim."""

    heads: int
    kv_heads: int
    head_dim: int

    @property
    def width(self) -> int:
        return (self.heads + 2 * self.kv_heads) * self.head_dim


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """Approximate attention for long clips.

    Rows from `start` on are frames of `rows_per_frame` rows; such a row sees all rows before `start` and the frames at
    most `radius` away from its own. Rows before `start` see everything.
    """

    start: int
    rows_per_frame: int
    radius: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionMode:
    """Accuracy of the two products of attention, storage of keys and values, and the window if there is one."""

    accuracy: Accuracy = Accuracy.FLOAT
    kv: KvFormat = KvFormat.F32
    window: Window | None = None


FLOAT_ATTENTION = AttentionMode()


@dataclass(frozen=True, slots=True)
class Modulation:
    """Per-row AdaLN: row r uses `table[row_index[r]]`. table: [entries, slots, channels]; row_index: int32 [rows]."""

    table: Array
    row_index: Array


@dataclass(frozen=True, slots=True, kw_only=True)
class NextNorm:
    """The modulated norm behind a gated residual. table: shaped like the gate's, indexed by the same rows."""

    weight: Array
    eps: float
    table: Array
    shift_slot: int
    scale_slot: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Conv1d:
    """1-D convolution geometry, zero padding. Weight [out, in, kernel] as in the file."""

    kernel: int
    stride: int = 1
    dilation: int = 1
    pad_left: int = 0
    pad_right: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Conv3d:
    """Causal 3-D convolution: `pad_*` reflect-pad height and width, `history` zero frames come first in time.

    Weight [out, in, kernel_t, kernel, kernel] as in the file.
    """

    kernel_t: int = 3
    kernel: int = 3
    stride_t: int = 1
    stride: int = 1
    pad_before: int = 1  # top and left
    pad_after: int = 1  # bottom and right
    history: int = 2


class Backend(Protocol):
    """One execution of the maths on one device. Not thread-safe: one backend per job."""

    name: str
    cancel: CancelFlag

    # ---- arrays and weights
    def from_numpy(self, values: np.ndarray) -> Array:
        """Backend array of a float32 or int32 NumPy array (may alias it)."""

    def to_numpy(self, array: Array) -> np.ndarray:
        """float32 or int32 NumPy array of a backend array (may alias it)."""

    def empty(self, shape: Sequence[int]) -> Array:
        """Uninitialised float32 array."""

    def reshape(self, array: Array, shape: Sequence[int]) -> Array:
        """The same elements in another shape, without a copy."""

    def row_slice(self, array: Array, start: int, stop: int) -> Array:
        """Rows start..stop of the first axis, as a view."""

    def weight(self, matrix: Matrix) -> Weight:
        """A matrix as this backend wants it."""

    def conv_weight(self, values: np.ndarray, *, transposed: bool = False) -> Weight:
        """Convolution weight in file order [out, in, *kernel] ([in, out, kernel] if transposed), repacked once."""

    # ---- rows
    def concat_rows(self, arrays: Sequence[Array]) -> Array:
        """Arrays of equal trailing shape, one below the other."""

    def take_rows(self, x: Array, index: Array) -> Array:
        """out[i] = x[index[i]] along the first axis. index: int32."""

    def embedding(self, ids: Array, table: Weight) -> Array:
        """Dequantised rows of `table`: ids int32 [rows] -> [rows, columns]."""

    # ---- products
    def product_input(self, rows: int, weight: Weight, accuracy: Accuracy, memory: Array) -> Array:
        """`out` of a SWIGLU whose result is the input [rows, weight.columns] of a `linear` with `weight`, `accuracy`.

        It is in the packed form which that product wants if there is one, else float32, and lies in `memory` (float32,
        at least rows * columns elements) if it fits there.
        """

    def linear(
        self, x: Array, weight: Weight, *, bias: Array | None = None, activation: Activation = Activation.NONE,
        accuracy: Accuracy = Accuracy.FLOAT, out: Array | None = None,
    ) -> Array:  # fmt: skip
        """activation(x w^T + bias). x [m, k], weight [n, k], bias [n] -> [m, n] ([m, n/2] for SWIGLU)."""

    def attention(
        self, qkv: Array, layout: HeadLayout, *, causal: bool = False,
        mode: AttentionMode = FLOAT_ATTENTION, out: Array | None = None,
    ) -> Array:  # fmt: skip
        """softmax(q k^T / sqrt(head_dim)) v over packed qkv [rows, layout.width] -> [rows, heads * head_dim]."""

    # ---- norms and element-wise
    def rms_norm(self, x: Array, weight: Array | None, eps: float, *, out: Array | None = None) -> Array:
        """x * rsqrt(mean(x^2) + eps) * weight over the last axis."""

    def layer_norm(self, x: Array, weight: Array, bias: Array, eps: float, *, out: Array | None = None) -> Array:
        """(x - mean) * rsqrt(var + eps) * weight + bias over the last axis."""

    def norm_modulate(
        self, x: Array, weight: Array, eps: float, modulation: Modulation, *, shift_slot: int, scale_slot: int,
        out: Array | None = None,
    ) -> Array:  # fmt: skip
        """rms_norm(x, weight) * (1 + scale) + shift, shift and scale from the row's table entry."""

    def gated_residual(self, h: Array, y: Array, modulation: Modulation, *, gate_slot: int) -> Array:
        """h += gate * y in place; returns h."""

    def gated_residual_norm(
        self, h: Array, y: Array, modulation: Modulation, *, gate_slot: int, norm: NextNorm, out: Array | None = None
    ) -> Array:
        """`gated_residual`, then `norm_modulate` of the new h, whose result it returns; `out` may be y."""

    def scaled_residual(self, h: Array, y: Array, scale: Array | float = 1.0) -> Array:
        """h += scale * y in place, scale a per-channel vector [channels] or a number; returns h."""

    def qk_norm_rope(
        self, qkv: Array, layout: HeadLayout, *, q_weight: Array | None, k_weight: Array | None, eps: float,
        cos: Array | None, sin: Array | None,
    ) -> Array:  # fmt: skip
        """In place on packed qkv: per-head RMS norm of q and k (weights [head_dim] or none), then rotate-half RoPE.

        cos, sin: [rows, n]; pairs are (c, c + n) for c < n, channels 2n.. pass through. None: no rotation. Returns qkv.
        """

    # ---- convolution (channels last)
    def conv1d(self, x: Array, weight: Weight, bias: Array | None, spec: Conv1d) -> Array:
        """x [time, in] -> [time', out]."""

    def conv_transpose1d(self, x: Array, weight: Weight, bias: Array | None, *, stride: int, padding: int) -> Array:
        """x [time, in] -> [(time - 1) * stride - 2 * padding + kernel, out]."""

    def conv3d(self, x: Array, weight: Weight, bias: Array | None, spec: Conv3d, *, past: Array | None = None) -> Array:
        """x [frames, h, w, in] -> [frames', h', w', out]. `past` replaces the `history` zero frames (same h, w)."""

    def group_norm_silu(self, x: Array, weight: Array, bias: Array, *, groups: int, eps: float) -> Array:
        """silu(group_norm(x)) with statistics per frame. x [frames, h, w, channels]."""

    def snake(self, x: Array, alpha: Array) -> Array:
        """x + sin(alpha x)^2 / (alpha + 1e-9), alpha [channels], x [time, channels]."""

    def anti_aliased_snake(self, x: Array, log_alpha: Array, log_beta: Array, taps: Array) -> Array:
        """up2, u += sin(e^alpha u)^2 / (e^beta + 1e-9), down2, with the 12-tap filter `taps`."""
