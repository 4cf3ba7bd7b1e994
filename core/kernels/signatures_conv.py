"""The convolution part of the kernel library as data; see signatures.py, proof in the same test."""

from core.kernels.signatures import Entry, NumberField, SizeFunction, dimensions, read, write

EPS = NumberField("eps", "f64")
PANELS = read("panels", "panel_floats")

ENTRIES = (
    Entry(
        "h3k_conv1d",
        (
            read("x", "time", "in"),
            PANELS,
            read("bias", "out", optional=True),
            write("y", "out_time", "out"),
            *dimensions("time in out kernel stride dilation pad_left pad_right"),
        ),
    ),
    Entry(
        "h3k_conv_transpose1d",
        (
            read("x", "time", "in"),
            PANELS,
            read("bias", "out", optional=True),
            write("y", "out_time", "out"),
            *dimensions("time in out kernel stride padding"),
        ),
    ),
    Entry(
        "h3k_conv3d",
        (
            read("x", "frames", "height", "width", "in"),
            read("past", "history", "height", "width", "in", optional=True),
            PANELS,
            read("bias", "out", optional=True),
            write("y", "out_frames", "out_height", "out_width", "out"),
            *dimensions("frames height width in out"),
            *dimensions("kernel_t kernel stride_t stride pad_before pad_after history"),
        ),
    ),
    Entry(
        "h3k_group_norm_silu",
        (
            read("x", "frames", "positions", "channels"),
            read("weight", "channels"),
            read("bias", "channels"),
            write("y", "frames", "positions", "channels"),
            *dimensions("frames positions channels groups"),
            EPS,
        ),
    ),
    Entry(
        "h3k_snake",
        (
            read("x", "time", "channels"),
            read("alpha", "channels"),
            write("y", "time", "channels"),
            *dimensions("time channels"),
        ),
    ),
    Entry(
        "h3k_anti_aliased_snake",
        (
            read("x", "time", "channels"),
            read("log_alpha", "channels"),
            read("log_beta", "channels"),
            read("taps", 12),
            write("y", "time", "channels"),
            *dimensions("time channels"),
        ),
    ),
)

SIZE_FUNCTIONS = (
    SizeFunction("h3k_conv_scratch_bytes", ("threads",)),
    SizeFunction("h3k_group_norm_scratch_bytes", ("frames", "positions", "channels")),
    SizeFunction("h3k_snake_scratch_bytes", ("channels", "threads")),
)
