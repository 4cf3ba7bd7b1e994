"""The whole path with the embedded model and the native kernels: a sentence becomes a file that plays.

Tier: executed; the file is judged by an independent decoder (ffmpeg). Whether the picture is what the prompt says is
`make eval-mini`'s business, not this file's.
"""

import json
import os
import re
import resource
import shutil
import subprocess
from dataclasses import replace

import imageio_ffmpeg
import numpy as np
import pytest

from core import paths
from core.errors import Cancelled, KernelError, MediaError, RequestError
from core.kernels.backend import CancelFlag
from core.library.sidecar import restore_request
from core.phase import Phase
from core.pipeline import phases
from core.pipeline.engine import Engine
from core.pipeline.generate import generate
from core.request import GenerationRequest, Keyframe, Reference
from tests.core.pipeline.listening import Listener

pytestmark = [
    pytest.mark.native,
    pytest.mark.skipif(not paths.mini_model_path().is_dir(), reason="the embedded model assets/mini is missing"),
]
FFMPEG = imageio_ffmpeg.get_ffmpeg_exe()
REQUEST = GenerationRequest(prompt="a red circle moves right on a navy background, low tone", seed=7, steps=4)


@pytest.fixture(autouse=True)
def own_home(tmp_path, monkeypatch):
    monkeypatch.setenv("VIGNETTE_HOME", str(tmp_path / "home"))


def frames_of(path: str) -> np.ndarray:
    command = [FFMPEG, "-v", "error", "-i", path, "-f", "rawvideo", "-pix_fmt", "rgb24", "-"]
    raw = subprocess.run(command, capture_output=True, check=True).stdout
    return np.frombuffer(raw, np.uint8).reshape(-1, REQUEST.height, REQUEST.width, 3)


def sound_of(path: str) -> np.ndarray:
    command = [FFMPEG, "-v", "error", "-i", path, "-f", "f32le", "-"]
    raw = subprocess.run(command, capture_output=True, check=True).stdout
    return np.frombuffer(raw, np.float32).reshape(-1, 2)


def make(engine: Engine, folder, request: GenerationRequest = REQUEST) -> tuple[dict, Listener]:
    listener = Listener()
    return generate(engine, request, str(folder / "clip.mp4"), listener, CancelFlag()), listener


def test_a_prompt_becomes_a_clip_with_sound(tmp_path):
    facts, _ = make(Engine(), tmp_path)
    said = subprocess.run([FFMPEG, "-i", facts["output_path"]], capture_output=True, text=True).stderr
    assert re.search(r"Video: h264.* 128x128.* 24 fps", said) and re.search(r"Audio: aac.* 32000 Hz, stereo", said)
    frames, sound = frames_of(facts["output_path"]), sound_of(facts["output_path"])
    assert len(frames) == facts["frame_count"] == 22 and len(sound) >= 29_000
    assert frames.std() > 8 and np.sqrt((sound**2).mean()) > 1e-3


def test_phases_come_in_order_and_every_step_has_a_preview(tmp_path):
    facts, listener = make(Engine(), tmp_path)
    assert [phase for phase, _ in listener.phases] == list(Phase)
    assert [step for step, _ in listener.previews] == [1, 2, 3, 4]
    assert all(rgb.dtype == np.uint8 and rgb.shape == (8, 8, 3) for _, rgb in listener.previews)
    assert set(facts["phase_s"]) == {phase.value for phase in Phase} - {"starting"}


def test_the_same_seed_gives_the_same_pixels_and_another_seed_another_clip(tmp_path):
    engine, clips = Engine(), []
    for number, seed in enumerate((7, 7, 8)):
        (tmp_path / str(number)).mkdir()
        facts, _ = make(engine, tmp_path / str(number), REQUEST.with_seed(seed))
        clips.append(frames_of(facts["output_path"]))
    assert np.array_equal(clips[0], clips[1])
    assert np.abs(clips[0].astype(int) - clips[2]).max() > 8


def test_the_settings_lie_beside_the_clip_and_inside_it(tmp_path):
    facts, _ = make(Engine(), tmp_path)
    record = json.loads((tmp_path / "clip.json").read_text(encoding="utf-8"))
    assert record["noise_rule_version"] == 1 and record["backend"] == "native" and record["steps"] == 4
    assert record["facts"]["seed"] == "7"
    (tmp_path / "clip.json").unlink()
    assert restore_request(facts["output_path"]) == REQUEST


def test_facts_count_the_processor_seconds_of_ffmpeg_too(tmp_path):
    children_before = resource.getrusage(resource.RUSAGE_CHILDREN)
    facts, _ = make(Engine(), tmp_path)
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    ffmpeg_s = children.ru_utime + children.ru_stime - children_before.ru_utime - children_before.ru_stime
    assert ffmpeg_s > 0.02 and facts["cpu_s"] > ffmpeg_s
    assert facts["cpu_s"] <= os.cpu_count() * facts["elapsed_s"] + 0.1


def test_an_existing_clip_gives_way_only_when_asked(tmp_path):
    engine, path = Engine(), tmp_path / "clip.mp4"
    path.write_bytes(b"precious")
    kept, _ = make(engine, tmp_path)
    assert kept["output_path"] == str(tmp_path / "clip-2.mp4") and path.read_bytes() == b"precious"
    replaced = generate(engine, REQUEST, str(path), Listener(), CancelFlag(), overwrite=True)
    assert replaced["output_path"] == str(path) and len(frames_of(path)) == 22


def test_a_file_that_is_not_ours_beside_the_clip_is_kept_with_a_notice(tmp_path):
    (tmp_path / "clip.json").write_bytes(b"")  # what `--json > clip.json` leaves while the render runs
    listener = Listener()
    facts = generate(Engine(), REQUEST, str(tmp_path / "clip.mp4"), listener, CancelFlag(), overwrite=True)
    assert facts["output_path"] == str(tmp_path / "clip.mp4") and (tmp_path / "clip.json").read_bytes() == b""
    assert any("holds something else" in notice for notice in listener.notices)
    (tmp_path / "clip.json").unlink()
    assert restore_request(facts["output_path"]) == REQUEST


def test_a_finished_clip_is_not_lost_because_the_cache_cannot_be_written(tmp_path, monkeypatch):
    (tmp_path / "file").write_bytes(b"")
    monkeypatch.setenv("VIGNETTE_HOME", str(tmp_path / "file" / "home"))
    facts, listener = make(Engine(), tmp_path)
    assert len(frames_of(facts["output_path"])) == 22
    assert [notice for notice in listener.notices if "could not be kept" in notice]


@pytest.mark.parametrize("name", ["file/clip.mp4", "folder"])
def test_an_impossible_output_is_refused_before_anything_is_computed(tmp_path, name):
    (tmp_path / "file").write_bytes(b"")
    (tmp_path / "folder").mkdir()
    listener = Listener()
    with pytest.raises(MediaError) as error:
        generate(Engine(), REQUEST, str(tmp_path / name), listener, CancelFlag())
    assert error.value.hint and not listener.phases


def test_keyframes_and_references_are_refused_rather_than_ignored(tmp_path):
    with_keyframe = replace(REQUEST, keyframes=(Keyframe(path="a.png", position="first"),))
    with_reference = replace(REQUEST, references=(Reference(path="a.wav", kind="audio"),))
    for request in (with_keyframe, with_reference):
        with pytest.raises(RequestError, match="text alone"):
            make(Engine(), tmp_path, request)


def test_later_previews_come_closer_to_the_finished_picture(tmp_path):
    request = GenerationRequest(prompt=REQUEST.prompt, seed=3)
    facts, listener = make(Engine(), tmp_path, request)
    small = frames_of(facts["output_path"])[9:13].mean(0).reshape(8, 16, 8, 16, 3).mean((1, 3))
    distance = [np.abs(rgb.astype(float) - small).mean() for _, rgb in listener.previews]
    assert distance[-1] < 0.5 * distance[0]


@pytest.mark.parametrize("at", [Phase.TEXT, Phase.DENOISE, Phase.AUDIO_DECODE, Phase.VIDEO_DECODE])
def test_a_stopped_render_leaves_nothing(tmp_path, at):
    cancel = CancelFlag()
    listener = Listener(on_phase=lambda phase: phase is at and cancel.set())
    with pytest.raises(Cancelled):
        generate(Engine(), REQUEST, str(tmp_path / "clip.mp4"), listener, cancel)
    assert not [path for path in tmp_path.iterdir() if path.name != "home"]


def test_weights_that_are_not_numbers_are_named_and_leave_nothing(tmp_path, monkeypatch):
    engine = Engine()
    source = engine._model(paths.mini_model_path()).files.denoiser[1]
    honest = type(source).values

    def spoilt(self, name):
        values = honest(self, name)
        return np.full_like(values, np.nan) if name == "blocks.1.norm1.weight" else values

    monkeypatch.setattr(type(source), "values", spoilt)
    with pytest.raises(KernelError, match="not finite in step 1"):
        make(engine, tmp_path)
    assert not list(tmp_path.glob("*.mp4"))


def test_a_prompt_beyond_the_limit_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(phases, "MAX_PROMPT_TOKENS", 3)
    with pytest.raises(RequestError, match="tokens; at most 3"):
        make(Engine(), tmp_path)


def test_weights_replaced_under_the_same_path_are_noticed(tmp_path):
    folder = tmp_path / "model"
    shutil.copytree(paths.mini_model_path(), folder)
    engine = Engine()
    first = engine._model(folder)
    assert engine._model(folder) is first
    weights = folder / "text_encoder.safetensors"
    data = bytearray(weights.read_bytes())
    data[-1] ^= 1
    weights.unlink()
    weights.write_bytes(data)
    assert engine._model(folder) is not first


def test_tables_too_large_to_keep_are_made_again(tmp_path, monkeypatch):
    monkeypatch.setattr(phases, "KEPT_TABLES_BYTES", 0)
    engine = Engine()
    make(engine, tmp_path)
    assert engine._model(paths.mini_model_path()).tables == {}
