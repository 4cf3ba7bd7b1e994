"""Row order and partition follow the evidence around a file, in a fixed order.

Tier: closed form, one case per line of evidence. Cannot catch a publisher who states the wrong order.
"""

import json
from types import SimpleNamespace

import pytest

from core.errors import CheckpointError
from core.weights.components import ComponentKind
from core.weights.provenance import FileGroup, is_interleaved, partition, sigma_shifts


def group(*, metadata=None, names=(), container="safetensors", count=1, beside=None, model_index=None) -> FileGroup:
    file = SimpleNamespace(
        path=SimpleNamespace(name="f", parent=SimpleNamespace(name="folder")), metadata=metadata or {},
        tensors=dict.fromkeys(names), container=container,
    )  # fmt: skip
    return FileGroup(files=(file,) * count, beside=beside or {}, model_index=model_index or {})


ORIGINAL_INDEX = {
    "_minimax_h3": {"partition": "ref2va", "sigma_shift_scales": {"video": 12.0, "audio": 3.0}, "schema_version": 1}
}
BEE = {"precision": "bf16", "source_revision": "abc"}


@pytest.mark.parametrize(
    ("facts", "interleaved"),
    [
        ({}, False),
        ({"count": 13}, True),
        ({"count": 14}, False),
        ({"model_index": ORIGINAL_INDEX}, True),
        ({"metadata": BEE}, True),
        ({"metadata": BEE | {"precision": "int8"}}, False),
        ({"metadata": BEE | {"config": "{}"}}, False),
        ({"metadata": BEE, "names": ["adaln_t_table"]}, False),
        ({"count": 13, "names": ["blocks.0.attn.qkv_proj.comfy_quant"]}, False),
        ({"count": 13, "container": "gguf"}, False),
        ({"count": 13, "metadata": {"qkv_order": "thirds"}}, False),
        ({"metadata": {"qkv_order": "interleaved", "config": "{}"}}, True),
        ({"beside": {"qkv_per_head": True}, "container": "gguf"}, True),
        ({"beside": {"qkv_per_head": False}, "count": 13}, False),
    ],
)
def test_denoiser_row_order(facts, interleaved):
    assert is_interleaved(ComponentKind.DENOISER, group(**facts)) is interleaved


def test_video_vae_rows_are_head_by_head_unless_stated():
    assert is_interleaved(ComponentKind.VIDEO_VAE, group(metadata={"config": "{}"}))
    assert not is_interleaved(ComponentKind.VIDEO_VAE, group(metadata={"qkv_order": "thirds"}))
    assert not is_interleaved(ComponentKind.TEXT_ENCODER, group(count=13))


def test_an_unknown_row_order_is_refused():
    with pytest.raises(CheckpointError, match="f: qkv_order is 'mixed', expected 'thirds' or 'interleaved'"):
        is_interleaved(ComponentKind.DENOISER, group(metadata={"qkv_order": "mixed"}))


def test_partition_comes_from_the_header_then_the_index():
    assert partition(group(metadata={"partition": "FL2VA"}, model_index=ORIGINAL_INDEX)) == "fl2va"
    assert partition(group(model_index=ORIGINAL_INDEX)) == "ref2va"
    assert partition(group()) == ""


def test_shifts_come_from_the_header_then_the_index():
    stated = {"sigma_shift_scales": json.dumps({"video": 6.0})}
    assert sigma_shifts(group(metadata=stated, model_index=ORIGINAL_INDEX)) == {"video_shift": 6.0}
    assert sigma_shifts(group(model_index=ORIGINAL_INDEX)) == {"video_shift": 12.0, "audio_shift": 3.0}
    assert sigma_shifts(group()) == {}


@pytest.mark.parametrize(("text", "message"), [("{", "is not JSON"), ("[1]", "is not a JSON object")])
def test_damaged_json_statements_are_refused(text, message):
    with pytest.raises(CheckpointError, match=f"f: the metadata entry config {message}"):
        group(metadata={"config": text}).json_metadata("config")
