"""The accuracy of every product, followed through the model.

Tier: self-consistency, with a backend that notes what it was asked for and computes float32. What a mode costs in
error is measured by `make eval-modes`, not here.
"""

from dataclasses import replace

import numpy as np
import pytest

from core.kernels.backend import FLOAT_ATTENTION, Accuracy, AttentionMode, KvFormat, Window
from core.kernels.provider import Weights
from core.kernels.reference import ReferenceBackend
from core.model.adaln import build_tables, plan_tables
from core.model.layout import KeyframePosition, pack
from core.model.modes import EXACT, FAST, FLOAT, MODEL_MODES, NEAR, DenoiserModes
from core.model.transformer import Denoiser
from core.model.video_decoder import LayerMode, open_video_decoder
from tests.core.model.test_transformer import GRID, TIMES, Case
from tests.oracles import denoiser, vae

EACH_ITS_OWN = DenoiserModes(
    qkv=Accuracy.NEAR, out=Accuracy.EXACT, fc1=Accuracy.FAST, fc2=Accuracy.NEAR, refiner=Accuracy.EXACT,
    attention=AttentionMode(accuracy=Accuracy.FAST, kv=KvFormat.INT8),
)  # fmt: skip
KINDS = {"qkv_proj": "qkv", "out_proj": "out", "fc1": "fc1", "fc2": "fc2"}


class Noting(ReferenceBackend):
    """Notes the accuracy of each weight's product and the mode of each attention, in order."""

    def __init__(self):
        super().__init__()
        self.products: dict[str, Accuracy] = {}
        self.attentions: list[AttentionMode] = []

    def linear(self, x, weight, *, accuracy=Accuracy.FLOAT, **options):
        self.products[weight.name] = accuracy
        return super().linear(x, weight, accuracy=accuracy, **options)

    def attention(self, qkv, layout, *, mode=FLOAT_ATTENTION, **options):
        self.attentions.append(mode)
        return super().attention(qkv, layout, mode=mode, **options)


def forward(modes: DenoiserModes, name: str = "fl2va") -> Noting:
    backend, case = Noting(), Case.make(name)
    weights = Weights(denoiser.source(denoiser.model()), backend)
    plan = plan_tables(case.layout, np.float32([TIMES[0]]), np.float32([TIMES[1]]))
    net = Denoiser(weights, denoiser.CONFIG, modes)
    tables = build_tables(weights, denoiser.CONFIG, plan)
    clip = net.prepare(case.layout, tables, backend.from_numpy(case.text), conditions=case.conditions)
    net.forward(clip, 0, case.latents)
    return backend


def test_every_kind_of_layer_gets_its_own_accuracy_and_everything_else_float():
    products = forward(EACH_ITS_OWN).products
    for name, accuracy in products.items():
        kind = next((KINDS[part] for part in name.split(".") if part in KINDS), "")
        if name.startswith(("token_refiner.", "condition_proj.")):
            assert accuracy is EACH_ITS_OWN.refiner, name
        elif kind:
            assert accuracy is getattr(EACH_ITS_OWN, kind), name
        else:
            assert accuracy is Accuracy.FLOAT, name
    for name in ("video_patch_proj.weight", "final_layer.audio_out.weight", "blocks.2.adaln_proj.linear.weight"):
        assert products[name] is Accuracy.FLOAT
    assert sum(name.startswith("blocks.") and "adaln" not in name for name in products) == 4 * 3


def test_attention_of_the_refiner_stays_float_and_knows_no_window():
    modes = replace(EACH_ITS_OWN, window_radius=2)
    attentions = forward(modes).attentions
    assert attentions[:2] == [FLOAT_ATTENTION] * 2 and len(attentions) == 2 + 3
    assert all(mode.accuracy is Accuracy.FAST and mode.kv is KvFormat.INT8 for mode in attentions[2:])


def test_the_window_begins_at_the_target_video_and_counts_rows_of_a_frame():
    layout = pack([1] * 9, GRID, keyframes=(KeyframePosition.FIRST,))
    window = replace(FLOAT, window_radius=2).over(layout).attention.window
    assert window == Window(start=layout.target_video.start, rows_per_frame=2 * 3, radius=2)
    assert layout.seq_len - window.start == GRID.latent_t * window.rows_per_frame
    assert FLOAT.over(layout) is FLOAT


@pytest.mark.parametrize("modes", [NEAR, EXACT, FAST])
def test_the_refiner_gets_at_least_near(modes):
    assert modes.refiner in (Accuracy.FLOAT, Accuracy.NEAR)


def test_another_storage_of_keys_and_values_changes_nothing_else():
    changed = NEAR.with_kv(KvFormat.INT4)
    assert changed.attention == AttentionMode(accuracy=NEAR.attention.accuracy, kv=KvFormat.INT4)
    assert changed.with_kv(NEAR.attention.kv) == NEAR


def test_layers_of_the_video_decoder_get_its_accuracy_and_the_projections_around_them_float():
    backend = Noting()
    weights = vae.video_weights(backend)
    latent = vae.hashed("modes.tile", 3, 2, 3, 24)
    with open_video_decoder(vae.VIDEO, weights, LayerMode.STREAMED, Accuracy.NEAR) as decoder:
        list(decoder.decode_tiles([latent], frames=np.arange(4)))
    inside = {name for name, accuracy in backend.products.items() if accuracy is Accuracy.NEAR}
    assert inside == {name for name in backend.products if ".transformer_blocks." in name} and len(inside) == 4 * 3


def test_descriptions_are_json_types_and_tell_the_modes_apart():
    descriptions = {name: modes.describe() for name, modes in MODEL_MODES.items()}
    assert len({str(description) for description in descriptions.values()}) == len(MODEL_MODES)
    assert descriptions["float"]["qkv"] == "float" and descriptions["near"]["attention"] == "near"
    assert {type(value) for description in descriptions.values() for value in description.values()} <= {str, type(None)}
