"""One whole denoiser block, and a forward of a few blocks, at the released width.

Ours goes through core/model/transformer.py, torch through plain modules of the same maths.

One thread, processor time. The embedded text, the AdaLN tables and the rest of what a clip prepares once are random.
Torch uses the weights of one block for every layer to save memory (1.5 GB in float32, far more than any cache).

The trap: what surrounds the blocks belongs to none of them, and the first and last block lack a norm, which is fused
with the residual before it. A block is timed between the callbacks of two blocks that are neither first nor last.
Proof: tests/dev/bench/test_block.py holds the torch modules against the denoiser.
"""

import gc
import time
from dataclasses import dataclass, replace

import numpy as np
import torch

from core.geometry import LatentGrid
from core.kernels.matrix import Matrix, WeightFormat
from core.kernels.native import NativeBackend
from core.kernels.provider import DictSource, Weights
from core.model import adaln
from core.model.adaln import AdalnTables, plan_tables
from core.model.config import DenoiserConfig
from core.model.layout import LatentRows, PackedLayout, Tag, pack
from core.model.modes import EXACT, DenoiserModes
from core.model.rope import build_rope, inverse_frequencies
from core.model.scratch import Scratch
from core.model.transformer import Denoiser, PreparedClip
from dev.bench import peers
from dev.bench.machine import LimitMeter
from dev.bench.result import Row, Section, Target, worst_of
from dev.bench.synthetic import matrix, normal

RELEASED_LAYERS = 50
LAYERS, FEWEST_LAYERS = 4, 3
BLOCK_SHARE = 0.52  # of the int8 limit
GRID = LatentGrid(latent_t=7, latent_h=22, latent_w=22, audio_latents=37)
TEXT_ROWS = 103  # with the grid's 847 + 74 rows: 1024
FORMATS = (WeightFormat.Q4_K, WeightFormat.Q8_0)


def operations(config: DenoiserConfig, rows: int) -> float:
    """Multiply-adds, counted as two, of one block: four linears and the two products of attention."""
    hidden, inner, ffn = config.hidden_size, config.inner_dim, config.ffn_dim
    linears = hidden * 3 * inner + inner * hidden + hidden * 2 * ffn + ffn * hidden
    return 2.0 * rows * linears + 4.0 * rows * rows * inner


# ---- ours
def block_tensors(config: DenoiserConfig, weight_format: WeightFormat, prefix: str, seed: int) -> dict:
    """Random tensors of one block under canonical names."""
    hidden, inner, ffn = config.hidden_size, config.inner_dim, config.ffn_dim
    shapes = {
        "attn.qkv_proj": (3 * inner, hidden), "attn.out_proj": (hidden, inner), "mlp.fc1": (2 * ffn, hidden),
        "mlp.fc2": (hidden, ffn),
    }  # fmt: skip
    tensors: dict[str, np.ndarray | Matrix] = {
        f"{prefix}.{name}.weight": matrix(weight_format, *shape, seed=seed + i)
        for i, (name, shape) in enumerate(shapes.items())
    }
    for name, size in (("norm1", hidden), ("norm2", hidden), ("attn.q_norm", config.head_dim),
                       ("attn.k_norm", config.head_dim)):  # fmt: skip
        tensors[f"{prefix}.{name}.weight"] = 1 + np.float32(0.1) * normal(size, seed=seed)
    return tensors


def outer_tensors(config: DenoiserConfig) -> dict[str, np.ndarray]:
    """Random tensors of the layers around the blocks."""
    hidden, tensors = config.hidden_size, {"final_layer.norm.weight": np.ones(config.hidden_size, np.float32)}
    for name, width in (("video", config.video_row_width), ("audio", 32)):
        tensors[f"{name}_patch_proj.weight"] = normal(hidden, width) * np.float32(0.1)
        tensors[f"{name}_patch_proj.bias"] = np.zeros(hidden, np.float32)
        tensors[f"final_layer.{name}_out.weight"] = normal(width, hidden) * np.float32(0.01)
        tensors[f"final_layer.{name}_out.bias"] = np.zeros(width, np.float32)
    return tensors


def prepared(model: Denoiser, layout: PackedLayout) -> PreparedClip:
    """A clip of one step whose tables and prefix are random."""
    backend, config = model.backend, model.config
    plan = plan_tables(layout, np.float32([0.25]), np.float32([0.5]))
    entry = (len(plan.entries), adaln.BLOCK_SLOTS, config.hidden_size)
    blocks = tuple(normal(*entry, seed=i) * np.float32(0.2) for i in range(config.num_layers))
    final = normal(len(plan.timesteps), adaln.FINAL_SLOTS, config.hidden_size) * np.float32(0.2)
    return PreparedClip(
        layout=layout,
        tables=AdalnTables(plan, tuple(map(backend.from_numpy, blocks)), backend.from_numpy(final)),
        prefix=backend.from_numpy(normal(layout.prefix_len, config.hidden_size)),
        modes=model.modes.over(layout),
        rope=build_rope(backend, layout.positions, inverse_frequencies(config)),
        scratch=Scratch.make(backend, config, layout.seq_len),
    )


def latents(layout: PackedLayout, config: DenoiserConfig) -> LatentRows:
    video, audio = layout.target_video, layout.target_audio
    return LatentRows(
        video=normal(video.stop - video.start, config.video_row_width), audio=normal(audio.stop - audio.start, 32)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Ours:
    """A denoiser over synthetic weights and a clip for it."""

    model: Denoiser
    clip: PreparedClip
    rows: LatentRows

    @staticmethod
    def make(config: DenoiserConfig, weight_format: WeightFormat, modes: DenoiserModes = EXACT) -> "Ours":
        backend, layout = NativeBackend(threads=1), pack([Tag.TEXT] * TEXT_ROWS, GRID)
        tensors = outer_tensors(config)
        for i in range(config.num_layers):
            tensors |= block_tensors(config, weight_format, f"blocks.{i}", seed=10 * i)
        model = Denoiser(Weights(DictSource(tensors), backend), config, modes)
        return Ours(model=model, clip=prepared(model, layout), rows=latents(layout, config))

    def seconds(self) -> list[float]:
        """Processor seconds of each block of one forward but the first and the last; then of the whole forward."""
        stamps, start = [], time.process_time()
        self.model.forward(self.clip, 0, self.rows, lambda block: stamps.append(time.process_time()))
        whole = time.process_time() - start
        return [after - before for before, after in zip(stamps[:-2], stamps[1:-1], strict=True)] + [whole]


# ---- torch
class TorchBlock:
    """The same block in torch, one dtype throughout. tensors: [out, in] weights under the names below `prefix.`."""

    def __init__(self, tensors: dict[str, torch.Tensor], config: DenoiserConfig):
        self.tensors, self.config = tensors, config

    def _modulated(self, h: torch.Tensor, name: str, table: torch.Tensor, slot: int) -> torch.Tensor:
        normed = torch.nn.functional.rms_norm(h, h.shape[1:], self.tensors[name], self.config.norm_eps)
        return normed * (1 + table[:, slot + 1]) + table[:, slot]

    def _head(self, x: torch.Tensor, name: str, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        """Norm per head, rotation of the pairs (c, c + n); x [rows, heads, head_dim] -> [heads, rows, head_dim]."""
        x = torch.nn.functional.rms_norm(x, x.shape[-1:], self.tensors[name], self.config.qk_norm_eps)
        n = cos.shape[1]
        a, b, rest = x[..., :n], x[..., n : 2 * n], x[..., 2 * n :]
        cos, sin = cos[:, None], sin[:, None]
        return torch.cat([a * cos - b * sin, b * cos + a * sin, rest], -1).transpose(0, 1)

    def __call__(self, h: torch.Tensor, table: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        """h [rows, hidden], table [rows, 6, hidden] (a row's own entries), cos and sin [rows, n] -> [rows, hidden]."""
        config, linear, t = self.config, torch.nn.functional.linear, self.tensors
        x = self._modulated(h, "norm1", table, adaln.SHIFT_ATTN)
        qkv = linear(x, t["qkv_proj"]).view(len(h), 3 * config.num_heads, config.head_dim)
        q, k, v = qkv.split(config.num_heads, 1)
        q, k = self._head(q, "q_norm", cos, sin), self._head(k, "k_norm", cos, sin)
        mixed = torch.nn.functional.scaled_dot_product_attention(q[None], k[None], v.transpose(0, 1)[None])[0]
        mixed = mixed.transpose(0, 1).reshape(len(h), config.inner_dim)
        h = h + table[:, adaln.GATE_ATTN] * linear(mixed, t["out_proj"])
        gate, value = linear(self._modulated(h, "norm2", table, adaln.SHIFT_MLP), t["fc1"]).chunk(2, -1)
        y = linear(torch.nn.functional.silu(gate) * value, t["fc2"])
        return h + table[:, adaln.GATE_MLP] * y


def random_torch_block(config: DenoiserConfig, dtype: torch.dtype) -> TorchBlock:
    hidden, inner, ffn = config.hidden_size, config.inner_dim, config.ffn_dim
    shapes = {"qkv_proj": (3 * inner, hidden), "out_proj": (hidden, inner), "fc1": (2 * ffn, hidden),
              "fc2": (hidden, ffn)}  # fmt: skip
    tensors = {
        name: torch.from_numpy(np.resize(normal(256, columns) * np.float32(0.02), (rows, columns))).to(dtype)
        for name, (rows, columns) in shapes.items()
    }
    tensors |= {name: torch.ones(hidden, dtype=dtype) for name in ("norm1", "norm2")}
    tensors |= {name: torch.ones(config.head_dim, dtype=dtype) for name in ("q_norm", "k_norm")}
    return TorchBlock(tensors, config)


def torch_seconds(config: DenoiserConfig, rows: int, dtype: torch.dtype, layers: int) -> list[float]:
    """Processor seconds of each of `layers` layers in a row."""
    block = random_torch_block(config, dtype)
    h = torch.from_numpy(normal(rows, config.hidden_size)).to(dtype)
    table = torch.from_numpy(normal(rows, adaln.BLOCK_SLOTS, config.hidden_size) * np.float32(0.2)).to(dtype)
    n = inverse_frequencies(config).size * 3
    angle = torch.from_numpy(normal(rows, n))
    cos, sin = angle.cos().to(dtype), angle.sin().to(dtype)
    seconds = []
    for _ in range(layers):
        start = time.process_time()
        h = block(h, table, cos, sin)
        seconds.append(time.process_time() - start)
    return seconds


# ---- the section
def run(meter: LimitMeter, quick: bool) -> Section:
    """One block per format against the int8 limit; a forward of LAYERS blocks against torch."""
    section, config = Section("One block and a short model at full width, 1024 rows, one thread"), DenoiserConfig()
    work, layers = operations(config, 1024), FEWEST_LAYERS if quick else LAYERS
    shares, forward, limits = {}, 0.0, []
    for weight_format in FORMATS:
        blocks = layers if weight_format is WeightFormat.Q4_K else FEWEST_LAYERS
        ours = Ours.make(replace(config, num_layers=blocks), weight_format)
        limits += [meter.ask(meter.int8) for _ in range(3)]
        *seconds, whole = ours.seconds()
        limits += [meter.ask(meter.int8) for _ in range(3)]
        rates = [work / second / 1e9 for second in seconds]
        section.rows.append(_rate_row(f"{weight_format.label} exact", rates))
        shares[weight_format.label] = max(rates) / max(limits)
        forward = whole if weight_format is WeightFormat.Q4_K else forward
        del ours
        gc.collect()
    section.rows.append(_rate_row("limit int8", limits))
    section.targets.append(worst_of("block / int8 limit", shares, BLOCK_SHARE))
    _compare(section, forward, layers, quick)
    return section


def _rate_row(name: str, rates: list[float]) -> Row:
    return Row(case="block 1024", name=name, best=max(rates), median=float(np.median(rates)))


def _compare(section: Section, forward: float, layers: int, quick: bool) -> None:
    """Seconds of a forward of `layers` layers, and of RELEASED_LAYERS by extrapolation."""
    config, found = DenoiserConfig(), {"q4_k exact": forward}
    with torch.inference_mode():
        found[peers.TORCH_FP32] = sum(torch_seconds(config, 1024, torch.float32, layers))
        gc.collect()
        if not quick:
            found[peers.TORCH_BF16] = layers * torch_seconds(config, 1024, torch.bfloat16, 1)[0]
    for name, seconds in found.items():
        for count in (layers, RELEASED_LAYERS):
            scaled = seconds / layers * count
            section.rows.append(Row(case=f"{count} layers", name=name, best=scaled, median=scaled, unit="s"))
    for name in found:
        if name != "q4_k exact":
            section.targets.append(
                Target(name=f"forward: {name} / q4_k exact", value=found[name] / forward, target=1.0)
            )
    section.remarks.append(
        f"{RELEASED_LAYERS} layers are extrapolated from {layers}; torch bfloat16 from one layer. Torch repeats one "
        "block's weights. Ours includes the layers around the blocks."
    )
