"""What others offer for the same products: torch in float32, bfloat16 and int8, onnxruntime with 4-bit weights.

A peer is built for one shape and holds its own copies of the weight, rotated as ours are. One thread each. Where a peer
has several ways (engines, accuracy levels), each is a peer of its own here and the best counts.

The trap: onnxruntime and torch keep threads of their own that spin; both are told to use one and not to spin. Proof:
tests/dev/bench/test_peers.py holds each of them against float64.
"""

import warnings
from collections.abc import Callable
from itertools import cycle

import numpy as np
import onnx
import onnxruntime
import torch
from onnx import TensorProto, helper, numpy_helper

from dev.bench.synthetic import copy_count

Product = Callable[[torch.Tensor], object]  # x [m, k] float32 -> x w^T [m, n]

TORCH_FP32, TORCH_BF16 = "torch fp32", "torch bf16"
INT8_ENGINES = ("onednn", "fbgemm")
INT8_OTHERWISE = "qnnpack"  # where neither is offered: slow on x86-64
ORT_BLOCK = 32
ORT_LEVELS = {"fp32": 1, "int8": 4}  # accuracy_level: what the activations are computed as


def one_thread() -> None:
    """Tell torch to use the calling thread alone, and to keep quiet about its quantised operations' future."""
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore", module="torch.ao")
    warnings.filterwarnings("ignore", message=".*quantiz.*")


def int8_names() -> list[str]:
    offered = torch.backends.quantized.supported_engines
    engines = [engine for engine in INT8_ENGINES if engine in offered] or [INT8_OTHERWISE]
    return [f"torch int8 {engine}" for engine in engines]


def ort_names() -> list[str]:
    return [f"onnxruntime 4-bit {level}" for level in ORT_LEVELS]


def torch_float(copies: list[torch.Tensor]) -> Product:
    """A linear in the type of `copies` [n, k]; activations are converted outside of what is timed, when need be."""
    turns = cycle(copies)
    return lambda x: torch.nn.functional.linear(x, next(turns))


def torch_int8(name: str, weight: torch.Tensor, count: int | None = None, *, reduce_range: bool = True) -> Product:
    """Dynamic quantisation: one scale per tensor of x, one per row of w [n, k].

    reduce_range: x in 7 bits, as torch's own module does, since sums of two products may overflow otherwise
    """
    engine = name.rsplit(" ", 1)[1]
    torch.backends.quantized.engine = engine
    scales = (weight.abs().amax(1) / 127).double()
    zeros = torch.zeros(len(weight), dtype=torch.long)
    quantized = torch.quantize_per_channel(weight, scales, zeros, 0, torch.qint8)
    count = copy_count(weight.numel()) if count is None else count
    turns = cycle([torch.ops.quantized.linear_prepack(quantized, None) for _ in range(count)])

    def product(x: torch.Tensor) -> torch.Tensor:
        torch.backends.quantized.engine = engine
        return torch.ops.quantized.linear_dynamic(x, next(turns), reduce_range)

    return product


def ort_4bit(name: str, rows: int, columns: int, count: int | None = None, *, threads: int = 1) -> Product:
    """MatMulNBits over random nibbles in blocks of 32."""
    packed, scales = ort_weight(rows, columns)
    model = _ort_model(packed, scales, columns, ORT_LEVELS[name.rsplit(" ", 1)[1]]).SerializeToString()
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    count = copy_count(packed.nbytes) if count is None else count
    sessions = [onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"]) for _ in range(count)]
    turns = cycle(sessions)
    return lambda x: next(turns).run(None, {"x": x.numpy()})[0]


def ort_weight(rows: int, columns: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Nibbles uint8 [rows, blocks, 16], low ones first; scales float32 [rows, blocks]. w = (nibble - 8) * scale."""
    rng, blocks = np.random.default_rng([seed, rows, columns]), columns // ORT_BLOCK
    packed = np.resize(rng.integers(0, 256, (64, blocks, ORT_BLOCK // 2), dtype=np.uint8), (rows, blocks, 16))
    return packed, np.resize(rng.uniform(0.003, 0.006, (64, blocks)).astype(np.float32), (rows, blocks))


def _ort_model(packed: np.ndarray, scales: np.ndarray, columns: int, level: int) -> onnx.ModelProto:
    rows = len(packed)
    node = helper.make_node(
        "MatMulNBits", ["x", "w", "scales"], ["y"], domain="com.microsoft",
        K=columns, N=rows, bits=4, block_size=ORT_BLOCK, accuracy_level=level,
    )  # fmt: skip
    graph = helper.make_graph(
        [node], "linear",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["m", columns])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["m", rows])],
        [numpy_helper.from_array(packed, "w"), numpy_helper.from_array(scales, "scales")],
    )  # fmt: skip
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def sdpa(heads: int, head_dim: int, rows: int) -> Callable[[], torch.Tensor]:
    """torch's attention in float32 over random q, k, v of [heads, rows, head_dim]."""
    q, k, v = (torch.randn(1, heads, rows, head_dim) for _ in range(3))
    return lambda: torch.nn.functional.scaled_dot_product_attention(q, k, v)
