"""Rotated inputs and tables with scales of their own in the library; see signatures.py, proof in the same test."""

from core.kernels.matrix import SCALED_FORMATS
from core.kernels.signatures import RESERVED, Entry, NumberField, dimensions, read, write

EMBEDDING_FIELDS = (
    read("ids", "rows", dtype="int32"),
    read("table", "table_bytes", dtype="uint8"),
    read("scales", "scales_bytes", dtype="uint8", optional=True),
    write("y", "rows", "columns"),
    *dimensions("rows columns table_rows first_row scales_row"),
    NumberField("scale", "f32"),
    RESERVED,
)

ENTRIES = (
    *(Entry(f"h3k_embedding_{weight_format.label}", EMBEDDING_FIELDS) for weight_format in SCALED_FORMATS),
    Entry(
        "h3k_rotate_rows",
        (
            read("x", "rows", "columns"),
            read("pre_scale", "columns", optional=True),
            write("y", "rows", "columns"),
            *dimensions("rows columns group"),
        ),
    ),
)
