"""Scratch sizes of the kernels in bytes, the same arithmetic as the C `*_scratch_bytes()` functions.

A plan for memory must not load the library, hence the second copy.
Proof: tests/core/kernels/test_sizes.py compares with the library over many shapes.
"""

FLOAT_BYTES, DOUBLE_BYTES = 4, 8
SLOT_ALIGN_BYTES = 64
PANEL_COLUMNS = 8
CHUNK = 256  # elements of k that are unpacked at once

MATMUL_BLOCK_M, MATMUL_BLOCK_N = 192, 64  # float32 product
INTEGER_BLOCK_M, INTEGER_SUB_BLOCK, INTEGER_PANEL_BYTES = 256, 128, 32 * 1024
CHUNK_BYTES = {0: 0, 1: 384, 2: 640, 3: 640}  # of one row's chunk, by h3k_packing_kind
ATTENTION_BLOCK_Q, ATTENTION_BLOCK_K = 96, 64
ATTENTION_INTEGER_BLOCK_Q, ATTENTION_LANES = 48, 16
CONV_TILE_ROWS, CONV_TILE_COLUMNS = 64, 128
GROUP_NORM_BLOCK = 4096  # positions
SNAKE_FLOATS, SNAKE_MIN_ROWS, SNAKE_HALO = 4096, 32, 3


def slots_bytes(slot_bytes: int, threads: int) -> int:
    """Aligned slots for all threads in a buffer of any alignment."""
    padded = -(-slot_bytes // SLOT_ALIGN_BYTES) * SLOT_ALIGN_BYTES
    return padded * threads + SLOT_ALIGN_BYTES


def matmul_scratch_bytes(threads: int) -> int:
    """Per thread the larger of two: the float32 product's panels, eight unpacked rows and two accumulator tiles; the
    integer product's sums, one panel and the results that wait to be packed."""
    floats = MATMUL_BLOCK_N * CHUNK + PANEL_COLUMNS * CHUNK + 2 * MATMUL_BLOCK_M * MATMUL_BLOCK_N
    integer_floats = INTEGER_BLOCK_M * (INTEGER_SUB_BLOCK + CHUNK)
    slot_bytes = max(floats * FLOAT_BYTES, integer_floats * FLOAT_BYTES + INTEGER_PANEL_BYTES)
    return slots_bytes(slot_bytes, threads)


def packed_bytes(rows: int, columns: int, packing: int) -> int:
    """Rows of activations as integers: chunks of 256 with their scale and sums."""
    return -(-columns // CHUNK) * rows * CHUNK_BYTES[packing]


def attention_scratch_bytes(rows: int, head_dim: int, threads: int, mode: int, kv: int) -> int:
    """Working tiles and one kept key head for each thread. mode, kv: the numbers of h3k_mode and h3k_kv_format."""
    padded = -(-head_dim // ATTENTION_LANES) * ATTENTION_LANES
    slot = max(_attention_float_slot(head_dim), _attention_integer_slot(padded))
    kept = _attention_kept_bytes(rows, padded, _attention_kept_bits(mode, kv))
    return slots_bytes(slot, threads) + threads * kept


def _attention_float_slot(head_dim: int) -> int:
    """Queries, key and value panels, scores, sums and two numbers per query row."""
    wide = -(-head_dim // PANEL_COLUMNS) * PANEL_COLUMNS
    floats = (ATTENTION_BLOCK_Q + ATTENTION_BLOCK_K) * (head_dim + wide)
    floats += ATTENTION_BLOCK_Q * ATTENTION_BLOCK_K + 2 * ATTENTION_BLOCK_Q
    return floats * FLOAT_BYTES


def _attention_integer_slot(padded: int) -> int:
    """Sums, scores, products, seven numbers and two rows of integers per query row; panels of one tile of keys."""
    row = (padded + ATTENTION_BLOCK_K + ATTENTION_LANES + 7) * FLOAT_BYTES + 2 * (padded + ATTENTION_BLOCK_K)
    return ATTENTION_INTEGER_BLOCK_Q * row + 4 * ATTENTION_BLOCK_K * padded


def _attention_kept_bits(mode: int, kv: int) -> int:
    """Bits of a kept element, 0 where nothing is kept: integer arithmetic keeps nothing wider than its integers."""
    bits, most = (32, 16, 8, 4)[kv], (31, 16, 8, 8)[mode]
    return bits if bits <= most else 0 if mode == 0 else most


def _attention_kept_bytes(rows: int, padded: int, bits: int) -> int:
    """One head: two means, then tiles of keys and values with their scales."""
    if bits == 0:
        return 0
    tile = 2 * ATTENTION_BLOCK_K * padded * bits // 8 + (2 * ATTENTION_BLOCK_K + padded) * FLOAT_BYTES
    size = 2 * padded * FLOAT_BYTES + -(-rows // ATTENTION_BLOCK_K) * tile
    return -(-size // SLOT_ALIGN_BYTES) * SLOT_ALIGN_BYTES


def conv_scratch_bytes(threads: int) -> int:
    """One gathered tile and its sums per thread; the same for the three convolutions."""
    floats = CONV_TILE_ROWS * (CHUNK + CONV_TILE_COLUMNS)
    return slots_bytes(floats * FLOAT_BYTES, threads)


def group_norm_scratch_bytes(frames: int, positions: int, channels: int) -> int:
    """float64 sums of every block of positions, then one float32 scale and shift per frame and channel."""
    blocks = -(-positions // GROUP_NORM_BLOCK)
    return slots_bytes(frames * channels * 2 * (blocks * DOUBLE_BYTES + FLOAT_BYTES), 1)


def snake_scratch_bytes(channels: int, threads: int) -> int:
    """Padded source, even and odd upsampled rows, frequency and magnitude per thread."""
    if channels < 1:
        return 0
    rows = max(SNAKE_MIN_ROWS, SNAKE_FLOATS // channels)
    floats = (rows + 4 * SNAKE_HALO + 4 * (rows + 2 * SNAKE_HALO)) * channels
    return slots_bytes(floats * FLOAT_BYTES, threads)
