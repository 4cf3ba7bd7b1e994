"""Whole models in the layouts people have on disk, and every way a set of files can be wrong.

Tier: self-consistency over files written by the `safetensors` and `gguf` packages; all layouts give equal tensors.
Cannot catch a packaging that nobody has described.
"""

import errno
import json
import os
import shutil
import struct
from dataclasses import replace

import gguf
import numpy as np
import psutil
import pytest
import torch

from core.errors import CheckpointError
from core.kernels.matrix import WeightFormat
from core.kernels.provider import Weights
from core.kernels.reference import ReferenceBackend
from core.kernels.reference_dequant import expand
from core.weights.checkpoint import open_model_set
from core.weights.components import ComponentKind
from tests.core.weights import toys
from tests.core.weights.test_gguf import bare, random_blocks, write

CANONICAL = {
    ComponentKind.DENOISER: (toys.DENOISER, toys.canonical_denoiser()),
    ComponentKind.TEXT_ENCODER: (toys.TEXT, toys.canonical_text()),
    ComponentKind.VIDEO_VAE: (toys.VIDEO, toys.canonical_video()),
    ComponentKind.AUDIO_VAE: (toys.AUDIO, toys.canonical_audio()),
}
BARE = {
    ComponentKind.DENOISER: (toys.BARE_DENOISER, toys.canonical_denoiser(toys.BARE_DENOISER)),
    ComponentKind.TEXT_ENCODER: (toys.BARE_TEXT, toys.canonical_text(toys.BARE_TEXT)),
    ComponentKind.VIDEO_VAE: (toys.BARE_VIDEO, toys.canonical_video(toys.BARE_VIDEO)),
    ComponentKind.AUDIO_VAE: (toys.BARE_AUDIO, toys.canonical_audio(toys.BARE_AUDIO)),
}


def write_json(path, value):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value))


def save_shards(folder, tensors, count, *, stem="model", index=True):
    """Tensors spread over `count` files, with an index of them."""
    names = sorted(tensors)
    files = [f"{stem}-{number:05d}-of-{count:05d}.safetensors" for number in range(1, count + 1)]
    for number, file in enumerate(files):
        toys.save(folder / file, {name: tensors[name] for name in names[number::count]})
    if index:
        weight_map = {name: files[position % count] for position, name in enumerate(names)}
        write_json(folder / f"{stem}.safetensors.index.json", {"metadata": {}, "weight_map": weight_map})


def embedded_form(folder):
    return toys.save_model(folder)


def original_tree(folder):
    """The publisher's own layout: shards, rows head by head, weight norm, configurations beside."""
    shifts = {"video": 5.0, "audio": 2.0}
    write_json(
        folder / "model_index.json",
        {"_minimax_h3": {"partition": "fl2va", "sigma_shift_scales": shifts, "schema_version": 1}},
    )
    save_shards(folder / "transformer", toys.per_head(toys.canonical_denoiser(), 4, ("qkv_proj",)), 13)
    write_json(folder / "transformer/config.json", toys.DENOISER_STATED | {"default_steps": 9})
    text = {f"model.language_model.{name}": value for name, value in toys.canonical_text().items()}
    text |= {"lm_head.weight": np.zeros((37, 20), np.float32), "model.visual.blocks.0.x": np.zeros(3, np.float32)}
    save_shards(folder / "text_encoder", text, 3, index=False)
    write_json(folder / "text_encoder/config.json", {"hidden_size": 9, "text_config": toys.TEXT_STATED})
    video = toys.per_head(toys.canonical_video(), 3, ("to_qkv",))
    video["decoder.mask_token"] = np.zeros((1, 1, 24), np.float32)
    toys.save(folder / "video_vae/source/model.safetensors", video)
    means = {name: list(getattr(toys.VIDEO, name)) for name in ("latents_mean", "latents_std")}
    write_json(folder / "video_vae/config.json", toys.VIDEO_STATED | means)
    toys.save(folder / "audio_vae/model.safetensors", toys.canonical_audio())
    means = {name: list(getattr(toys.AUDIO, name)) for name in ("latents_mean", "latents_std")}
    write_json(folder / "audio_vae/config.json", toys.AUDIO_STATED | means)
    return folder


def diffusers_tree(folder):
    """The diffusers layout: split projections, [value; gate], configurations in diffusers keys."""
    save_shards(folder / "transformer", toys.diffusers_denoiser(toys.canonical_denoiser()), 2)
    stated = {"video_shift": 5.0, "audio_shift": 2.0, "default_steps": 9}
    write_json(folder / "transformer/config.json", toys.DENOISER_DIFFUSERS | stated)
    text = {f"model.language_model.{name}": value for name, value in toys.canonical_text().items()}
    toys.save(folder / "text_encoder/model.safetensors", text)
    write_json(folder / "text_encoder/config.json", {"text_config": toys.TEXT_STATED})
    toys.save(folder / "vae/diffusion_pytorch_model.safetensors", toys.diffusers_video(toys.canonical_video()))
    means = {name: list(getattr(toys.VIDEO, name)) for name in ("latents_mean", "latents_std")}
    write_json(folder / "vae/config.json", toys.VIDEO_STATED | means)
    toys.save(folder / "audio_vae/diffusion_pytorch_model.safetensors", toys.canonical_audio())
    means = {name: list(getattr(toys.AUDIO, name)) for name in ("latents_mean", "latents_std")}
    write_json(folder / "audio_vae/config.json", toys.AUDIO_STATED | means)
    return folder


def bare_tensors(kind, prefix=""):
    return {prefix + name: value for name, value in BARE[kind][1].items()}


def bare_safetensors(folder):
    """Single files that state nothing, flat in one folder with files of other programs."""
    toys.save(folder / "dit", bare_tensors(ComponentKind.DENOISER, "model.diffusion_model."))
    toys.save(folder / "te.safetensors", bare_tensors(ComponentKind.TEXT_ENCODER, "model."))
    toys.save(folder / "v.safetensors", toys.per_head(bare_tensors(ComponentKind.VIDEO_VAE), 2, ("to_qkv",)))
    toys.save(folder / "a.safetensors", bare_tensors(ComponentKind.AUDIO_VAE))
    toys.save(folder / "lora.safetensors", {"blocks.0.attn.out_proj.lora_A.weight": np.zeros((2, 2), np.float32)})
    write_json(folder / "config.json", {"hidden_size": 5, "num_layers": 77})
    (folder / "._te.safetensors").write_bytes(b"\x00\x05\x16\x07")
    (folder / "next.safetensors.part").write_bytes(b"abc")
    (folder / "readme.txt").write_text("weights")
    return folder


def bare_gguf(folder):
    """Denoiser and text encoder as GGUF, one without any metadata, one with another model's architecture."""
    folder.mkdir()
    tensors = {n: (v.shape, 0, v.tobytes()) for n, v in bare_tensors(ComponentKind.DENOISER).items()}
    (folder / "dit.gguf").write_bytes(bare(tensors))
    text = bare_tensors(ComponentKind.TEXT_ENCODER, "model.")
    write(folder / "te.gguf", {name: (value, gguf.GGMLQuantizationType.F32) for name, value in text.items()})
    toys.save(folder / "v.safetensors", toys.diffusers_video(bare_tensors(ComponentKind.VIDEO_VAE)))
    toys.save(folder / "a.safetensors", bare_tensors(ComponentKind.AUDIO_VAE))
    return folder


@pytest.mark.parametrize(
    ("layout", "canonical"),
    [
        (embedded_form, CANONICAL), (original_tree, CANONICAL), (diffusers_tree, CANONICAL), (bare_safetensors, BARE),
        (bare_gguf, BARE),
    ],
)  # fmt: skip
def test_every_layout_gives_the_same_model(tmp_path, layout, canonical):
    models = open_model_set(layout(tmp_path / "model"))
    for kind, (config, tensors) in canonical.items():
        component = models.components[kind]
        assert component.config == config
        for name, value in tensors.items():
            if component.source.has(name) or name != "rope.inv_freq":  # diffusers files leave it out
                np.testing.assert_array_equal(component.source.values(name), value, err_msg=name)


MIXES = {  # types of the stacked projections, of fc1 and of the other matrices of a block
    "plain": "Q4_K Q4_0 Q8_0", "wide": "Q6_K Q5_K Q3_K", "narrow": "Q2_K Q5_0 Q5_1", "offset": "Q3_K Q4_1 Q6_K",
}  # fmt: skip


def quantised(name, value, mix):
    """(data, type) as a mixed GGUF has them: the matrices of the blocks in the types of `mix`, the rest untouched."""
    if value.ndim != 2 or ".attn." not in name and ".mlp." not in name:
        return value, gguf.GGMLQuantizationType.F32
    stacked, first, others = (gguf.GGMLQuantizationType[word] for word in mix.split())
    kind = stacked if "qkv_proj" in name else first if "fc1" in name else others
    data = random_blocks(kind, *value.shape) if kind.name.endswith("_K") else gguf.quantize(value, kind)
    return data, kind


@pytest.mark.parametrize("mix", MIXES.values(), ids=MIXES)
def test_a_mixed_quantised_denoiser_holds_the_values_of_its_blocks(tmp_path, mix):
    config = replace(toys.BARE_DENOISER, hidden_size=256, num_layers=1, ffn_dim=256)
    stored = {name: quantised(name, value, mix) for name, value in toys.canonical_denoiser(config).items()}
    folder = bare_safetensors(tmp_path / "model")
    (folder / "dit").unlink()
    write(folder / "dit.gguf", stored)
    got, source = open_model_set(folder).denoiser
    assert got == config
    for leaf, kind in zip(("attn.qkv_proj", "mlp.fc1", "mlp.fc2"), mix.split(), strict=True):
        assert source.matrix(f"blocks.0.{leaf}.weight").spans[0].format is WeightFormat[kind]
    for name, (data, kind) in stored.items():
        np.testing.assert_array_equal(source.values(name), gguf.dequantize(data, kind), err_msg=name)
        if source.values(name).ndim == 2:
            np.testing.assert_array_equal(expand(source.matrix(name)), source.values(name), err_msg=name)


def test_the_four_parts_are_properties_and_work_with_a_backend(tmp_path):
    models = open_model_set(str(toys.save_model(tmp_path / "a model")))
    assert [part[0] for part in (models.denoiser, models.text_encoder, models.video_vae, models.audio_vae)] == [
        toys.DENOISER, toys.TEXT, toys.VIDEO, toys.AUDIO,
    ]  # fmt: skip
    assert models.components[ComponentKind.DENOISER].partition == "fl2va"
    sizes = [value.size for value in toys.canonical_audio().values()]
    assert models.components[ComponentKind.AUDIO_VAE].stored_bytes == 4 * sum(sizes)
    weights = Weights(models.denoiser[1], ReferenceBackend())
    x = torch.ones(2, 24)
    with weights.block("blocks.0", ahead="blocks.1") as block:
        y = weights.backend.linear(x, block.matrix("mlp.fc1.weight"))
    expected = np.ones((2, 24), np.float32) @ toys.canonical_denoiser()["blocks.0.mlp.fc1.weight"].T
    np.testing.assert_allclose(y.numpy(), expected, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_files_hold_rounded_values(tmp_path, dtype):
    folder = toys.save_model(tmp_path / "model")
    toys.save(folder / "transformer.safetensors", toys.canonical_denoiser(), toys.DENOISER_METADATA, dtype=dtype)
    source = open_model_set(folder).denoiser[1]
    name = "blocks.1.attn.qkv_proj.weight"
    expected = torch.from_numpy(toys.canonical_denoiser()[name]).to(dtype).float().numpy()
    np.testing.assert_array_equal(source.values(name), expected)


def test_vocabulary_and_preview_map_are_found(tmp_path):
    folder = toys.save_model(tmp_path / "model")
    models = open_model_set(folder)
    assert models.vocabulary_path is None and models.latent_rgb is None
    (folder / "vocabulary.tiktoken").write_bytes(b"IQ== 0\n")
    write_json(folder / "latent_rgb.json", {"matrix": [1]})
    models = open_model_set(folder)
    assert models.vocabulary_path == folder / "vocabulary.tiktoken" and models.latent_rgb == {"matrix": [1]}
    listed = open_model_set(sorted(folder.iterdir()))
    assert listed.vocabulary_path == models.vocabulary_path and listed.latent_rgb == models.latent_rgb
    assert listed.content_key == models.content_key
    (folder / "other.tiktoken").write_bytes(b"IQ== 0\n")
    with pytest.raises(CheckpointError, match="two vocabularies: .*other.tiktoken and .*vocabulary.tiktoken"):
        open_model_set(folder)


def test_content_key_follows_weights_and_configuration_not_place(tmp_path):
    first = open_model_set(toys.save_model(tmp_path / "one")).content_key
    assert open_model_set(toys.save_model(tmp_path / "two")).content_key == first
    changed = toys.canonical_audio() | toys.statistics(toys.AUDIO)
    changed["decoder.conv_post.weight"] = changed["decoder.conv_post.weight"] + 1
    toys.save(tmp_path / "two/audio_vae.safetensors", changed, {"config": json.dumps(toys.AUDIO_STATED)})
    second = open_model_set(tmp_path / "two").content_key
    stated = json.dumps(toys.DENOISER_STATED | {"norm_eps": 1e-3})
    toys.save(
        tmp_path / "two/transformer.safetensors", toys.canonical_denoiser(), toys.DENOISER_METADATA | {"config": stated}
    )
    assert len({first, second, open_model_set(tmp_path / "two").content_key}) == 3


def test_links_without_an_extension_are_followed_once(tmp_path):
    blobs, folder = toys.save_model(tmp_path / "blobs"), tmp_path / "model"
    folder.mkdir()
    for index, file in enumerate(sorted(blobs.iterdir())):
        shutil.move(file, blobs / f"{index:064x}")
        (folder / f"link{index}").symlink_to(blobs / f"{index:064x}")
        (folder / f"again{index}").symlink_to(blobs / f"{index:064x}")
    assert open_model_set(folder).denoiser[0] == toys.DENOISER


def test_later_layers_of_a_full_text_encoder_are_not_used(tmp_path):
    folder = toys.save_model(tmp_path / "model")
    longer = toys.canonical_text(replace(toys.TEXT, num_layers=52))
    stated = json.dumps(toys.TEXT_STATED | {"num_hidden_layers": 52})
    toys.save(folder / "text_encoder.safetensors", {f"model.{n}": v for n, v in longer.items()}, {"config": stated})
    assert open_model_set(folder).text_encoder[0].num_layers == 50


def test_all_missing_parts_are_named_together_with_what_was_found(tmp_path):
    folder = toys.save_model(tmp_path / "model")
    (folder / "video_vae.safetensors").unlink()
    (folder / "text_encoder.safetensors").unlink()
    toys.save(folder / "turbo.safetensors", {"blocks.0.attn.out_proj.lora_A.weight": np.zeros((2, 2), np.float32)})
    whole = (folder / "audio_vae.safetensors").read_bytes()
    (folder / "audio_vae.safetensors").write_bytes(whole[:-1])
    with pytest.raises(CheckpointError) as caught:
        open_model_set(folder)
    assert caught.value.message == (
        f"{folder} lacks the text encoder, the video VAE and the audio VAE. Not usable: audio_vae.safetensors is "
        f"incomplete: {len(whole) - 1} of {len(whole)} bytes; turbo.safetensors holds a LoRA adapter."
    )
    assert caught.value.hint == "Download the file again."


def test_an_empty_folder_and_a_wrong_path_say_so(tmp_path):
    with pytest.raises(CheckpointError) as caught:
        open_model_set(tmp_path)
    assert caught.value.message == f"{tmp_path} lacks the denoiser, the text encoder, the video VAE and the audio VAE."
    assert "add the missing files" in caught.value.hint
    with pytest.raises(CheckpointError, match="gone does not exist"):
        open_model_set(tmp_path / "gone")


def test_a_folder_that_may_not_be_read_is_a_sentence(tmp_path, monkeypatch):
    def refuse(folder):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr("core.weights.discovery.os.scandir", refuse)  # the tests may run as root, who is never refused
    with pytest.raises(CheckpointError, match="cannot be read: Permission denied"):
        open_model_set(tmp_path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"version https://git-lfs\noid sha256:1\n", "is a pointer, the file itself is not here"),
        (b"PK\x03\x04" + b"\0" * 30, "is a pickled torch file"),
        (b"<html>not found</html>", "is no model file"),
        (b"", "is no model file"),
    ],
)
def test_a_file_that_is_no_model_is_named(tmp_path, content, message):
    path = tmp_path / "dit.safetensors"
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match=rf"lacks the denoiser.*dit.safetensors {message}"):
        open_model_set([path])


def test_two_files_for_one_part_are_refused(tmp_path):
    folder = toys.save_model(tmp_path / "model")
    shutil.copy(folder / "audio_vae.safetensors", folder / "copy.safetensors")
    with pytest.raises(CheckpointError, match="two files for the audio VAE: .*audio_vae.safetensors and .*copy.safe"):
        open_model_set(folder)


@pytest.mark.parametrize("index", [True, False])
def test_a_missing_shard_is_named(tmp_path, index):
    folder = toys.save_model(tmp_path / "model")
    (folder / "transformer.safetensors").unlink()
    save_shards(folder / "transformer", toys.canonical_denoiser(), 3, index=index)
    (folder / "transformer/model-00002-of-00003.safetensors").unlink()
    with pytest.raises(
        CheckpointError, match=r"lacks the denoiser\. Not usable: model.*made of 3 files, missing model-00002-of-00003"
    ) as caught:
        open_model_set(folder)
    assert caught.value.hint == "Download the missing files."


def test_a_configuration_that_disagrees_with_the_tensors_names_them(tmp_path):
    folder = toys.save_model(tmp_path / "model")
    stated = json.dumps(toys.DENOISER_STATED | {"ffn_hidden_size": 48})
    toys.save(
        folder / "transformer.safetensors", toys.canonical_denoiser(), toys.DENOISER_METADATA | {"config": stated}
    )
    with pytest.raises(CheckpointError) as caught:
        open_model_set(folder)
    assert caught.value.message == (
        "transformer.safetensors: token_refiner.blocks.0.mlp.fc1.weight is [80, 24], expected [96, 24]; "
        "token_refiner.blocks.0.mlp.fc2.weight is [24, 40], expected [24, 48]; "
        "blocks.0.mlp.fc1.weight is [80, 24], expected [96, 24] and 3 more."
    )


def test_a_missing_tensor_is_named(tmp_path):
    folder = toys.save_model(tmp_path / "model")
    tensors = toys.canonical_denoiser()
    del tensors["blocks.1.norm2.weight"]
    toys.save(folder / "transformer.safetensors", tensors, toys.DENOISER_METADATA)
    with pytest.raises(CheckpointError, match="transformer.safetensors: blocks.1.norm2.weight is missing"):
        open_model_set(folder)


def test_formats_without_a_kernel_are_refused_with_a_hint(tmp_path):
    folder = toys.save_model(tmp_path / "model")
    tensors = {n: (v, gguf.GGMLQuantizationType.F32) for n, v in toys.canonical_denoiser().items()}
    for name in ("blocks.0.mlp.fc2.weight", "blocks.1.mlp.fc2.weight"):
        shape = tensors[name][0].shape
        tensors[name] = (np.zeros(shape, np.float64), gguf.GGMLQuantizationType.F64)
    (folder / "transformer.safetensors").unlink()
    write(folder / "dit.gguf", tensors, keys={"config": json.dumps(toys.DENOISER_STATED)})
    message = "blocks.0.mlp.fc2.weight and 1 more are stored as f64, which cannot be read"
    with pytest.raises(CheckpointError, match=message) as caught:
        open_model_set(folder)
    assert caught.value.hint == (
        "Use a file in F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q2_K, Q3_K, Q4_K, Q5_K, Q6_K, INT8, FP8 or NVFP4."
    )


def test_opening_reads_headers_only(tmp_path):
    """A denoiser followed by 1 GiB of holes opens without becoming resident: header and sample pages only."""
    folder = toys.save_model(tmp_path / "model")
    path = folder / "transformer.safetensors"
    whole = path.read_bytes()
    length = struct.unpack("<Q", whole[:8])[0]
    header = json.loads(whole[8 : 8 + length])
    end = len(whole) - 8 - length
    header["unused"] = {"dtype": "U8", "shape": [1 << 30], "data_offsets": [end, end + (1 << 30)]}
    text = json.dumps(header).encode()
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + whole[8 + length :])
        file.truncate(8 + len(text) + end + (1 << 30))
    before = psutil.Process().memory_info().rss
    models = open_model_set(folder)
    assert psutil.Process().memory_info().rss - before < 256 << 20
    assert models.denoiser[0] == toys.DENOISER
