"""Arrays, scratch, threads and cancellation of the native backend, and one block of a model against the reference.

Tier: executed reference for the block (torch), self-consistency for the rest.
"""

import threading
import time

import numpy as np
import pytest

from core.errors import Cancelled, KernelError
from core.kernels import sizes
from core.kernels.backend import Activation, CancelFlag, HeadLayout, Modulation
from core.kernels.matrix import Matrix
from core.kernels.native import NativeBackend, Scratch, aligned_empty
from core.kernels.reference import ReferenceBackend
from tests.native.kernel_data import FORMATS, normal, random_matrix

# Ten operations in a row, each of them below 2e-6 against float64 on its own.
BLOCK_TOLERANCE = 5e-6


def test_arrays_lie_on_cache_lines():
    assert aligned_empty((0, 4)).shape == (0, 4)
    for shape in ((1,), (3, 5), (2, 3, 4, 5)):
        array = aligned_empty(shape)
        assert array.shape == shape and array.dtype == np.float32
        assert array.ctypes.data % 64 == 0 and array.flags.c_contiguous and array.flags.writeable


def test_scratch_grows_to_its_limit_and_is_reused():
    scratch = Scratch(limit_bytes=1000)
    first = scratch.take(600)
    assert scratch.bytes == 600 and scratch.take(10) is first and scratch.take(1000).nbytes == 1000
    with pytest.raises(KernelError, match="needs 1001 bytes of scratch, expected at most 1000"):
        scratch.take(1001)


@pytest.mark.native
def test_arrays_are_aliased_and_viewed():
    backend, values = NativeBackend(threads=1), normal(4, 6)
    assert backend.from_numpy(values) is values and backend.to_numpy(values) is values
    assert np.shares_memory(backend.reshape(values, (3, 8)), values)
    assert np.shares_memory(backend.row_slice(values, 1, 3), values)
    assert backend.empty((3, 2)).dtype == np.float32
    assert backend.from_numpy(values.T).flags.c_contiguous
    with pytest.raises(KernelError, match="float64"):
        backend.from_numpy(np.zeros(3))
    with pytest.raises(ValueError):
        backend.reshape(values[:, :5], (20,))


@pytest.mark.native
def test_products_take_their_scratch_from_the_caller():
    scratch = Scratch(limit_bytes=sizes.matmul_scratch_bytes(2))
    backend = NativeBackend(threads=2, scratch=scratch)
    backend.linear(normal(3, 8), Matrix.from_float32("weight", normal(4, 8)))
    assert scratch.bytes == sizes.matmul_scratch_bytes(2)
    backend = NativeBackend(threads=2, scratch=Scratch(limit_bytes=1000))
    with pytest.raises(KernelError, match="scratch"):
        backend.linear(normal(3, 8), Matrix.from_float32("weight", normal(4, 8)))


@pytest.mark.native
def test_a_flag_set_from_another_thread_ends_a_long_product():
    flag = CancelFlag()
    backend = NativeBackend(threads=2, cancel=flag)
    x, weight = np.zeros((4096, 2048), np.float32), Matrix.from_float32("weight", np.zeros((4096, 2048), np.float32))
    timer = threading.Timer(0.05, flag.set)
    timer.start()
    start = time.process_time()
    with pytest.raises(Cancelled):
        backend.linear(x, weight)
    # The whole product takes 69 GFLOP, more than a second of processor time; one tile takes 0.1 GFLOP.
    assert time.process_time() - start < 0.7
    timer.join()


def run_block(backend, matrices: dict[str, Matrix], vectors: dict[str, np.ndarray], layout: HeadLayout) -> np.ndarray:
    """A transformer block as the model writes it."""
    v = {name: backend.from_numpy(values.copy()) for name, values in vectors.items()}
    w = {name: backend.weight(matrix) for name, matrix in matrices.items()}
    modulation = Modulation(v["table"], v["index"])
    h = v["h"]
    n = backend.norm_modulate(h, v["norm"], 1e-6, modulation, shift_slot=0, scale_slot=1)
    qkv = backend.linear(n, w["qkv"], bias=v["qkv_bias"])
    backend.qk_norm_rope(
        qkv, layout, q_weight=v["q_norm"], k_weight=v["k_norm"], eps=1e-6, cos=v["cos"], sin=v["sin"]
    )
    a = backend.linear(backend.attention(qkv, layout), w["out"])
    h = backend.gated_residual(h, a, modulation, gate_slot=2)
    n = backend.norm_modulate(h, v["norm"], 1e-6, modulation, shift_slot=3, scale_slot=4)
    m = backend.linear(backend.linear(n, w["fc1"], activation=Activation.SWIGLU), w["fc2"])
    return backend.to_numpy(backend.gated_residual(h, m, modulation, gate_slot=5))


@pytest.mark.native
@pytest.mark.parametrize("format", FORMATS, ids=lambda f: f.label)
def test_a_block_equals_the_reference(format):
    rows, hidden, inner = 75, 256, 512
    layout = HeadLayout(heads=8, kv_heads=8, head_dim=32)
    shapes = {"qkv": (layout.width, hidden), "out": (hidden, 256), "fc1": (2 * inner, hidden), "fc2": (hidden, inner)}
    matrices = {name: random_matrix(format, *shape, seed=len(name), offset=2) for name, shape in shapes.items()}
    angles = normal(rows, 12)
    vectors = {
        "h": normal(rows, hidden), "norm": normal(hidden), "table": 0.3 * normal(4, 6, hidden),
        "index": (np.arange(rows) % 4).astype(np.int32), "qkv_bias": normal(layout.width),
        "q_norm": normal(32), "k_norm": normal(32, seed=1), "cos": np.cos(angles), "sin": np.sin(angles),
    }  # fmt: skip
    expected = run_block(ReferenceBackend(), matrices, vectors, layout)
    got = run_block(NativeBackend(threads=2), matrices, vectors, layout)
    assert np.linalg.norm(got - expected) < BLOCK_TOLERANCE * np.linalg.norm(expected)
