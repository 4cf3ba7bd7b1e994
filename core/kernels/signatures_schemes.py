"""The inputs of weights stored rotated or scaled, in the kernel library; see signatures.py, proof in the same test."""

from core.kernels.signatures import Entry, dimensions, read, write

ENTRIES = (
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
