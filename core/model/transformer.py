"""The denoiser: one sequence of text, conditions, sound and picture through one stack of blocks.

    prefix = [refined text | projected conditions]                       once per clip
    h      = [prefix | project(audio) | project(video)]                  once per step
    block:   h += gate * attention(norm(h) * (1 + scale) + shift)        full attention, no mask
             h += gate * mlp(norm(h) * (1 + scale) + shift)
    velocity = head(norm(h) * (1 + scale) + shift), target rows only     x0 = x + sigma * velocity

Shift, scale and gate come from AdaLN tables (core/model/adaln.py), chosen per row.

The trap: rows differ in timestep. Text moves with the video schedule, keyframes stay at 0.999, sound has its own clock.
Proof: tests/core/model/test_transformer.py, against diffusers MiniMax-H3 on all three layouts.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from core.errors import KernelError
from core.kernels.backend import Activation, Array, HeadLayout, Modulation, NextNorm
from core.kernels.provider import Block, Weights
from core.model import adaln
from core.model.adaln import AdalnTables
from core.model.config import DenoiserConfig
from core.model.layout import LatentRows, PackedLayout, Tag
from core.model.modes import FLOAT, DenoiserModes
from core.model.rope import Rope, build_rope, inverse_frequencies
from core.model.scratch import Scratch


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PreparedClip:
    """What stays the same over all steps of a clip, used by one forward at a time.

    prefix: [prefix_len, hidden]
    modes:  those of the denoiser, with the window of attention at its place in this clip
    """

    layout: PackedLayout
    tables: AdalnTables
    prefix: Array
    modes: DenoiserModes
    rope: Rope
    scratch: Scratch


def _ignore(block: int) -> None:
    """The default for `on_block`."""


class Denoiser:
    """The transformer over given weights (canonical names: the original checkpoint's, q, k, v rows in thirds)."""

    def __init__(self, weights: Weights, config: DenoiserConfig, modes: DenoiserModes = FLOAT):
        self.weights = weights
        self.backend = weights.backend
        self.config = config
        self.modes = modes
        self.heads = HeadLayout(heads=config.num_heads, kv_heads=config.num_heads, head_dim=config.head_dim)

    # ---- once per clip
    def prepare(
        self,
        layout: PackedLayout,
        tables: AdalnTables,
        text: Array,
        *,
        conditions: Sequence[np.ndarray] = (),
        halve_space: bool = False,
    ) -> PreparedClip:
        """Refine the text and project the conditions.

        text:       [L, text_dim] from the text encoder
        conditions: float32 rows of each of `layout.conditions`, in that order (96 or 32 wide)
        raises:     KernelError when rows and layout disagree
        """
        given = [text.shape[0], *map(len, conditions)]
        expected = [segment.stop - segment.start for segment in (layout.text, *layout.conditions)]
        if given != expected:
            raise KernelError(f"The layout has prefix segments of {expected} rows, got {given}.")
        root = self.weights.root
        stored = root.has("rope.inv_freq")
        inv_freq = root.values("rope.inv_freq") if stored else inverse_frequencies(self.config)
        return PreparedClip(
            layout=layout,
            tables=tables,
            prefix=self.backend.concat_rows([self.refine_text(text), *self._project_conditions(layout, conditions)]),
            modes=self.modes.over(layout),
            rope=build_rope(self.backend, layout.positions, inv_freq, halve_space=halve_space),
            scratch=Scratch.make(self.backend, self.config, layout.seq_len),
        )

    def refine_text(self, text: Array) -> Array:
        """[L, text_dim] -> [L, hidden]: projection, then plain pre-norm blocks without rotation or modulation."""
        backend, config, root = self.backend, self.config, self.weights.root
        scratch, modes = Scratch.make(backend, config, text.shape[0]), self.modes.in_refiner()
        weight, bias = root.matrix("condition_proj.weight"), root.vector("condition_proj.bias")
        h = backend.linear(text, weight, bias=bias, accuracy=self.modes.refiner)
        prefixes = [f"token_refiner.blocks.{i}" for i in range(config.num_refiner_layers)]
        for prefix, following in zip(prefixes, [*prefixes[1:], "blocks.0"], strict=True):
            normed = backend.rms_norm(h, root.vector(f"{prefix}.norm1.weight"), config.norm_eps, out=scratch.branch)
            with self.weights.block(f"{prefix}.attn", ahead=f"{prefix}.mlp") as block:
                backend.scaled_residual(h, self._attention(block, normed, modes, None, scratch))
            normed = backend.rms_norm(h, root.vector(f"{prefix}.norm2.weight"), config.norm_eps, out=scratch.branch)
            with self.weights.block(f"{prefix}.mlp", ahead=f"{following}.attn") as block:
                backend.scaled_residual(h, self._mlp(block, normed, modes, scratch))
        return backend.rms_norm(h, root.vector("token_refiner.final_norm.weight"), config.final_norm_eps)

    def _project_conditions(self, layout: PackedLayout, conditions: Sequence[np.ndarray]) -> list[Array]:
        names = ["audio" if segment.kind.tag is Tag.AUDIO else "video" for segment in layout.conditions]
        return [self._patch_proj(name, rows) for name, rows in zip(names, conditions, strict=True)]

    def _patch_proj(self, modality: str, rows: np.ndarray) -> Array:
        """Rows of latents -> [rows, hidden], exact in every accuracy mode: the checkpoint keeps it in float32."""
        root = self.weights.root
        weight, bias = root.matrix(f"{modality}_patch_proj.weight"), root.vector(f"{modality}_patch_proj.bias")
        return self.backend.linear(self.backend.from_numpy(rows), weight, bias=bias)

    # ---- once per step
    def forward(
        self, clip: PreparedClip, step: int, latents: LatentRows, on_block: Callable[[int], None] = _ignore
    ) -> LatentRows:
        """Velocity of the target rows at schedule position `step`.

        latents:  current target rows
        on_block: called with the block's number after each block; may raise to stop
        """
        backend, layers = self.backend, self.config.num_layers
        audio, video = self._patch_proj("audio", latents.audio), self._patch_proj("video", latents.video)
        h = backend.concat_rows([clip.prefix, audio, video])
        row_index = backend.from_numpy(clip.tables.plan.block_index(clip.layout, step))
        first = self._norm(clip, 0, adaln.SHIFT_ATTN)
        normed = backend.norm_modulate(
            h, first.weight, first.eps, Modulation(first.table, row_index),
            shift_slot=first.shift_slot, scale_slot=first.scale_slot, out=clip.scratch.branch,
        )  # fmt: skip
        for i in range(layers):
            modulation = Modulation(clip.tables.blocks[i], row_index)
            self._attention_half(i, h, normed, modulation, clip)
            self._mlp_half(i, h, normed, modulation, clip)
            on_block(i)
        return self._heads(clip, step, h)

    # A block's two halves fetch and release their weights apart: the AdaLN projection beside them stays unread.
    # `normed` lies in scratch.branch: a half reads it and leaves there the input of the half behind it.
    def _attention_half(self, i: int, h: Array, normed: Array, modulation: Modulation, clip: PreparedClip) -> None:
        with self.weights.block(f"blocks.{i}.attn", ahead=f"blocks.{i}.mlp") as block:
            y = self._attention(block, normed, clip.modes, clip.rope, clip.scratch)
        self.backend.gated_residual_norm(
            h, y, modulation, gate_slot=adaln.GATE_ATTN, norm=self._norm(clip, i, adaln.SHIFT_MLP), out=normed
        )

    def _mlp_half(self, i: int, h: Array, normed: Array, modulation: Modulation, clip: PreparedClip) -> None:
        layers = self.config.num_layers
        with self.weights.block(f"blocks.{i}.mlp", ahead=f"blocks.{(i + 1) % layers}.attn") as block:
            y = self._mlp(block, normed, clip.modes, clip.scratch)
        if i + 1 == layers:
            self.backend.gated_residual(h, y, modulation, gate_slot=adaln.GATE_MLP)
            return
        self.backend.gated_residual_norm(
            h, y, modulation, gate_slot=adaln.GATE_MLP, norm=self._norm(clip, i + 1, adaln.SHIFT_ATTN), out=normed
        )

    def _norm(self, clip: PreparedClip, i: int, shift_slot: int) -> NextNorm:
        """The norm in front of a half of block i, the half that `shift_slot` belongs to."""
        name = "norm1" if shift_slot == adaln.SHIFT_ATTN else "norm2"
        return NextNorm(
            weight=self.weights.root.vector(f"blocks.{i}.{name}.weight"),
            eps=self.config.norm_eps,
            table=clip.tables.blocks[i],
            shift_slot=shift_slot,
            scale_slot=shift_slot + 1,
        )

    def _heads(self, clip: PreparedClip, step: int, h: Array) -> LatentRows:
        """Final norm and the two output projections, exact in every accuracy mode."""
        backend, root, layout = self.backend, self.weights.root, clip.layout
        index = backend.from_numpy(clip.tables.plan.final_index(layout, step))
        y = backend.norm_modulate(
            backend.row_slice(h, layout.prefix_len, layout.seq_len),
            root.vector("final_layer.norm.weight"), self.config.final_norm_eps, Modulation(clip.tables.final, index),
            shift_slot=adaln.SHIFT_FINAL, scale_slot=adaln.SCALE_FINAL,
            out=backend.row_slice(clip.scratch.branch, layout.prefix_len, layout.seq_len),
        )  # fmt: skip
        velocity = {}
        for name, segment in (("video", layout.target_video), ("audio", layout.target_audio)):
            rows = backend.row_slice(y, segment.start - layout.prefix_len, segment.stop - layout.prefix_len)
            weight, bias = root.matrix(f"final_layer.{name}_out.weight"), root.vector(f"final_layer.{name}_out.bias")
            velocity[name] = backend.to_numpy(backend.linear(rows, weight, bias=bias))
        return LatentRows(**velocity)

    # ---- the two branches; x may be scratch.branch, which the result overwrites
    def _attention(self, block: Block, x: Array, modes: DenoiserModes, rope: Rope | None, scratch: Scratch) -> Array:
        backend, config = self.backend, self.config
        qkv = backend.linear(x, block.matrix("qkv_proj.weight"), accuracy=modes.qkv, out=scratch.qkv)
        backend.qk_norm_rope(
            qkv, self.heads,
            q_weight=block.vector("q_norm.weight"), k_weight=block.vector("k_norm.weight"),
            eps=config.qk_norm_eps, cos=rope and rope.cos, sin=rope and rope.sin,
        )  # fmt: skip
        mixed = backend.attention(qkv, self.heads, mode=modes.attention, out=scratch.mixed)
        return backend.linear(mixed, block.matrix("out_proj.weight"), accuracy=modes.out, out=scratch.branch)

    def _mlp(self, block: Block, x: Array, modes: DenoiserModes, scratch: Scratch) -> Array:
        """fc2(silu(gate) * value); rows of fc1 are [gate; value]."""
        backend = self.backend
        fc1, fc2 = block.matrix("fc1.weight"), block.matrix("fc2.weight")
        gated = backend.product_input(x.shape[0], fc2, modes.fc2, scratch.gated)
        backend.linear(x, fc1, activation=Activation.SWIGLU, accuracy=modes.fc1, out=gated)
        return backend.linear(gated, fc2, accuracy=modes.fc2, out=scratch.branch)
