"""The Qwen3-VL text stack up to the layer MiniMax-H3 listens to: the residual stream, without the final norm.

The traps: libraries apply the model's last norm to the last hidden state, which gives other conditioning; and the
rotary frequencies of the three position axes are interleaved (T H W T H W ... T T), not in three runs. Proof:
tests/core/model/test_text_encoder.py against transformers' Qwen3-VL text model.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from core.errors import RequestError
from core.kernels.backend import Accuracy, Activation, Array, Backend, HeadLayout, Weight
from core.kernels.matrix import Matrix
from core.kernels.provider import Block, Weights
from core.model.config import TextEncoderConfig


def text_positions(rows: int) -> np.ndarray:
    """Positions of plain text: all three axes are the token index. [3, rows] int32."""
    return np.broadcast_to(np.arange(rows, dtype=np.int32), (3, rows))


def mrope_axes(config: TextEncoderConfig) -> np.ndarray:
    """Position axis (0 time, 1 height, 2 width) of each rotary frequency, [head_dim / 2]."""
    frequency = np.arange(config.head_dim // 2)
    axis = frequency % 3
    return np.where(frequency < 3 * np.asarray(config.mrope_section)[axis], axis, 0)


def mrope_tables(config: TextEncoderConfig, positions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Cosine and sine [rows, head_dim / 2] float32 of positions [3, rows]."""
    exponent = np.arange(0, config.head_dim, 2, dtype=np.float32) / np.float32(config.head_dim)
    inverse = np.float32(1) / np.float32(config.rope_theta) ** exponent
    angles = positions.astype(np.float32)[mrope_axes(config)].T * inverse
    return np.cos(angles), np.sin(angles)


@dataclass(slots=True)
class _Scratch:
    """Arrays that every layer reuses; `normed` also receives the output projections."""

    normed: Array
    qkv: Array
    heads: Array
    gated: Array


def _scratch(backend: Backend, config: TextEncoderConfig, rows: int) -> _Scratch:
    layout = _layout(config)
    return _Scratch(
        normed=backend.empty((rows, config.hidden_size)),
        qkv=backend.empty((rows, layout.width)),
        heads=backend.empty((rows, config.num_heads * config.head_dim)),
        gated=backend.empty((rows, config.ffn_dim)),
    )


def scratch_bytes(config: TextEncoderConfig, rows: int) -> int:
    """Bytes of activations `encode_text` holds for `rows` tokens: the residual stream and the scratch."""
    widths = 2 * config.hidden_size + _layout(config).width + config.num_heads * config.head_dim + config.ffn_dim
    return 4 * rows * widths


def _layout(config: TextEncoderConfig) -> HeadLayout:
    return HeadLayout(heads=config.num_heads, kv_heads=config.num_kv_heads, head_dim=config.head_dim)


def _stacked(block: Block, name: str, parts: tuple[str, ...]) -> Weight:
    """Separate projections of one input as a single weight, so that the input is read once."""
    matrices = [block.source.matrix(f"{block.prefix}{part}.weight") for part in parts]
    return block.backend.weight(Matrix.stack(block.prefix + name, matrices))


class TextEncoder:
    """Token ids to conditioning rows.

    config:   shapes
    weights:  canonical names `embed_tokens.weight`, `layers.N.*`, read and released layer by layer
    accuracy: of the products with weights; attention stays float32
    """

    def __init__(self, config: TextEncoderConfig, weights: Weights, accuracy: Accuracy = Accuracy.FLOAT):
        self.config = config
        self.accuracy = accuracy
        self.weights = weights

    def encode(
        self, ids: np.ndarray, *, positions: np.ndarray | None = None,
        on_layer: Callable[[int, int], None] | None = None,
    ) -> Array:  # fmt: skip
        """Residual stream after the last layer.

        ids:       [rows] int32, each below the vocabulary size
        positions: [3, rows] int (time, height, width); plain text when absent
        on_layer:  called with (layers done, layers in all) after each layer
        returns:   backend array [rows, hidden_size] float32
        raises:    RequestError for ids outside the vocabulary or positions of another length
        """
        backend, rows = self.weights.backend, ids.size
        positions = text_positions(rows) if positions is None else positions
        self._check(ids, positions)
        cos, sin = (backend.from_numpy(table) for table in mrope_tables(self.config, positions))
        rows_of_table = backend.from_numpy(np.ascontiguousarray(ids, dtype=np.int32))
        hidden = backend.embedding(rows_of_table, self.weights.root.matrix("embed_tokens.weight"))
        scratch = _scratch(backend, self.config, rows)
        for layer in range(self.config.num_layers):
            ahead = f"layers.{layer + 1}" if layer + 1 < self.config.num_layers else ""
            with self.weights.block(f"layers.{layer}", ahead=ahead) as block:
                self._attend(hidden, block, scratch, (cos, sin))
                self._feed_forward(hidden, block, scratch)
            if on_layer:
                on_layer(layer + 1, self.config.num_layers)
        return hidden

    def _check(self, ids: np.ndarray, positions: np.ndarray) -> None:
        if ids.ndim != 1 or not ids.size or ids.min() < 0 or ids.max() >= self.config.vocab_size:
            raise RequestError(
                f"Token ids must be one row of numbers in 0 .. {self.config.vocab_size - 1}, got shape {ids.shape}"
                + (f" with {ids.min()} .. {ids.max()}." if ids.size else "."),
                hint="The vocabulary and the text encoder are of different models.",
            )
        if positions.shape != (3, ids.size):
            raise RequestError(f"Positions have shape {positions.shape}, expected (3, {ids.size}).")

    def _attend(self, hidden: Array, block: Block, scratch: _Scratch, tables: tuple[Array, Array]) -> None:
        """hidden += o_proj(attention(rope(norm(q)), rope(norm(k)), v)), causal, grouped queries."""
        backend, eps, layout, accuracy = block.backend, self.config.rms_norm_eps, _layout(self.config), self.accuracy
        qkv_weight = _stacked(block, "self_attn.qkv", ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"))
        normed = backend.rms_norm(hidden, block.vector("input_layernorm.weight"), eps, out=scratch.normed)
        qkv = backend.linear(normed, qkv_weight, accuracy=accuracy, out=scratch.qkv)
        backend.qk_norm_rope(
            qkv, layout, q_weight=block.vector("self_attn.q_norm.weight"),
            k_weight=block.vector("self_attn.k_norm.weight"), eps=eps, cos=tables[0], sin=tables[1],
        )  # fmt: skip
        heads = backend.attention(qkv, layout, causal=True, out=scratch.heads)
        o_proj = block.matrix("self_attn.o_proj.weight")
        update = backend.linear(heads, o_proj, accuracy=accuracy, out=scratch.normed)
        backend.scaled_residual(hidden, update)

    def _feed_forward(self, hidden: Array, block: Block, scratch: _Scratch) -> None:
        """hidden += down(silu(gate) * up)."""
        backend, accuracy = block.backend, self.accuracy
        gate_up = _stacked(block, "mlp.gate_up", ("mlp.gate_proj", "mlp.up_proj"))
        weight = block.vector("post_attention_layernorm.weight")
        normed = backend.rms_norm(hidden, weight, self.config.rms_norm_eps, out=scratch.normed)
        gated = backend.linear(normed, gate_up, activation=Activation.SWIGLU, accuracy=accuracy, out=scratch.gated)
        update = backend.linear(gated, block.matrix("mlp.down_proj.weight"), accuracy=accuracy, out=scratch.normed)
        backend.scaled_residual(hidden, update)
