"""The export: a real ffmpeg, its output decoded back, and everything that can go wrong with it done to it.

Tier: round trip through an independent decoder (ffmpeg), fault injection. Cannot catch a player that dislikes the file.
"""

import json
import os
import re
import signal
import subprocess
import time
from pathlib import Path

import imageio_ffmpeg
import numpy as np
import pytest

from core.errors import Cancelled, MediaError
from core.geometry import Canvas
from core.library.sidecar import mp4_comment
from core.pipeline import export
from core.pipeline.export import clip_bytes, export_clip, metadata_file, require_free_space, wav_bytes

FFMPEG = imageio_ffmpeg.get_ffmpeg_exe()
CANVAS = Canvas(width=96, height=64)
FRAMES = 22
SAMPLES = 29_600  # 37 latents of 800: a little more than 22 frames last
NASTY = {"prompt": "雨の夜、café — \"émigré\" 🎬\n'line' = two; # \\ \x00 \ud83d", "seed": str(2**63 - 1)}


def moving_pictures() -> np.ndarray:
    """uint8 [22, 64, 96, 3]: smooth colours that drift."""
    t, y, x = np.mgrid[:FRAMES, : CANVAS.height, : CANVAS.width]
    red, green, blue = 255 * (x + t) / 128, 255 * y / 64, 200 - 8 * t
    return np.stack([red, green, blue], axis=-1).clip(0, 255).astype(np.uint8)


def tones() -> np.ndarray:
    """float32 [2, samples]: 440 Hz left, half as loud 880 Hz right."""
    s = np.arange(SAMPLES) / 32_000
    return np.stack([0.5 * np.sin(2 * np.pi * 440 * s), 0.25 * np.sin(2 * np.pi * 880 * s)]).astype(np.float32)


def chunks() -> list[np.ndarray]:
    return list(np.split(moving_pictures(), [17]))


def decode(path: str, *arguments: str) -> bytes:
    command = [FFMPEG, "-v", "error", "-i", path, *arguments, "-"]
    return subprocess.run(command, capture_output=True, check=True).stdout


def fake_ffmpeg(monkeypatch, folder: Path, script: str) -> None:
    """Put a shell script in ffmpeg's place."""
    program = folder / "ffmpeg"
    program.write_text(f"#!/bin/bash\n{script}\n", encoding="utf-8")
    program.chmod(0o755)
    monkeypatch.setenv("IMAGEIO_FFMPEG_EXE", str(program))


@pytest.fixture
def out(tmp_path) -> Path:
    """A folder for results with a space and Chinese in its name."""
    folder = tmp_path / "my clips 视频"
    folder.mkdir()
    return folder


@pytest.fixture(scope="module")
def clip(tmp_path_factory) -> dict:
    path = tmp_path_factory.mktemp("a clip 夜") / "雨 café.mp4"
    return export_clip(chunks(), CANVAS, tones(), path, NASTY)


def test_streams_have_the_promised_formats(clip):
    said = subprocess.run([FFMPEG, "-i", clip["output_path"]], capture_output=True, text=True, encoding="utf-8").stderr
    video, audio = re.findall(r"Stream #.*", said)
    assert "h264" in video and "yuv420p(tv, bt709, progressive)" in video and "96x64" in video and "24 fps" in video
    assert "aac (LC)" in audio and "32000 Hz, stereo" in audio


def test_decoded_pictures_are_the_ones_that_went_in(clip):
    pixels = np.frombuffer(decode(clip["output_path"], "-f", "rawvideo", "-pix_fmt", "rgb24"), np.uint8)
    pictures = pixels.reshape(FRAMES, CANVAS.height, CANVAS.width, 3).astype(float)
    errors = ((pictures - moving_pictures()) ** 2).mean(axis=(1, 2, 3))
    assert 10 * np.log10(255**2 / errors.max()) > 36  # dB, of the worst picture; bt601 instead of bt709 gives 28


def test_decoded_sound_is_the_one_that_went_in_to_the_last_sample(clip):
    sound = np.frombuffer(decode(clip["output_path"], "-f", "f32le", "-ac", "2"), np.float32).reshape(-1, 2).T
    assert sound.shape[1] >= SAMPLES
    assert np.abs(sound[:, :SAMPLES] - tones()).max() < 0.05  # channels swapped: 0.7; default AAC coder: 0.4


def test_the_index_lies_in_front_of_the_media(clip):
    data = Path(clip["output_path"]).read_bytes()
    assert data.index(b"moov") < data.index(b"mdat")


def test_settings_survive_in_the_comment(clip):
    assert json.loads(mp4_comment(clip["output_path"])) == NASTY


def test_a_very_long_prompt_fits_into_the_comment(out):
    settings = {"prompt": "夜" * 100_000}
    facts = export_clip(chunks(), CANVAS, None, out / "long.mp4", settings)
    assert json.loads(mp4_comment(facts["output_path"])) == settings


def test_nothing_but_the_clip_is_left(clip):
    path = Path(clip["output_path"])
    assert os.listdir(path.parent) == [path.name]
    assert clip["frame_count"] == FRAMES and clip["file_bytes"] == path.stat().st_size


def test_a_clip_without_sound_has_one_stream(out):
    facts = export_clip(chunks(), CANVAS, None, out / "silent.mp4", {})
    said = subprocess.run([FFMPEG, "-i", facts["output_path"]], capture_output=True, text=True).stderr
    assert "Video:" in said and "Audio:" not in said


def test_an_existing_clip_is_not_overwritten_unless_asked(out):
    first = export_clip(chunks(), CANVAS, None, out / "clip.mp4", {"n": 1})
    second = export_clip(chunks(), CANVAS, None, out / "clip.mp4", {"n": 2})
    assert [Path(facts["output_path"]).name for facts in (first, second)] == ["clip.mp4", "clip-2.mp4"]
    export_clip(chunks(), CANVAS, None, out / "clip.mp4", {"n": 3}, overwrite=True)
    assert json.loads(mp4_comment(out / "clip.mp4")) == {"n": 3}


def test_what_a_killed_export_left_is_cleared_away(out):
    stale = export.scratch_folder(out / "clip.mp4")
    stale.mkdir()
    (stale / "clip.mp4").write_bytes(b"torn")
    export_clip(chunks(), CANVAS, None, out / "clip.mp4", {})
    assert os.listdir(out) == ["clip.mp4"]


def failing_export(out: Path, frames=None) -> MediaError:
    with pytest.raises(MediaError) as caught:
        export_clip(chunks() if frames is None else frames, CANVAS, tones(), out / "clip.mp4", NASTY)
    assert os.listdir(out) == []
    return caught.value


def test_missing_ffmpeg_is_a_sentence(out, monkeypatch):
    monkeypatch.setenv("IMAGEIO_FFMPEG_EXE", "/nowhere/ffmpeg")
    error = failing_export(out)
    assert "/nowhere/ffmpeg" in error.message and error.hint


def test_an_ffmpeg_that_cannot_run_is_a_sentence(out, monkeypatch, tmp_path):
    (tmp_path / "ffmpeg").write_bytes(b"\x7fELF nonsense")
    (tmp_path / "ffmpeg").chmod(0o755)
    monkeypatch.setenv("IMAGEIO_FFMPEG_EXE", str(tmp_path / "ffmpeg"))
    assert "ffmpeg" in failing_export(out).message


def test_ffmpeg_killed_between_pictures_is_a_sentence(out, monkeypatch, tmp_path):
    fake_ffmpeg(monkeypatch, tmp_path, f'echo $$ > "{tmp_path}/pid"; exec "{FFMPEG}" "$@"')

    def frames():
        yield moving_pictures()
        while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text().strip():
            time.sleep(0.01)
        os.kill(int((tmp_path / "pid").read_text()), signal.SIGKILL)
        for _ in range(50):
            yield moving_pictures()

    assert "ffmpeg stopped in the middle" in failing_export(out, frames()).message


def test_ffmpeg_that_fails_after_the_last_picture_is_quoted(out, monkeypatch, tmp_path):
    fake_ffmpeg(monkeypatch, tmp_path, 'cat > /dev/null; echo "the reason why" >&2; exit 3')
    message = failing_export(out).message
    assert "exit code 3" in message and "the reason why" in message


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs Linux's /dev/full")
def test_a_disk_that_fills_up_under_ffmpeg_is_named(out, monkeypatch, tmp_path):
    fake_ffmpeg(monkeypatch, tmp_path, f'exec "{FFMPEG}" "${{@:1:$#-1}}" /dev/full')
    assert "disk is full" in failing_export(out).message


@pytest.fixture
def tiny_disk(tmp_path):
    folder = tmp_path / "tiny disk"
    folder.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=320k", "tmpfs", folder], capture_output=True).returncode:
        pytest.skip("mounting a small disk needs root")
    yield folder
    subprocess.run(["umount", folder], check=True)


def test_a_disk_too_small_is_refused_before_the_first_picture(tiny_disk):
    def frames():
        pytest.fail("a picture was made although the clip cannot be stored")
        yield

    error = failing_export(tiny_disk, frames())
    assert "MiB left" in error.message and error.hint


@pytest.mark.parametrize("noisy_chunks", [0, 30], ids=["while the sound is written", "while pictures are encoded"])
def test_a_disk_that_fills_up_for_real_is_named(tiny_disk, monkeypatch, noisy_chunks):
    monkeypatch.setattr(export, "require_free_space", lambda path, needed: None)
    samples = SAMPLES if noisy_chunks else 2 * SAMPLES
    noise = np.random.default_rng(1).integers(0, 255, (noisy_chunks, 17, 64, 96, 3), dtype=np.uint8)
    with pytest.raises(MediaError, match="disk is full"):
        export_clip(noise, CANVAS, np.zeros((2, samples), np.float32), tiny_disk / "clip.mp4", {})
    assert os.listdir(tiny_disk) == []


def test_a_stuck_ffmpeg_is_given_up(out, monkeypatch, tmp_path):
    monkeypatch.setattr(export, "STALL_S", 0.3)
    monkeypatch.setattr(export, "LAST_WORDS_S", 0.2)
    fake_ffmpeg(monkeypatch, tmp_path, "exec sleep 60")
    assert "took no picture" in failing_export(out).message


def test_an_ffmpeg_that_never_finishes_is_given_up(out, monkeypatch, tmp_path):
    monkeypatch.setattr(export, "FINISH_S", 0.3)
    monkeypatch.setattr(export, "LAST_WORDS_S", 0.2)
    fake_ffmpeg(monkeypatch, tmp_path, "cat > /dev/null; exec sleep 60")
    assert "did not finish" in failing_export(out).message


def test_a_slow_decoder_is_not_a_stuck_ffmpeg(out, monkeypatch):
    monkeypatch.setattr(export, "STALL_S", 1.5)

    def frames():
        yield chunks()[0]
        time.sleep(1.7)
        yield chunks()[1]

    assert export_clip(frames(), CANVAS, None, out / "clip.mp4", {})["frame_count"] == FRAMES


@pytest.mark.parametrize("error", [Cancelled(), OSError(5, "the model's disk is gone"), MemoryError()])
def test_what_the_frames_raise_passes_through_and_leaves_nothing(out, monkeypatch, tmp_path, error):
    fake_ffmpeg(monkeypatch, tmp_path, f'echo $$ > "{tmp_path}/pid"; exec "{FFMPEG}" "$@"')

    def frames():
        yield moving_pictures()
        while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text().strip():
            time.sleep(0.01)
        raise error

    with pytest.raises(type(error)) as caught:
        export_clip(frames(), CANVAS, tones(), out / "clip.mp4", {})
    assert caught.value is error and os.listdir(out) == []
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)


@pytest.mark.parametrize(
    "frames",
    [[], [np.zeros((0, 64, 96, 3), np.uint8)], [np.zeros((3, 96, 64, 3), np.uint8)], [np.zeros((3, 64, 96, 3))]],
    ids=["none", "an empty chunk", "turned", "floats"],
)
def test_impossible_pictures_are_refused(out, frames):
    failing_export(out, frames)


@pytest.mark.parametrize("sound", [np.zeros((32, 2)), np.zeros((2, 0)), np.full((2, 9), np.nan)])
def test_impossible_sound_is_refused(sound):
    with pytest.raises(MediaError):
        wav_bytes(sound.astype(np.float32))


def test_too_loud_sound_is_clipped():
    data = np.frombuffer(wav_bytes(np.array([[3.0, -0.5], [-2.0, 0.5]], np.float32))[44:], "<f4")
    assert data.tolist() == [1.0, -1.0, -0.5, 0.5]


def test_metadata_special_characters_are_escaped():
    assert metadata_file({"a": "=;#\\"}) == b';FFMETADATA1\ncomment={"a":"\\=\\;\\#\\\\\\\\"}\n'


def test_an_unwritable_folder_is_a_sentence(tmp_path):
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(MediaError, match="could not be written"):
        require_free_space(tmp_path / "file" / "clip.mp4", 1)


def test_the_estimate_covers_pure_noise(out):
    noise = np.random.default_rng(0).integers(0, 255, (FRAMES, 64, 96, 3), dtype=np.uint8)
    facts = export_clip([noise], CANVAS, tones(), out / "noise.mp4", {})
    assert facts["file_bytes"] < clip_bytes(CANVAS, FRAMES) - export.SPARE_BYTES
