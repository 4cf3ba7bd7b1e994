"""The native backend: the `Backend` operations over NumPy arrays, each one or a few calls of the C library.

Products with weights are in native_products.py, convolutions in native_conv.py.
Proof: tests/core/kernels/test_native_*.py, against float64 NumPy and the reference backend.
"""

from collections.abc import Sequence
from math import prod

import numpy as np

from core.errors import KernelError
from core.kernels import sizes
from core.kernels.backend import (
    FLOAT_ATTENTION,
    AttentionMode,
    CancelFlag,
    HeadLayout,
    KvFormat,
    Modulation,
    NextNorm,
    Window,
)
from core.kernels.bindings import CallContext, Library, Pool
from core.kernels.matrix import Matrix
from core.kernels.native_conv import NativeConvolution
from core.kernels.native_products import MODE_CODES, NativeProducts
from core.kernels.native_scratch import Scratch, aligned_empty
from core.kernels.threads import default_threads

KV_CODES = {kv: code for code, kv in enumerate(KvFormat)}  # h3k_kv_format


class NativeBackend(NativeProducts, NativeConvolution):
    """`Backend` over the C library. Arrays are NumPy, a weight is its Matrix. One per job; not thread-safe."""

    name = "native"

    def __init__(self, threads: int | None = None, cancel: CancelFlag | None = None, scratch: Scratch | None = None):
        self.library = Library()
        self.threads = default_threads() if threads is None else threads
        self.cancel = cancel or CancelFlag()
        self.scratch = scratch or Scratch()
        self._transformed = Scratch()  # the input of a product in the form that its weight expects
        self._packed = {}
        self._pool = Pool(self.library, self.threads)

    def run(self, symbol: str, arrays: dict, numbers: dict | None = None, *, scratch_bytes: int = 0) -> None:
        """Call one kernel with this backend's threads, stop flag and scratch."""
        scratch = self.scratch.take(scratch_bytes) if scratch_bytes else None
        context = CallContext(pool=self._pool, cancel_cell=self.cancel.cell, scratch=scratch)
        self.library.call(symbol, arrays, numbers or {}, context)

    # ---- arrays and weights
    def from_numpy(self, values: np.ndarray) -> np.ndarray:
        if values.dtype not in (np.float32, np.int32):
            raise KernelError(f"Backend arrays are float32 or int32, got {values.dtype}.")
        return np.require(values, requirements=["C", "A"])

    def to_numpy(self, array: np.ndarray) -> np.ndarray:
        return array

    def empty(self, shape: Sequence[int]) -> np.ndarray:
        return aligned_empty(shape)

    def reshape(self, array: np.ndarray, shape: Sequence[int]) -> np.ndarray:
        return array.reshape(tuple(shape), copy=False)

    def row_slice(self, array: np.ndarray, start: int, stop: int) -> np.ndarray:
        return array[start:stop]

    def weight(self, matrix: Matrix) -> Matrix:
        return matrix

    # ---- rows
    def concat_rows(self, arrays: Sequence[np.ndarray]) -> np.ndarray:
        self.cancel.check()
        rows = sum(len(array) for array in arrays)
        y = aligned_empty((rows, *arrays[0].shape[1:]), arrays[0].dtype)
        return np.concatenate(arrays, axis=0, out=y, casting="no")

    def take_rows(self, x: np.ndarray, index: np.ndarray) -> np.ndarray:
        y = aligned_empty((len(index), *x.shape[1:]), x.dtype)
        columns = prod(x.shape[1:])
        flat_x, flat_y = (a.view(np.float32).reshape(len(a), columns) for a in (x, y))
        self.run("h3k_take_rows", {"x": flat_x, "index": index, "y": flat_y})
        return y

    # ---- products
    def attention(
        self, qkv: np.ndarray, layout: HeadLayout, *, causal: bool = False,
        mode: AttentionMode = FLOAT_ATTENTION, out: np.ndarray | None = None,
    ) -> np.ndarray:  # fmt: skip
        y = self._output(out, (len(qkv), layout.heads * layout.head_dim))
        codes = {"mode": MODE_CODES[mode.accuracy], "kv": KV_CODES[mode.kv]}
        numbers = {"heads": layout.heads, "kv_heads": layout.kv_heads, "causal": int(causal), **codes}
        numbers |= _window_numbers(mode.window)
        arrays = {"qkv": _split_heads(qkv, layout), "y": y.reshape(len(qkv), layout.heads, layout.head_dim)}
        scratch_bytes = sizes.attention_scratch_bytes(len(qkv), layout.head_dim, self.threads, **codes)
        self.run("h3k_attention", arrays, numbers, scratch_bytes=scratch_bytes)
        return y

    # ---- norms and element-wise
    def rms_norm(
        self, x: np.ndarray, weight: np.ndarray | None, eps: float, *, out: np.ndarray | None = None
    ) -> np.ndarray:
        y = self._output(out, x.shape)
        self.run("h3k_rms_norm", {"x": _rows(x), "weight": weight, "y": _rows(y)}, {"eps": eps})
        return y

    def layer_norm(
        self, x: np.ndarray, weight: np.ndarray, bias: np.ndarray, eps: float, *, out: np.ndarray | None = None
    ) -> np.ndarray:
        y = self._output(out, x.shape)
        self.run("h3k_layer_norm", {"x": _rows(x), "weight": weight, "bias": bias, "y": _rows(y)}, {"eps": eps})
        return y

    def norm_modulate(
        self, x: np.ndarray, weight: np.ndarray, eps: float, modulation: Modulation, *, shift_slot: int,
        scale_slot: int, out: np.ndarray | None = None,
    ) -> np.ndarray:  # fmt: skip
        y = self._output(out, x.shape)
        arrays = {"x": x, "weight": weight, "table": modulation.table, "row_index": modulation.row_index, "y": y}
        numbers = {"eps": eps, "shift_slot": shift_slot, "scale_slot": scale_slot}
        self.run("h3k_norm_modulate", arrays, numbers)
        return y

    def gated_residual(self, h: np.ndarray, y: np.ndarray, modulation: Modulation, *, gate_slot: int) -> np.ndarray:
        arrays = {"h": h, "y": y, "table": modulation.table, "row_index": modulation.row_index}
        self.run("h3k_gated_residual", arrays, {"gate_slot": gate_slot})
        return h

    def gated_residual_norm(
        self, h: np.ndarray, y: np.ndarray, modulation: Modulation, *, gate_slot: int, norm: NextNorm,
        out: np.ndarray | None = None,
    ) -> np.ndarray:  # fmt: skip
        normed = self._output(out, h.shape)
        arrays = {"h": h, "y": y, "table": modulation.table, "row_index": modulation.row_index, "normed": normed}
        arrays |= {"weight": norm.weight, "norm_table": norm.table}
        numbers = {"eps": norm.eps, "shift_slot": norm.shift_slot, "scale_slot": norm.scale_slot}
        self.run("h3k_gated_residual_norm", arrays, numbers | {"gate_slot": gate_slot})
        return normed

    def scaled_residual(self, h: np.ndarray, y: np.ndarray, scale: np.ndarray | float = 1.0) -> np.ndarray:
        number = scale if isinstance(scale, int | float) else 0.0
        vector = None if isinstance(scale, int | float) else scale
        self.run("h3k_scaled_residual", {"h": _rows(h), "y": _rows(y), "scale_vector": vector}, {"scale": number})
        return h

    def qk_norm_rope(
        self, qkv: np.ndarray, layout: HeadLayout, *, q_weight: np.ndarray | None, k_weight: np.ndarray | None,
        eps: float, cos: np.ndarray | None, sin: np.ndarray | None,
    ) -> np.ndarray:  # fmt: skip
        arrays = {"qkv": _split_heads(qkv, layout), "q_weight": q_weight, "k_weight": k_weight}
        arrays |= {"cos": cos, "sin": sin}
        numbers = {"heads": layout.heads, "kv_heads": layout.kv_heads, "eps": eps}
        if cos is None and sin is None:
            numbers["half"] = 0
        self.run("h3k_qk_norm_rope", arrays, numbers)
        return qkv

    def _output(self, out: np.ndarray | None, shape: tuple[int, ...]) -> np.ndarray:
        if out is None:
            return aligned_empty(shape)
        if out.shape != tuple(shape):
            raise KernelError(f"out is {out.shape}, expected {tuple(shape)}.")
        if not out.flags.c_contiguous:
            raise KernelError(f"out has strides {out.strides}, expected C-contiguous.")
        return out


def _rows(array: np.ndarray) -> np.ndarray:
    """[..., channels] as [rows, channels], without a copy."""
    return array.reshape((prod(array.shape[:-1]), array.shape[-1]), copy=False)


def _window_numbers(window: Window | None) -> dict[str, int]:
    """Fields of the window; no rows per frame mean no window."""
    if window is None:
        return {"window_start": 0, "window_rows": 0, "window_radius": 0}
    if window.rows_per_frame < 1 or window.start < 0 or window.radius < 0:
        raise KernelError(f"{window}: expected rows_per_frame >= 1 and no negative number.")
    return {
        "window_start": window.start, "window_rows": window.rows_per_frame, "window_radius": window.radius,
    }  # fmt: skip


def _split_heads(qkv: np.ndarray, layout: HeadLayout) -> np.ndarray:
    if qkv.ndim != 2 or qkv.shape[1] != layout.width:
        raise KernelError(f"qkv is {qkv.shape}, expected [rows, {layout.width}].")
    heads = layout.heads + 2 * layout.kv_heads
    return qkv.reshape((len(qkv), heads, layout.head_dim), copy=False)
