"""torch's block computes what the denoiser's block computes, and the operations are counted right.

Tier: executed reference, the other way round: torch's own operations against core/model/transformer.py.
"""

from dataclasses import replace

import numpy as np
import pytest
import torch

from core.kernels.matrix import WeightFormat
from core.kernels.native import NativeBackend
from core.kernels.provider import DictSource, Weights
from core.kernels.reference_dequant import expand
from core.model import modes
from core.model.config import DenoiserConfig
from core.model.layout import LatentRows, Tag, pack
from core.model.transformer import Denoiser, PreparedClip
from dev.bench import block

CONFIG = DenoiserConfig(hidden_size=256, num_layers=1, num_heads=4, head_dim=128, ffn_dim=512)


def test_the_clip_has_1024_rows():
    assert pack([Tag.TEXT] * block.TEXT_ROWS, block.GRID).seq_len == 1024


def test_operations_of_the_released_block():
    assert block.operations(DenoiserConfig(), 1024) == pytest.approx(2 * 385_351_680 * 1024 + 4 * 56 * 128 * 1024**2)


def torch_forward(config: DenoiserConfig, tensors: dict, clip: PreparedClip, rows: LatentRows) -> list[np.ndarray]:
    """Velocities (video, audio) of a model of one block, the block by TorchBlock, what surrounds it written out."""
    linear = torch.nn.functional.linear
    t = {name: torch.from_numpy(np.array(v if isinstance(v, np.ndarray) else expand(v), dtype=np.float32))
         for name, v in tensors.items()}  # fmt: skip
    inputs = [
        linear(torch.from_numpy(values), t[f"{name}_patch_proj.weight"], t[f"{name}_patch_proj.bias"])
        for name, values in (("audio", rows.audio), ("video", rows.video))
    ]
    index, final = clip.tables.plan.block_index(clip.layout, 0), clip.tables.plan.final_index(clip.layout, 0)
    inside = {name.split(".")[-2]: tensor for name, tensor in t.items() if name.startswith("blocks.0.")}
    h = torch.cat([torch.from_numpy(clip.prefix), *inputs])
    table, cos, sin = (torch.from_numpy(a) for a in (clip.tables.blocks[0][index], clip.rope.cos, clip.rope.sin))
    h = block.TorchBlock(inside, config)(h, table, cos, sin)[clip.layout.prefix_len :]
    shift, scale = torch.from_numpy(clip.tables.final[final]).unbind(1)
    y = torch.nn.functional.rms_norm(h, h.shape[1:], t["final_layer.norm.weight"], config.final_norm_eps)
    y = y * (1 + scale) + shift
    parts = {"audio": y[: len(rows.audio)], "video": y[len(rows.audio) :]}
    return [linear(parts[name], t[f"final_layer.{name}_out.weight"]).numpy() for name in ("video", "audio")]


@pytest.mark.native
def test_torch_computes_the_same_block():
    layout = pack([Tag.TEXT] * 5, replace(block.GRID, latent_h=4, latent_w=6))
    tensors = block.block_tensors(CONFIG, WeightFormat.Q8_0, "blocks.0", seed=3) | block.outer_tensors(CONFIG)
    model = Denoiser(Weights(DictSource(tensors), NativeBackend(threads=1)), CONFIG, modes.FLOAT)
    clip, rows = block.prepared(model, layout), block.latents(layout, CONFIG)
    got = model.forward(clip, 0, rows)
    for ours, theirs in zip((got.video, got.audio), torch_forward(CONFIG, tensors, clip, rows), strict=True):
        assert np.abs(theirs).max() > 0.1
        assert np.abs(ours - theirs).max() < 2e-5 * np.abs(theirs).max()


@pytest.mark.native
def test_blocks_are_timed_apart_from_the_forward():
    ours = block.Ours.make(replace(CONFIG, num_layers=4), WeightFormat.Q4_K)
    *blocks, whole = ours.seconds()
    assert len(blocks) == 2 and all(second > 0 for second in blocks) and sum(blocks) < whole


def test_torch_layers_are_timed_one_by_one():
    with torch.inference_mode():
        assert len(block.torch_seconds(CONFIG, 9, torch.bfloat16, 2)) == 2
