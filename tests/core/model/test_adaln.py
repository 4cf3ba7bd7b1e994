"""AdaLN plans and tables.

Tier: executed reference (the modulation of the diffusers MiniMax-H3 blocks) for the tables, closed form for the
published table sizes and the curve. Cannot catch a slot that block and table both name wrongly:
test_transformer.py does.
"""

import numpy as np
import pytest
import torch
from diffusers.models.embeddings import get_timestep_embedding

from core.geometry import LatentGrid
from core.kernels.provider import DictSource, Weights
from core.model import adaln
from core.model.config import DenoiserConfig
from core.model.layout import AudioReference, ImageReference, pack
from tests.oracles import backends, denoiser
from tests.oracles.portable import hash_uniform, normal_like

GRID = LatentGrid(latent_t=7, latent_h=4, latent_w=6, audio_latents=37)
TEXT_ONLY = pack([1] * 9, GRID)
MIXED = pack([1, 0, 0, 1], GRID, references=[ImageReference(latent_h=6, latent_w=4), AudioReference(audio_latents=5)])
VIDEO_T = np.array([0.0, 0.25, 0.9995], dtype=np.float32)
AUDIO_T = np.array([0.0, 0.625, 0.75], dtype=np.float32)


@pytest.fixture(params=backends.NAMES)
def backend(request):
    return backends.make(request.param)


def timesteps(steps: int, shift: float) -> np.ndarray:
    base = np.linspace(1.0, 0.0, steps + 1)[:-1]
    return (1.0 - shift * base / (1.0 + (shift - 1.0) * base)).astype(np.float32)


@torch.no_grad()
def diffusers_tables(block_or_norm, steps):
    """Modulation of one diffusers module, [K, rest]."""
    net = denoiser.model()
    embedded = net.time_embedder(net.time_proj(torch.from_numpy(steps)))
    return block_or_norm.linear(torch.nn.functional.silu(embedded)).numpy()


def test_time_features_equal_diffusers():
    steps = np.concatenate([VIDEO_T, AUDIO_T])
    expected = get_timestep_embedding(
        torch.from_numpy(steps), 256, flip_sin_to_cos=True, downscale_freq_shift=0
    ).numpy()
    assert np.abs(adaln.time_features(steps, 256) - expected).max() <= 2**-23


@pytest.mark.parametrize("layout", [TEXT_ONLY, MIXED], ids=["text", "references"])
def test_every_row_finds_the_modulation_that_diffusers_gives_it(backend, layout):
    weights = Weights(denoiser.source(denoiser.model()), backend)
    plan = adaln.plan_tables(layout, VIDEO_T, AUDIO_T)
    tables = adaln.build_tables(weights, denoiser.CONFIG, plan)
    net, hidden = denoiser.model(), denoiser.CONFIG.hidden_size
    for step in range(3):
        by_class = np.array([VIDEO_T[step], AUDIO_T[step], max(VIDEO_T[step], 0.999), 1.0], dtype=np.float32)
        t = by_class[layout.timestep_classes]
        for i, block in enumerate(net.transformer_blocks):
            every = diffusers_tables(block.adaln_proj, t).reshape(layout.seq_len, 3, 6, hidden)
            expected = every[np.arange(layout.seq_len), layout.tags]
            got = backend.to_numpy(tables.blocks[i])[plan.block_index(layout, step)]
            assert np.abs(got - expected).max() <= 2e-6
        expected = diffusers_tables(net.norm_out, t[layout.prefix_len :]).reshape(-1, 2, hidden)
        got = backend.to_numpy(tables.final)[plan.final_index(layout, step)]
        assert np.abs(got - expected).max() <= 2e-6


def test_only_occurring_pairs_have_entries():
    plan = adaln.plan_tables(TEXT_ONLY, VIDEO_T, AUDIO_T)
    assert plan.timesteps.tolist() == np.unique([*VIDEO_T, *AUDIO_T]).tolist()
    assert len(plan.entries) == 9  # per step: video, text, audio
    plan = adaln.plan_tables(MIXED, VIDEO_T, AUDIO_T)
    # The condition has 0.999 twice and shares the last video timestep, which is later; the reference sound has 1.0.
    assert set(plan.timesteps.tolist()) - {*VIDEO_T.tolist(), *AUDIO_T.tolist()} == {np.float32(0.999).item(), 1.0}
    assert len(plan.entries) == 9 + 2


def test_clips_of_other_lengths_need_the_same_entries():
    """The tables of one schedule serve every clip with the same kinds of rows."""
    plan = adaln.plan_tables(TEXT_ONLY, VIDEO_T, AUDIO_T)
    larger = pack([1] * 30, LatentGrid(latent_t=12, latent_h=8, latent_w=6, audio_latents=65))
    again = adaln.plan_tables(larger, VIDEO_T, AUDIO_T)
    assert np.array_equal(plan.timesteps, again.timesteps) and np.array_equal(plan.entries, again.entries)


@pytest.mark.parametrize(("steps", "distinct", "bf16_bytes"), [
    (4, 7, 38.9e6), (6, 10, 58.3e6), (8, 15, 77.8e6), (20, 38, 194.4e6), (40, 78, 388.8e6), (50, 98, 486.0e6),
])  # fmt: skip
def test_tables_of_the_released_model_have_the_published_sizes(steps, distinct, bf16_bytes):
    plan = adaln.plan_tables(TEXT_ONLY, timesteps(steps, 12.0), timesteps(steps, 3.0))
    assert len(plan.entries) == 3 * steps
    assert abs(len(plan.timesteps) - distinct) <= 1  # coinciding grid points may round apart
    assert adaln.table_bytes(DenoiserConfig(), plan) / 2 == pytest.approx(bf16_bytes, rel=2e-3)


def test_table_bytes_are_those_of_the_arrays(backend):
    plan = adaln.plan_tables(MIXED, VIDEO_T, AUDIO_T)
    tables = adaln.build_tables(Weights(denoiser.source(denoiser.model()), backend), denoiser.CONFIG, plan)
    held = sum(backend.to_numpy(table).nbytes for table in (*tables.blocks, tables.final))
    assert held == adaln.table_bytes(denoiser.CONFIG, plan)


def test_projections_are_fetched_one_by_one_and_released(backend):
    class Recorder(DictSource):
        def __init__(self, tensors):
            super().__init__(tensors)
            self.calls = []

        def prefetch(self, prefix):
            self.calls.append(("prefetch", prefix))

        def release(self, prefix):
            self.calls.append(("release", prefix))

    recorder, seen = Recorder(denoiser.source(denoiser.model()).tensors), []
    plan = adaln.plan_tables(TEXT_ONLY, VIDEO_T, AUDIO_T)
    adaln.build_tables(Weights(recorder, backend), denoiser.CONFIG, plan, seen.append)
    names = [f"blocks.{i}.adaln_proj." for i in range(3)] + ["final_layer.adaln_proj."]
    expected = []
    for name, following in zip(names, [*names[1:], None], strict=True):
        expected += [("prefetch", following)] * (following is not None) + [("release", name)]
    assert recorder.calls == expected
    assert seen == [0, 1, 2]


def test_curve_is_linear_between_its_points_and_held_at_its_ends():
    table = normal_like("curve", 5, 3)
    steps = np.array([-0.5, 0.0, 0.25, 0.375, 1.0, 1.5], dtype=np.float32)
    expected = [table[0], table[0], table[1], (table[1] + table[2]) / 2, table[4], table[4]]
    assert np.abs(adaln.interpolate_curve(table, steps) - np.array(expected)).max() <= 1e-6


def test_a_curve_checkpoint_skips_the_time_embedder_and_its_activation(backend):
    tensors = dict(denoiser.source(denoiser.model()).tensors)
    tensors = {name: value for name, value in tensors.items() if not name.startswith("time_embedder.")}
    tensors["adaln_t_table"] = normal_like("curve", 5, 8)
    for prefix, rows in [(f"blocks.{i}", 18 * 96) for i in range(3)] + [("final_layer", 2 * 96)]:
        tensors[f"{prefix}.adaln_proj.linear.weight"] = hash_uniform(prefix, rows * 8).reshape(rows, 8)
    plan = adaln.plan_tables(TEXT_ONLY, VIDEO_T, AUDIO_T)
    tables = adaln.build_tables(Weights(DictSource(tensors), backend), denoiser.CONFIG, plan)
    coordinates = adaln.interpolate_curve(tensors["adaln_t_table"], plan.timesteps).astype(np.float64)
    weight, bias = (tensors[f"blocks.1.adaln_proj.linear.{part}"] for part in ("weight", "bias"))
    expected = (coordinates @ weight.T + bias).reshape(-1, 6, 96)[plan.entries]
    assert np.abs(backend.to_numpy(tables.blocks[1]) - expected).max() <= 1e-5
