"""The accuracy modes of `linear` on the native backend: what they cost in accuracy, and how inputs are packed.

Tier: executed reference (float64 NumPy over the dequantised weights). Whether a mode is good enough for pictures is
judged by clips (dev/mini), not here.
"""

import numpy as np
import pytest

from core.errors import KernelError
from core.kernels.backend import Accuracy, Activation
from core.kernels.matrix import Matrix, WeightFormat
from core.kernels.native import NativeBackend
from core.kernels.native_products import PackedRows
from core.kernels.reference_dequant import expand
from tests.native.kernel_data import FORMATS, ISAS, instruction_set, normal, random_matrix

pytestmark = pytest.mark.native

# Relative L2 on normal activations: 1 / (2 sqrt(3)) of a step of 3.9 sigma / 127 is 6.9e-3, of one of 16 bits 2.7e-5.
BOUNDS = {Accuracy.FLOAT: 1e-6, Accuracy.NEAR: 1e-4, Accuracy.EXACT: 9e-3, Accuracy.FAST: 1.4e-2}


@pytest.fixture(params=ISAS)
def backend(request, monkeypatch):
    with instruction_set(request.param, monkeypatch):
        yield NativeBackend(threads=2)


def error(y: np.ndarray, x: np.ndarray, matrix: Matrix) -> float:
    expected = x.astype(np.float64) @ expand(matrix).astype(np.float64).T
    return float(np.linalg.norm(y - expected) / np.linalg.norm(expected))


@pytest.mark.parametrize("accuracy", Accuracy, ids=lambda a: a.value)
@pytest.mark.parametrize("format", FORMATS, ids=lambda f: f.label)
def test_the_error_of_a_mode_stays_within_its_promise(backend, format, accuracy):
    matrix, x = random_matrix(format, 70, 1024), normal(37, 1024)
    assert error(backend.linear(x, matrix, accuracy=accuracy), x, matrix) < BOUNDS[accuracy]


def test_modes_take_integers_where_the_instruction_set_has_them(backend):
    packings = {backend.library.packing(4, mode) for mode in range(4)}  # q4_0
    assert packings == {0} if backend.library.isa_name() == "generic" else len(packings) > 1 and 0 in packings


def test_outliers_cost_near_nothing(backend):
    matrix, x = random_matrix(WeightFormat.Q4_K, 64, 1024), normal(16, 1024)
    x[:, ::128] *= 20
    assert error(backend.linear(x, matrix, accuracy=Accuracy.NEAR), x, matrix) < 2e-4


def test_spans_of_different_formats_each_find_their_packing(backend):
    parts = [random_matrix(f, 48, 512) for f in (WeightFormat.Q4_K, WeightFormat.Q8_0, WeightFormat.F16)]
    matrix, x = Matrix.stack("mixed", parts), normal(9, 512)
    y = backend.linear(x, matrix, accuracy=Accuracy.EXACT)
    for i, part in enumerate(parts):
        alone = backend.linear(x, part, accuracy=Accuracy.EXACT)
        assert np.array_equal(y[:, 48 * i : 48 * (i + 1)], alone)


@pytest.mark.parametrize("format", [WeightFormat.Q4_K, WeightFormat.Q8_0], ids=lambda f: f.label)
def test_a_feed_forward_network_may_hand_its_inside_over_packed(backend, format):
    fc1, fc2, x = random_matrix(format, 1024, 256), random_matrix(format, 96, 512), normal(21, 256)
    inside = backend.product_input(21, fc2, Accuracy.EXACT, backend.empty((21, 512)))
    assert isinstance(inside, PackedRows) == (backend.library.isa_name() != "generic")
    backend.linear(x, fc1, activation=Activation.SWIGLU, accuracy=Accuracy.EXACT, out=inside)
    y = backend.linear(inside, fc2, accuracy=Accuracy.EXACT)
    plain = backend.linear(x, fc1, activation=Activation.SWIGLU, accuracy=Accuracy.EXACT)
    assert np.array_equal(y, backend.linear(plain, fc2, accuracy=Accuracy.EXACT))


def test_rows_packed_for_another_product_are_refused():
    backend = NativeBackend(threads=1)
    matrix = random_matrix(WeightFormat.Q4_0, 16, 256)
    packed = backend.product_input(3, matrix, Accuracy.EXACT, backend.empty((3, 256)))
    if not isinstance(packed, PackedRows):
        pytest.skip("this instruction set packs nothing")
    with pytest.raises(KernelError, match="The rows are packed as 1, the product needs 0"):
        backend.linear(packed, matrix)
