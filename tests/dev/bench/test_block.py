"""torch's block computes what the denoiser's block computes, and the operations are counted right.

Tier: executed reference, the other way round: torch's own operations against core/model/transformer.py.
"""

from dataclasses import replace

import numpy as np
import pytest
import torch

from core.kernels.backend import Modulation
from core.kernels.matrix import WeightFormat
from core.kernels.native import NativeBackend
from core.kernels.provider import DictSource, Weights
from core.kernels.reference_dequant import expand
from core.model.config import DenoiserConfig
from core.model.layout import Tag, pack
from core.model.transformer import Denoiser
from dev.bench import block
from dev.bench.synthetic import normal

CONFIG = DenoiserConfig(hidden_size=256, num_layers=1, num_heads=4, head_dim=128, ffn_dim=512)


def test_the_clip_has_1024_rows():
    assert pack([Tag.TEXT] * block.TEXT_ROWS, block.GRID).seq_len == 1024


def test_operations_of_the_released_block():
    assert block.operations(DenoiserConfig(), 1024) == pytest.approx(2 * 385_351_680 * 1024 + 4 * 56 * 128 * 1024**2)


@pytest.mark.native
def test_torch_computes_the_same_block():
    config, backend = CONFIG, NativeBackend(threads=1)
    layout = pack([Tag.TEXT] * 5, replace(block.GRID, latent_h=4, latent_w=6))
    tensors = block.block_tensors(config, WeightFormat.Q8_0, "blocks.0", seed=3)
    model = Denoiser(Weights(DictSource(tensors | block.outer_tensors(config)), backend), config)
    clip = block.prepared(model, layout)
    h = backend.from_numpy(normal(layout.seq_len, config.hidden_size))
    before, index = torch.from_numpy(h.copy()), clip.tables.plan.block_index(layout, 0)
    modulation = Modulation(clip.tables.blocks[0], index)
    model._attention_half("blocks.0", h, modulation, clip)
    model._mlp_half("blocks.0", "blocks.0", h, modulation, clip)

    theirs = {
        name.removeprefix("blocks.0.").removeprefix("attn.").removeprefix("mlp.").removesuffix(".weight"):
        torch.from_numpy(np.array(tensor if isinstance(tensor, np.ndarray) else expand(tensor), dtype=np.float32))
        for name, tensor in tensors.items()
    }  # fmt: skip
    table = torch.from_numpy(clip.tables.blocks[0][index])
    cos, sin = (torch.from_numpy(array) for array in (clip.rope.cos, clip.rope.sin))
    expected = block.TorchBlock(theirs, config)(before, table, cos, sin).numpy()
    assert np.abs(expected - before.numpy()).max() > 0.1
    assert np.abs(h - expected).max() < 2e-5 * np.abs(expected).max()


@pytest.mark.native
def test_blocks_are_timed_apart_from_the_forward():
    ours = block.Ours.make(replace(CONFIG, num_layers=3), WeightFormat.Q4_K)
    *blocks, whole = ours.seconds()
    assert len(blocks) == 2 and all(second > 0 for second in blocks) and sum(blocks) < whole


def test_torch_layers_are_timed_one_by_one():
    with torch.inference_mode():
        assert len(block.torch_seconds(CONFIG, 9, torch.bfloat16, 2)) == 2
