"""Activation buffers of the denoiser, made once per clip and reused by every block and step.

The trap: `gated` lies in the memory of `qkv`, and `branch` holds a normed input first and the result of the branch
afterwards; a branch reads each before it writes the next. Proof: tests/core/model/test_transformer.py.
"""

from dataclasses import dataclass

from core.kernels.backend import Array, Backend
from core.model.config import DenoiserConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class Scratch:
    """Arrays of `rows` rows.

    branch: [rows, hidden] normed input of an attention or MLP branch, then its output
    qkv:    [rows, 3 * inner] packed q, k, v
    mixed:  [rows, inner] attention output
    gated:  [rows, ffn] inside of the MLP; shares memory with qkv
    """

    branch: Array
    qkv: Array
    mixed: Array
    gated: Array

    @staticmethod
    def make(backend: Backend, config: DenoiserConfig, rows: int) -> "Scratch":
        wide = backend.empty((rows * _wide_columns(config),))

        def view(columns: int) -> Array:
            return backend.reshape(backend.row_slice(wide, 0, rows * columns), (rows, columns))

        return Scratch(
            branch=backend.empty((rows, config.hidden_size)),
            qkv=view(3 * config.inner_dim),
            mixed=backend.empty((rows, config.inner_dim)),
            gated=view(config.ffn_dim),
        )


def _wide_columns(config: DenoiserConfig) -> int:
    return max(3 * config.inner_dim, config.ffn_dim)


def scratch_bytes(config: DenoiserConfig, rows: int) -> int:
    """Bytes of the buffers for a sequence of `rows` rows."""
    return 4 * rows * (config.hidden_size + config.inner_dim + _wide_columns(config))
