"""AdaLN: shift, scale and gate of every block, a function of the timestep and the modality alone.

A schedule fixes all timesteps in advance, so the tables of all steps are computed once, one projection in memory at a
time. These projections are 39 % of the released parameters and are not read again.

The trap: two rows of one timestep need different entries when their modalities differ, and only few of the (timestep,
modality) pairs occur; an entry is found by its pair, never by its timestep.
Proof: tests/core/model/test_adaln.py, against the modulation of the diffusers MiniMax-H3 blocks.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from core import constants as c
from core.kernels.backend import Activation, Array
from core.kernels.provider import Weights
from core.model.config import DenoiserConfig
from core.model.layout import PackedLayout, Tag, TimestepClass

SHIFT_ATTN, SCALE_ATTN, GATE_ATTN, SHIFT_MLP, SCALE_MLP, GATE_MLP = range(6)  # slots of a block's table
SHIFT_FINAL, SCALE_FINAL = range(2)  # slots of the final table
BLOCK_SLOTS, FINAL_SLOTS = 6, 2
CURVE_TABLE = "adaln_t_table"  # a checkpoint with this tensor has a curve instead of the time embedder


@dataclass(frozen=True, slots=True, eq=False)
class AdalnPlan:
    """Which table entries a clip needs, and where each step finds them.

    timesteps:        [K] float32, distinct, ascending
    entries:          [E] int32, ascending: index into timesteps * 3 + tag
    class_timesteps:  [steps, 4] int32: index into timesteps by TimestepClass (meaningless for classes not in use)
    """

    timesteps: np.ndarray
    entries: np.ndarray
    class_timesteps: np.ndarray

    def block_index(self, layout: PackedLayout, step: int) -> np.ndarray:
        """Entry of each packed row in the block tables, int32 [seq_len]."""
        wanted = self.class_timesteps[step][layout.timestep_classes] * len(Tag) + layout.tags
        return np.searchsorted(self.entries, wanted).astype(np.int32)

    def final_index(self, layout: PackedLayout, step: int) -> np.ndarray:
        """Entry of each target row in the final table, int32 [seq_len - prefix_len]."""
        return self.class_timesteps[step][layout.timestep_classes[layout.prefix_len :]]


@dataclass(frozen=True, slots=True, eq=False)
class AdalnTables:
    """blocks: one array [E, 6, hidden] per block; final: [K, 2, hidden].

    They follow from the plan's timesteps and entries alone, so plans that agree in both can share them.
    """

    plan: AdalnPlan
    blocks: tuple[Array, ...]
    final: Array


def plan_tables(layout: PackedLayout, video_timesteps: np.ndarray, audio_timesteps: np.ndarray) -> AdalnPlan:
    """Entries that `layout` needs over a schedule of float32 timesteps, one per step and modality."""
    values = np.empty((len(video_timesteps), len(TimestepClass)), dtype=np.float32)
    values[:, TimestepClass.VIDEO] = video_timesteps
    values[:, TimestepClass.AUDIO] = audio_timesteps
    values[:, TimestepClass.CONDITION] = [max(float(t), c.VISUAL_CONDITION_TIMESTEP) for t in video_timesteps]
    values[:, TimestepClass.REFERENCE_AUDIO] = c.REFERENCE_AUDIO_TIMESTEP
    classes, tags = np.unique(np.stack([layout.timestep_classes, layout.tags]), axis=1)
    timesteps = np.unique(values[:, classes])
    class_timesteps = np.searchsorted(timesteps, values).astype(np.int32)
    entries = np.unique(class_timesteps[:, classes] * len(Tag) + tags).astype(np.int32)
    return AdalnPlan(timesteps, entries, class_timesteps)


def table_bytes(config: DenoiserConfig, plan: AdalnPlan) -> int:
    """Bytes that the tables of `plan` hold."""
    per_block = len(plan.entries) * BLOCK_SLOTS * config.hidden_size
    final = len(plan.timesteps) * FINAL_SLOTS * config.hidden_size
    return 4 * (config.num_layers * per_block + final)


def build_tables(
    weights: Weights, config: DenoiserConfig, plan: AdalnPlan, on_block: Callable[[int], None] | None = None
) -> AdalnTables:
    """Evaluate all entries of `plan`, block by block; calls `on_block(i)` after block i."""
    backend = weights.backend
    embedded = embed_timesteps(weights, config, plan.timesteps)
    entries = backend.from_numpy(plan.entries)
    prefixes = [f"blocks.{i}.adaln_proj" for i in range(config.num_layers)] + ["final_layer.adaln_proj"]
    blocks = []
    for i, prefix in enumerate(prefixes[:-1]):
        table = _project(weights, prefix, prefixes[i + 1], embedded)
        every_pair = backend.reshape(table, (len(plan.timesteps) * len(Tag), BLOCK_SLOTS, config.hidden_size))
        blocks.append(backend.take_rows(every_pair, entries))
        if on_block:
            on_block(i)
    final = _project(weights, prefixes[-1], "", embedded)
    final = backend.reshape(final, (len(plan.timesteps), FINAL_SLOTS, config.hidden_size))
    return AdalnTables(plan, tuple(blocks), final)


def _project(weights: Weights, prefix: str, ahead: str, embedded: Array) -> Array:
    """[K, time_dim] -> [K, tags * slots * hidden] with rows in that order (the final layer has no tags)."""
    with weights.block(prefix, ahead=ahead) as block:
        return weights.backend.linear(embedded, block.matrix("linear.weight"), bias=block.vector("linear.bias"))


# ---- time embedding, float32 throughout
def embed_timesteps(weights: Weights, config: DenoiserConfig, timesteps: np.ndarray) -> Array:
    """Input of all AdaLN projections: [K, time_dim], or [K, r] from a curve of width r."""
    backend, root = weights.backend, weights.root
    if root.has(CURVE_TABLE):
        return backend.from_numpy(interpolate_curve(root.values(CURVE_TABLE), timesteps))
    x = backend.from_numpy(time_features(timesteps, config.freq_dim))
    for name in ("time_embedder.proj_in", "time_embedder.proj_out"):
        x = backend.linear(
            x, root.matrix(f"{name}.weight"), bias=root.vector(f"{name}.bias"), activation=Activation.SILU
        )
    return x


def time_features(timesteps: np.ndarray, freq_dim: int) -> np.ndarray:
    """[K, freq_dim] float32: all cosines, then all sines, of the unscaled timestep in 0..1."""
    half = freq_dim // 2
    exponent = np.float32(-math.log(10000.0)) * np.arange(half, dtype=np.float32) / np.float32(half)
    angle = timesteps[:, None] * np.exp(exponent)
    return np.concatenate([np.cos(angle), np.sin(angle)], axis=1)


def interpolate_curve(table: np.ndarray, timesteps: np.ndarray) -> np.ndarray:
    """Rows [K, r] of a curve table [G, r] at timestep 0..1, linear between its points; takes the place of SiLU too."""
    at = np.clip(timesteps, np.float32(0.0), np.float32(1.0)) * np.float32(len(table) - 1)
    low = np.minimum(np.floor(at).astype(np.int64), len(table) - 2)
    part = (at - low.astype(np.float32))[:, None]
    return table[low] + part * (table[low + 1] - table[low])
