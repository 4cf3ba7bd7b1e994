"""Scratch sizes in Python equal those of the library.

Tier: executed reference (the library itself). Cannot catch a size too small on both sides; the C tests run
under the address sanitiser for that (make native-debug).
"""

import itertools

import pytest

from core.kernels import sizes
from core.kernels.bindings import SIZE_FUNCTIONS, Library

VALUES = {
    "threads": (1, 2, 7, 64),
    "mode": (0, 1, 2, 3),
    "kv": (0, 1, 2, 3),
    "head_dim": (4, 12, 64, 100, 128, 256),
    "channels": (1, 4, 7, 24, 193, 1536),
    "frames": (1, 5),
    "rows": (0, 1, 17, 1024),
    "columns": (1, 255, 256, 257, 14336),
    "packing": (0, 1, 2, 3),
    "positions": (1, 4095, 4096, 4097, 65536),
}


@pytest.mark.native
@pytest.mark.parametrize("symbol", SIZE_FUNCTIONS)
def test_python_and_the_library_give_the_same_size(symbol):
    library, arguments = Library(), SIZE_FUNCTIONS[symbol].arguments
    mirror = getattr(sizes, symbol.removeprefix("h3k_"))
    for values in itertools.product(*(VALUES[name] for name in arguments)):
        assert mirror(**dict(zip(arguments, values, strict=True))) == library.size(symbol, *values), values


def test_matmul_scratch_of_one_thread_is_sums_panel_results_and_one_cache_line():
    assert sizes.matmul_scratch_bytes(1) == 4 * (256 * 128 + 256 * 256) + 32768 + 64
