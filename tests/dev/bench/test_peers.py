"""The peers compute the product that they are timed for.

Tier: independent transcription (float64 NumPy). Cannot tell whether they are used in the fastest way there is.
"""

import numpy as np
import pytest
import torch

from dev.bench import peers
from dev.bench.accuracy import relative_error
from dev.bench.synthetic import normal

N, K, M = 96, 256, 11


@pytest.mark.parametrize("name", peers.int8_names())
def test_torch_int8_is_the_product_in_eight_bits(name):
    x, weight = normal(M, K), normal(N, K, seed=1)
    expected = x.astype(np.float64) @ weight.astype(np.float64).T
    product = peers.torch_int8(name, torch.from_numpy(weight), count=2)
    errors = [relative_error(product(torch.from_numpy(x)).numpy(), expected) for _ in range(2)]
    assert errors[0] == errors[1] and 1e-3 < errors[0] < 4e-2


@pytest.mark.parametrize("name", peers.ort_names())
def test_onnxruntime_multiplies_by_the_nibbles(name):
    x = normal(M, K)
    packed, scales = peers.ort_weight(N, K)
    nibbles = np.stack([packed & 15, packed >> 4], axis=-1).reshape(N, K // 32, 32)
    weight = ((nibbles.astype(np.float64) - 8) * scales[:, :, None]).reshape(N, K)
    product = peers.ort_4bit(name, N, K, count=2)
    for _ in range(2):
        error = relative_error(product(torch.from_numpy(x)), x.astype(np.float64) @ weight.T)
        assert error < (1e-5 if name.endswith("fp32") else 2e-2)


def test_float_peers_use_their_copies_in_turns():
    product = peers.torch_float([torch.ones(2, 3), 2 * torch.ones(2, 3)])
    sums = [float(product(torch.ones(1, 3))[0, 0]) for _ in range(3)]
    assert sums == [3.0, 6.0, 3.0]


def test_attention_has_the_asked_shape():
    assert peers.sdpa(3, 16, 7)().shape == (1, 3, 7, 16)
