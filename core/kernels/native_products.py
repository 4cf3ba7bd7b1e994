"""Products with weights on the native backend: rows packed as the kernels want them, one call per row span.

The traps: a Matrix may lie in several row spans of different formats, and which packing an input needs depends on
format, accuracy and instruction set. Each span is multiplied on its own into its columns of the result; gate and value
halves of SWIGLU are cut at the borders of both.
Proof: tests/core/kernels/test_native_products.py and test_native_modes.py, against float64 NumPy.
"""

from dataclasses import dataclass

import numpy as np

from core.errors import KernelError
from core.kernels import sizes
from core.kernels.backend import Accuracy, Activation
from core.kernels.matrix import Matrix, RowSpan, WeightFormat
from core.kernels.native_scratch import Scratch, aligned_empty

ACTIVATION_CODES = {activation: code for code, activation in enumerate(Activation)}  # h3k_activation
MODE_CODES = {accuracy: code for code, accuracy in enumerate(Accuracy)}  # h3k_mode
FORMAT_CODES = {weight_format: code for code, weight_format in enumerate(WeightFormat)}  # h3k_format_id
PACKING_NONE = 0  # h3k_packing_kind


@dataclass(frozen=True, slots=True, eq=False)
class PackedRows:
    """Input rows of a product as integers. data: uint8, layout private to the library; packing: h3k_packing_kind."""

    data: np.ndarray
    rows: int
    columns: int
    packing: int

    @property
    def shape(self) -> tuple[int, int]:
        return self.rows, self.columns


class NativeProducts:
    """The part of NativeBackend that multiplies with weights."""

    def embedding(self, ids: np.ndarray, table: Matrix) -> np.ndarray:
        if ids.size and not 0 <= ids.min() <= ids.max() < table.rows:
            raise KernelError(f"{table.name}: ids {ids.min()}..{ids.max()}, expected 0..{table.rows - 1}.")
        y = aligned_empty((len(ids), table.columns))
        first_row = 0
        for span in table.spans:
            arrays = {"ids": ids, "table": span.data, "scales": span.scales, "y": y}
            numbers = {"table_rows": span.rows, "first_row": first_row, "table_bytes": span.data.size}
            numbers |= {"scales_row": _scales_row(span), "scale": span.scale, "format": FORMAT_CODES[span.format]}
            self.run("h3k_embedding", arrays, numbers)
            first_row += span.rows
        if table.rotation:  # rows stored rotated are undone by the same rotation, before the scale of the columns
            self.run("h3k_rotate_rows", {"x": y, "y": y}, {"group": table.rotation})
        if table.pre_scale is not None:
            self.run("h3k_rotate_rows", {"x": y, "pre_scale": table.pre_scale, "y": y}, {"group": 1})
        return y

    def product_input(
        self, rows: int, weight: Matrix, accuracy: Accuracy, memory: np.ndarray
    ) -> np.ndarray | PackedRows:
        kinds = {self._packing(span, accuracy) for span in weight.spans}
        if kinds == {PACKING_NONE} or len(kinds) > 1 or weight.is_transformed:
            return memory.reshape(-1)[: rows * weight.columns].reshape(rows, weight.columns)
        packing = kinds.pop()
        size = sizes.packed_bytes(rows, weight.columns, packing)
        data = memory.reshape(-1).view(np.uint8)
        return PackedRows(data[:size] if size <= data.size else aligned_empty((size,), np.uint8),
                          rows, weight.columns, packing)  # fmt: skip

    def linear(
        self, x: np.ndarray | PackedRows, weight: Matrix, *, bias: np.ndarray | None = None,
        activation: Activation = Activation.NONE, accuracy: Accuracy = Accuracy.FLOAT,
        out: np.ndarray | PackedRows | None = None,
    ) -> np.ndarray | PackedRows:  # fmt: skip
        gated = activation is Activation.SWIGLU
        self._check_linear(x, weight, bias, gated)
        columns = weight.rows // 2 if gated else weight.rows
        if isinstance(out, PackedRows):
            return self._packed_linear(x, weight, bias, activation, accuracy, out)
        y = self._output(out, (x.shape[0], columns))
        call = _Linear(self._inputs(self._transform(x, weight)), accuracy, activation)
        weight = weight.as_stored()
        if gated:
            self._swiglu(call, weight, bias, y)
            return y
        at = 0
        for span in weight.spans:
            part = slice(at, at + span.rows)
            self._matmul(call, (span,), (None if bias is None else bias[part],), y[:, part])
            at += span.rows
        return y

    @staticmethod
    def _check_linear(x: np.ndarray | PackedRows, weight: Matrix, bias: np.ndarray | None, gated: bool) -> None:
        if len(x.shape) != 2 or x.shape[1] != weight.columns:
            raise KernelError(f"{weight.name}: x is {x.shape}, expected [rows, {weight.columns}].")
        if bias is not None and bias.shape != (weight.rows,):
            raise KernelError(f"{weight.name}: bias is {bias.shape}, expected ({weight.rows},).")
        if gated and weight.rows % 2:
            raise KernelError(f"{weight.name}: {weight.rows} rows, expected an even number for swiglu.")

    def _transform(self, x: np.ndarray | PackedRows, weight: Matrix) -> np.ndarray | PackedRows:
        """The input that the stored rows of the weight expect; held until the next call."""
        if not weight.is_transformed:
            return x
        if isinstance(x, PackedRows):
            raise KernelError(f"{weight.name} is stored for a transformed input; packed rows cannot be transformed.")
        y = self._transformed.take(x.nbytes)[: x.nbytes].view(np.float32).reshape(x.shape)
        arrays = {"x": x, "pre_scale": weight.pre_scale, "y": y}
        self.run("h3k_rotate_rows", arrays, {"group": weight.rotation or 1})
        return y

    def _packed_linear(
        self, x: np.ndarray | PackedRows, weight: Matrix, bias: np.ndarray | None, activation: Activation,
        accuracy: Accuracy, out: PackedRows,
    ) -> PackedRows:  # fmt: skip
        """SWIGLU straight into packed rows when both halves are whole and in an integer format, else in two steps."""
        half, inputs = weight.rows // 2, self._inputs(self._transform(x, weight))
        weight = weight.as_stored()
        pairs = _paired_spans(weight.row_range(0, half), weight.row_range(half, weight.rows))
        direct = activation is Activation.SWIGLU and len(pairs) == 1 and pairs[0][0].format is pairs[0][1].format
        if direct and self._packing(pairs[0][0], accuracy) != PACKING_NONE:
            biases = (None, None) if bias is None else (bias[:half], bias[half:])
            self._matmul(_Linear(inputs, accuracy, activation), pairs[0], biases, out)
            return out
        y = self.linear(inputs.x, weight, bias=bias, activation=activation, accuracy=accuracy)
        self._pack(y, out)
        return out

    def _swiglu(self, call: "_Linear", weight: Matrix, bias: np.ndarray | None, y: np.ndarray) -> None:
        half = weight.rows // 2
        biases = (None, None) if bias is None else (bias[:half], bias[half:])
        halves = weight.row_range(0, half), weight.row_range(half, weight.rows)
        pairs = _paired_spans(*halves)
        if any(gate.format is not value.format for gate, value in pairs):
            gate, value = (
                self.linear(call.inputs.x, part, bias=part_bias, accuracy=call.accuracy)
                for part, part_bias in zip(halves, biases, strict=True)
            )
            self.run("h3k_swiglu", {"gate": gate.reshape(-1), "value": value.reshape(-1), "y": y.reshape(-1)})
            return
        at = 0
        for pair in pairs:
            columns = slice(at, at + pair[0].rows)
            self._matmul(call, pair, tuple(None if part is None else part[columns] for part in biases), y[:, columns])
            at += pair[0].rows

    def _matmul(self, call: "_Linear", spans: tuple[RowSpan, ...], biases: tuple, y: np.ndarray | PackedRows) -> None:
        """One call: spans and biases are those of w, and of w_value for SWIGLU."""
        span, rows = spans[0], call.inputs.x.shape[0]
        arrays = {"w": span.data, "w_scales": span.scales, "bias": biases[0]}
        numbers = {"w_scales_row": _scales_row(span), "w_scale": span.scale}
        numbers |= {"w_value_scales_row": 0, "w_value_scale": 0.0}
        if call.activation is Activation.SWIGLU:
            value = spans[1]
            arrays |= {"w_value": value.data, "w_value_scales": value.scales, "bias_value": biases[1]}
            numbers |= {"w_value_scales_row": _scales_row(value), "w_value_scale": value.scale}
        packing = self._packing(span, call.accuracy)
        arrays["x" if packing == PACKING_NONE else "packed"] = self._input(call.inputs, packing)
        numbers |= {"m": rows, "n": span.rows, "k": call.inputs.x.shape[1], "w_bytes": span.data.size}
        numbers |= {"format": FORMAT_CODES[span.format], "mode": MODE_CODES[call.accuracy]}
        numbers |= {"activation": ACTIVATION_CODES[call.activation]}
        if isinstance(y, PackedRows):
            arrays["packed_y"] = y.data
            numbers |= {"ldy": 0, "packing_y": y.packing}
        else:
            arrays["y"] = y
            numbers["packing_y"] = PACKING_NONE
        self.run("h3k_matmul", arrays, numbers, scratch_bytes=sizes.matmul_scratch_bytes(self.threads))

    # ---- packing
    def _packing(self, span: RowSpan, accuracy: Accuracy) -> int:
        return self.library.packing(FORMAT_CODES[span.format], MODE_CODES[accuracy])

    def _inputs(self, x: np.ndarray | PackedRows) -> "_Inputs":
        return _Inputs(x, {x.packing: x} if isinstance(x, PackedRows) else {})

    def _input(self, inputs: "_Inputs", packing: int) -> np.ndarray:
        """The input packed as asked, once per `linear`."""
        x = inputs.x
        if packing == PACKING_NONE and not isinstance(x, PackedRows):
            return x
        if packing not in inputs.packed:
            if isinstance(x, PackedRows):
                raise KernelError(f"The rows are packed as {x.packing}, the product needs {packing}.")
            scratch = self._packed.setdefault(packing, Scratch())
            data = scratch.take(sizes.packed_bytes(*x.shape, packing))
            inputs.packed[packing] = PackedRows(data, *x.shape, packing)
            self._pack(x, inputs.packed[packing])
        return inputs.packed[packing].data

    def _pack(self, x: np.ndarray, out: PackedRows) -> None:
        self.run("h3k_pack_rows", {"x": x, "packed": out.data}, {"packing": out.packing})


@dataclass(frozen=True, slots=True, eq=False)
class _Inputs:
    """The rows of one `linear`, and what they have been packed to so far."""

    x: np.ndarray | PackedRows
    packed: dict[int, PackedRows]


@dataclass(frozen=True, slots=True, eq=False)
class _Linear:
    """What all calls of one `linear` share."""

    inputs: _Inputs
    accuracy: Accuracy
    activation: Activation


def _scales_row(span: RowSpan) -> int:
    """The row of the scales that belongs to the first row of the span; 0 where there are none."""
    return 0 if span.scales is None else span.first_row


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
