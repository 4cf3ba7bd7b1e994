"""Relative L2 errors of linears against float64 products of the weights as the file holds them.

x is standard normal; the peers get the same weights in float32 and quantise them once more, as they would have to.

The trap: an accuracy that is computed as a more exact one looks fine here and slow elsewhere; read both figures.
Proof: tests/dev/bench/test_accuracy.py.
"""

import numpy as np
import torch

from core.kernels.backend import Accuracy
from core.kernels.native import NativeBackend
from core.kernels.reference_dequant import expand
from dev.bench import peers
from dev.bench.linear import INTEGER_MODES, OTHERS, PEERED
from dev.bench.result import Row, Section
from dev.bench.synthetic import matrix, normal

ROWS, OUTPUTS, COLUMNS = 64, 512, 5376


def relative_error(got: np.ndarray, expected: np.ndarray) -> float:
    """|got - expected| / |expected| in L2."""
    return float(np.linalg.norm(got.astype(np.float64) - expected) / np.linalg.norm(expected))


def run() -> Section:
    """One row per format and accuracy, and the int8 peers on the same weights."""
    backend, section = NativeBackend(threads=1), Section("Relative L2 error of linears, normal x, 5376 columns")
    x = normal(ROWS, COLUMNS)
    for weight_format in PEERED + OTHERS:
        weight = matrix(weight_format, OUTPUTS, COLUMNS)
        plain = np.ascontiguousarray(expand(weight), dtype=np.float32)
        expected = x.astype(np.float64) @ plain.astype(np.float64).T
        for accuracy in (Accuracy.FLOAT, *INTEGER_MODES):
            error = relative_error(backend.linear(x, weight, accuracy=accuracy), expected)
            section.rows.append(_row(weight_format.label, accuracy.value, error))
        for name in peers.int8_names():
            for bits, reduce_range in ((7, True), (8, False)):
                product = peers.torch_int8(name, torch.from_numpy(plain), count=1, reduce_range=reduce_range)
                error = relative_error(product(torch.from_numpy(x)).numpy(), expected)
                section.rows.append(_row(weight_format.label, f"{name}, x in {bits} bits", error))
    return section


def _row(case: str, name: str, error: float) -> Row:
    return Row(case=case, name=name, best=error, median=error, unit="error")
