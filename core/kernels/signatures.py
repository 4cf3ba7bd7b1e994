"""What the kernel library exports, as data: argument structs field by field, and the size functions.

The trap: fields must stand in the order and types of native/include/h3k.h; a slip reads garbage without an error.
Proof: tests/core/kernels/test_signatures.py parses the header and compares every struct and every function.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrayField:
    """A pointer. `shape` names dimensions: a name seen twice must agree, an int must be met, None accepts any shape.

    Names that are fields of the struct are filled in from the array; other names are only compared.
    """

    name: str
    dtype: str  # float32, int32 or uint8
    shape: tuple[str | int, ...] | None
    optional: bool = False
    written: bool = False
    row_stride: str = ""  # field that takes the distance of rows in elements; rows themselves are dense


@dataclass(frozen=True, slots=True)
class NumberField:
    """A number by value: i64, i32, f32 or f64. Dimensions are i64."""

    name: str
    type: str = "i64"


@dataclass(frozen=True, slots=True)
class Entry:
    """One kernel: `h3k_status symbol(const struct *)`, fields after the common `h3k_call call`."""

    symbol: str
    fields: tuple[ArrayField | NumberField, ...]


@dataclass(frozen=True, slots=True)
class SizeFunction:
    """`int64_t symbol(int64_t ...)`, mirrored under the same name without `h3k_` in core/kernels/sizes.py."""

    symbol: str
    arguments: tuple[str, ...]


def read(name: str, *shape: str | int, dtype: str = "float32", optional: bool = False) -> ArrayField:
    """An input array of known shape."""
    return ArrayField(name=name, dtype=dtype, shape=shape, optional=optional)


def write(
    name: str, *shape: str | int, dtype: str = "float32", row_stride: str = "", optional: bool = False
) -> ArrayField:
    """An output array of known shape."""
    return ArrayField(name=name, dtype=dtype, shape=shape, optional=optional, written=True, row_stride=row_stride)


def dimensions(names: str) -> tuple[NumberField, ...]:
    """Dimension fields from a list of words."""
    return tuple(NumberField(name) for name in names.split())


RESERVED = NumberField("reserved", "i32")
EPS = NumberField("eps", "f64")

ENTRIES = (
    Entry(
        "h3k_pack_rows",
        (
            read("x", "rows", "columns"),
            write("packed", "packed_bytes", dtype="uint8"),
            *dimensions("rows columns"),
            NumberField("packing", "i32"),
            RESERVED,
        ),
    ),
    Entry(
        "h3k_matmul",
        (
            read("x", "m", "k", optional=True),
            read("packed", "packed_bytes", dtype="uint8", optional=True),
            read("w", "w_bytes", dtype="uint8"),
            read("w_value", "w_bytes", dtype="uint8", optional=True),
            read("w_scales", "w_scales_bytes", dtype="uint8", optional=True),
            read("w_value_scales", "w_value_scales_bytes", dtype="uint8", optional=True),
            read("bias", "n", optional=True),
            read("bias_value", "n", optional=True),
            write("y", "m", "n", row_stride="ldy", optional=True),
            write("packed_y", "packed_y_bytes", dtype="uint8", optional=True),
            *dimensions("m n k ldy w_scales_row w_value_scales_row"),
            *(NumberField(name, "f32") for name in ("w_scale", "w_value_scale")),
            *(NumberField(name, "i32") for name in ("format", "mode", "activation", "packing_y")),
        ),
    ),
    Entry(
        "h3k_embedding",
        (
            read("ids", "rows", dtype="int32"),
            read("table", "table_bytes", dtype="uint8"),
            read("scales", "scales_bytes", dtype="uint8", optional=True),
            write("y", "rows", "columns"),
            *dimensions("rows columns table_rows first_row scales_row"),
            NumberField("scale", "f32"),
            NumberField("format", "i32"),
        ),
    ),
    Entry(
        "h3k_take_rows",
        (
            read("x", "x_rows", "columns"),
            read("index", "rows", dtype="int32"),
            write("y", "rows", "columns"),
            *dimensions("rows columns x_rows"),
        ),
    ),
    Entry(
        "h3k_attention",
        (
            read("qkv", "rows", "packed_heads", "head_dim"),
            write("y", "rows", "heads", "head_dim"),
            *dimensions("rows heads kv_heads head_dim window_start window_rows window_radius"),
            NumberField("causal", "i32"),
            NumberField("mode", "i32"),
            NumberField("kv", "i32"),
            RESERVED,
        ),
    ),
    Entry(
        "h3k_rms_norm",
        (
            read("x", "rows", "columns"),
            read("weight", "columns", optional=True),
            write("y", "rows", "columns"),
            *dimensions("rows columns"),
            EPS,
        ),
    ),
    Entry(
        "h3k_layer_norm",
        (
            read("x", "rows", "columns"),
            read("weight", "columns"),
            read("bias", "columns"),
            write("y", "rows", "columns"),
            *dimensions("rows columns"),
            EPS,
        ),
    ),
    Entry(
        "h3k_norm_modulate",
        (
            read("x", "rows", "columns"),
            read("weight", "columns", optional=True),
            read("table", "entries", "slots", "columns"),
            read("row_index", "rows", dtype="int32"),
            write("y", "rows", "columns"),
            *dimensions("rows columns entries slots shift_slot scale_slot"),
            EPS,
        ),
    ),
    Entry(
        "h3k_gated_residual",
        (
            write("h", "rows", "columns"),
            read("y", "rows", "columns"),
            read("table", "entries", "slots", "columns"),
            read("row_index", "rows", dtype="int32"),
            *dimensions("rows columns entries slots gate_slot"),
        ),
    ),
    Entry(
        "h3k_gated_residual_norm",
        (
            write("h", "rows", "columns"),
            read("y", "rows", "columns"),
            read("table", "entries", "slots", "columns"),
            read("weight", "columns", optional=True),
            read("norm_table", "entries", "slots", "columns"),
            read("row_index", "rows", dtype="int32"),
            write("normed", "rows", "columns"),
            *dimensions("rows columns entries slots gate_slot shift_slot scale_slot"),
            EPS,
        ),
    ),
    Entry(
        "h3k_scaled_residual",
        (
            write("h", "rows", "columns"),
            read("y", "rows", "columns"),
            read("scale_vector", "columns", optional=True),
            *dimensions("rows columns"),
            NumberField("scale", "f32"),
            RESERVED,
        ),
    ),
    Entry("h3k_swiglu", (read("gate", "count"), read("value", "count"), write("y", "count"), *dimensions("count"))),
    Entry(
        "h3k_qk_norm_rope",
        (
            write("qkv", "rows", "packed_heads", "head_dim"),
            read("q_weight", "head_dim", optional=True),
            read("k_weight", "head_dim", optional=True),
            read("cos", "rows", "half", optional=True),
            read("sin", "rows", "half", optional=True),
            *dimensions("rows heads kv_heads head_dim half"),
            EPS,
        ),
    ),
)

SIZE_FUNCTIONS = (
    SizeFunction("h3k_matmul_scratch_bytes", ("threads",)),
    SizeFunction("h3k_packed_bytes", ("rows", "columns", "packing")),
    SizeFunction("h3k_attention_scratch_bytes", ("rows", "head_dim", "threads", "mode", "kv")),
)
