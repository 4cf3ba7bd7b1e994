"""The native backend: the `Backend` operations over NumPy arrays, each one or a few calls of the C library.

The trap: a Matrix may lie in several row spans of different formats. Each span is multiplied on its own into its
columns of the result; gate and value halves of SWIGLU are cut at the borders of both.
Proof: tests/core/kernels/test_native_*.py, against float64 NumPy and the reference backend.
"""

from collections.abc import Sequence
from math import prod

import numpy as np

from core.errors import KernelError
from core.kernels import sizes
from core.kernels.backend import (
    FLOAT_ATTENTION,
    Accuracy,
    Activation,
    AttentionMode,
    CancelFlag,
    HeadLayout,
    Modulation,
    NextNorm,
)
from core.kernels.bindings import CallContext, Library, Pool
from core.kernels.matrix import SCALED_FORMATS, Matrix, RowSpan
from core.kernels.native_conv import NativeConvolution
from core.kernels.threads import default_threads

ALIGN_BYTES = 64  # one cache line
ACTIVATION_CODES = {
    Activation.NONE: 0,
    Activation.SILU: 1,
    Activation.GELU_TANH: 2,
    Activation.SWIGLU: 3,
}  # h3k_activation


def aligned_empty(shape: Sequence[int], dtype: type = np.float32) -> np.ndarray:
    """Uninitialised array whose first element lies on a cache line."""
    size = prod(shape) * np.dtype(dtype).itemsize
    raw = np.empty(size + ALIGN_BYTES, dtype=np.uint8)
    start = -raw.ctypes.data % ALIGN_BYTES
    return raw[start : start + size].view(dtype).reshape(tuple(shape))


class Scratch:
    """Working memory of the kernels, owned by whoever makes it; grows on demand up to `limit_bytes`, if given."""

    def __init__(self, limit_bytes: int | None = None):
        self.limit_bytes = limit_bytes
        self._buffer = np.empty(0, dtype=np.uint8)

    @property
    def bytes(self) -> int:
        """What is allocated now."""
        return self._buffer.nbytes

    def take(self, size_bytes: int) -> np.ndarray:
        """uint8 array of at least `size_bytes`; its contents are not kept from one call to the next."""
        if self.limit_bytes is not None and size_bytes > self.limit_bytes:
            raise KernelError(f"A kernel needs {size_bytes} bytes of scratch, expected at most {self.limit_bytes}.")
        if size_bytes > self._buffer.nbytes:
            self._buffer = np.empty(0, dtype=np.uint8)
            self._buffer = aligned_empty((size_bytes,), np.uint8)
        return self._buffer


class NativeBackend(NativeConvolution):
    """`Backend` over the C library. Arrays are NumPy, a weight is its Matrix. One per job; not thread-safe."""

    name = "native"

    def __init__(self, threads: int | None = None, cancel: CancelFlag | None = None, scratch: Scratch | None = None):
        self.library = Library()
        self.threads = default_threads() if threads is None else threads
        self.cancel = cancel or CancelFlag()
        self.scratch = scratch or Scratch()
        self._transformed = Scratch()  # the input of a product in the form that its weight expects
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

    def embedding(self, ids: np.ndarray, table: Matrix) -> np.ndarray:
        if ids.size and not 0 <= ids.min() <= ids.max() < table.rows:
            raise KernelError(f"{table.name}: ids {ids.min()}..{ids.max()}, expected 0..{table.rows - 1}.")
        y = aligned_empty((len(ids), table.columns))
        first_row = 0
        for span in table.spans:
            arrays = {"ids": ids, "table": span.data, "y": y}
            numbers = {"table_rows": span.rows, "first_row": first_row, "table_bytes": span.data.size}
            if span.format in SCALED_FORMATS:
                arrays["scales"] = span.scales
                numbers |= {"scales_row": span.first_row, "scale": span.scale}
            self.run(f"h3k_embedding_{span.format.label}", arrays, numbers)
            first_row += span.rows
        if table.rotation:  # rows stored rotated are undone by the same rotation, before the scale of the columns
            self.run("h3k_rotate_rows", {"x": y, "y": y}, {"group": table.rotation})
        if table.pre_scale is not None:
            self.run("h3k_rotate_rows", {"x": y, "pre_scale": table.pre_scale, "y": y}, {"group": 1})
        return y

    # ---- products
    def linear(
        self, x: np.ndarray, weight: Matrix, *, bias: np.ndarray | None = None,
        activation: Activation = Activation.NONE, accuracy: Accuracy = Accuracy.FLOAT, out: np.ndarray | None = None,
    ) -> np.ndarray:  # fmt: skip
        """All accuracies compute the same: float32 products of exactly expanded weights."""
        gated = activation is Activation.SWIGLU
        if x.ndim != 2 or x.shape[1] != weight.columns:
            raise KernelError(f"{weight.name}: x is {x.shape}, expected [rows, {weight.columns}].")
        if bias is not None and bias.shape != (weight.rows,):
            raise KernelError(f"{weight.name}: bias is {bias.shape}, expected ({weight.rows},).")
        if gated and weight.rows % 2:
            raise KernelError(f"{weight.name}: {weight.rows} rows, expected an even number for swiglu.")
        y = self._output(out, (len(x), weight.rows // 2 if gated else weight.rows))
        x, weight = self._transform(x, weight), weight.as_stored()
        if gated:
            self._swiglu(x, weight, bias, y)
            return y
        at = 0
        for span in weight.spans:
            columns = slice(at, at + span.rows)
            self._matmul(x, (span,), (None if bias is None else bias[columns],), activation, y[:, columns])
            at += span.rows
        return y

    def _transform(self, x: np.ndarray, weight: Matrix) -> np.ndarray:
        """The input that the stored rows of the weight expect; held until the next call."""
        if not weight.is_transformed:
            return x
        y = self._transformed.take(x.nbytes)[: x.nbytes].view(np.float32).reshape(x.shape)
        arrays = {"x": x, "pre_scale": weight.pre_scale, "y": y}
        self.run("h3k_rotate_rows", arrays, {"group": weight.rotation or 1})
        return y

    def _swiglu(self, x: np.ndarray, weight: Matrix, bias: np.ndarray | None, y: np.ndarray) -> None:
        half = weight.rows // 2
        biases = (None, None) if bias is None else (bias[:half], bias[half:])
        pairs = _paired_spans(weight.row_range(0, half), weight.row_range(half, weight.rows))
        if any(gate.format is not value.format for gate, value in pairs):
            gate, value = (
                self.linear(x, part, bias=part_bias)
                for part, part_bias in zip((weight.row_range(0, half), weight.row_range(half, 2 * half)), biases,
                                           strict=True)
            )  # fmt: skip
            self.run("h3k_swiglu", {"gate": gate.reshape(-1), "value": value.reshape(-1), "y": y.reshape(-1)})
            return
        at = 0
        for pair in pairs:
            columns = slice(at, at + pair[0].rows)
            pair_biases = tuple(None if part is None else part[columns] for part in biases)
            self._matmul(x, pair, pair_biases, Activation.SWIGLU, y[:, columns])
            at += pair[0].rows

    def _matmul(
        self, x: np.ndarray, spans: tuple[RowSpan, ...], biases: tuple, activation: Activation, y: np.ndarray
    ) -> None:
        """One call: spans and biases are those of w, and of w_value for SWIGLU."""
        span = spans[0]
        arrays = {"x": x, "w": span.data, "bias": biases[0], "y": y}
        if activation is Activation.SWIGLU:
            arrays |= {"w_value": spans[1].data, "bias_value": biases[1]}
        numbers = {"n": span.rows, "w_bytes": span.data.size, "activation": ACTIVATION_CODES[activation]}
        scratch_bytes = sizes.matmul_scratch_bytes(self.threads)
        self.run(f"h3k_matmul_{span.format.label}", arrays, numbers, scratch_bytes=scratch_bytes)

    def attention(
        self, qkv: np.ndarray, layout: HeadLayout, *, causal: bool = False,
        mode: AttentionMode = FLOAT_ATTENTION, out: np.ndarray | None = None,
    ) -> np.ndarray:  # fmt: skip
        y = self._output(out, (len(qkv), layout.heads * layout.head_dim))
        numbers = {"heads": layout.heads, "kv_heads": layout.kv_heads, "causal": int(causal)}
        arrays = {"qkv": _split_heads(qkv, layout), "y": y.reshape(len(qkv), layout.heads, layout.head_dim)}
        scratch_bytes = sizes.attention_scratch_bytes(layout.head_dim, self.threads)
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


def _split_heads(qkv: np.ndarray, layout: HeadLayout) -> np.ndarray:
    if qkv.ndim != 2 or qkv.shape[1] != layout.width:
        raise KernelError(f"qkv is {qkv.shape}, expected [rows, {layout.width}].")
    heads = layout.heads + 2 * layout.kv_heads
    return qkv.reshape((len(qkv), heads, layout.head_dim), copy=False)


def _paired_spans(gate: Matrix, value: Matrix) -> list[tuple[RowSpan, RowSpan]]:
    """Both matrices cut at the borders of either, so that each pair has equally many rows of one span each."""
    borders = {0}
    for matrix in (gate, value):
        at = 0
        for span in matrix.spans:
            at += span.rows
            borders.add(at)
    cuts = sorted(borders)
    return [
        (gate.row_range(low, high).spans[0], value.row_range(low, high).spans[0])
        for low, high in zip(cuts[:-1], cuts[1:], strict=True)
    ]
