"""`app.py generate`: what is typed, what is said, how it ends.

Tier: executed, as its own process with the embedded model where one clip is made or stopped; the rest calls the verb in
this process and never reaches a worker. Cannot catch what a terminal of macOS does with Ctrl-C.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from core import paths
from core.commands import generate
from core.errors import MediaError, RequestError
from tests.core.worker.scripted import alive

ROOT = Path(__file__).resolve().parents[3]
WAIT_S = 300  # a whole run takes 5 s; a busy machine may take its time
CTRL_C_S = 20.0  # 2 s on an idle machine; the 200 steps left would take minutes
needs_mini = pytest.mark.skipif(
    not paths.mini_model_path().is_dir(), reason="the embedded model assets/mini is missing"
)


@pytest.fixture(autouse=True)
def own_home(tmp_path, monkeypatch):
    monkeypatch.setenv("VIGNETTE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("VIGNETTE_OUTPUT_DIR", str(tmp_path / "clips"))


def parsed(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    generate.add_arguments(parser)
    return parser.parse_args(words)


def command(*words: str) -> list[str]:
    return [sys.executable, str(ROOT / "app.py"), "generate", *words, "--model", str(paths.mini_model_path())]


def run_app(*words: str, folder: Path, **environment: str) -> subprocess.CompletedProcess:
    """A whole run in `folder`; stdout and stderr as bytes."""
    return subprocess.run(
        command(*words), cwd=folder, env=os.environ | environment, capture_output=True, timeout=WAIT_S
    )


def last_object(stdout: bytes) -> dict:
    return json.loads(stdout.decode("ascii").splitlines()[-1])


# ---- what is typed
@pytest.mark.parametrize(("typed", "legal", "sentences"), [
    (("720", "480", "49"), (736, 480, 56), ("Size 720x480 became 736x480", "49 frames became 56")),
    (("192", "112", "24"), (192, 128, 39), ("Size 192x112 became 192x128", "24 frames became 39")),
    (("1280", "720", "22"), (1280, 736, 22), ("Size 1280x720 became 1280x736",)),
    (("256", "256", "22"), (256, 256, 22), ()),
])  # fmt: skip
def test_popular_illegal_sizes_become_named_neighbours(typed, legal, sentences):
    width, height, frames = typed
    request, notices = generate.request_of(
        parsed("--prompt", "x", "--width", width, "--height", height, "--frames", frames)
    )
    assert (request.width, request.height, request.frame_count) == legal
    assert len(notices) == len(sentences)
    assert all(notice.startswith(sentence) for notice, sentence in zip(notices, sentences, strict=True))


def test_steps_are_evaluations_and_left_to_the_model_unless_typed():
    assert generate.request_of(parsed("--prompt", "x"))[0].steps is None
    assert generate.request_of(parsed("--prompt", "x", "--steps", "7"))[0].steps == 7


def test_a_seed_is_drawn_unless_typed():
    seeds = {generate.request_of(parsed("--prompt", "x"))[0].seed for _ in range(4)}
    assert len(seeds) > 1
    assert generate.request_of(parsed("--prompt", "x", "--seed", "9007199254740993"))[0].seed == 2**53 + 1


def test_a_named_file_is_replaced_and_a_chosen_name_never_is(tmp_path):
    assert generate.target_of(str(tmp_path / "a b 视频.MP4"), "x") == generate.Target(
        path=tmp_path / "a b 视频.MP4", overwrite=True
    )
    for out, folder in ((None, tmp_path / "clips"), (str(tmp_path), tmp_path), (f"{tmp_path}/new/", tmp_path / "new")):
        target = generate.target_of(out, "a red circle")
        assert target.path.parent == folder and target.path.name.endswith("_a-red-circle.mp4") and not target.overwrite


@pytest.mark.parametrize("name", ["clip", "clip.mov", "clip.json", ".mp4"])
def test_a_file_that_is_no_mp4_is_refused_with_one_that_is(tmp_path, name):
    with pytest.raises(RequestError, match="ending in .mp4") as error:
        generate.target_of(str(tmp_path / name), "x")
    assert ".mp4" in error.value.hint


def test_a_name_no_disk_takes_is_refused(tmp_path):
    with pytest.raises(MediaError, match="too long"):
        generate.target_of(str(tmp_path / ("a" * 300)), "x")


# ---- how it ends without a clip
@pytest.mark.parametrize(("words", "message"), [
    (("--prompt", " "), "The prompt is empty"),
    (("--prompt", "x", "--steps", "0"), "0 steps"),
    (("--prompt", "x", "--seed", "seven"), "not a whole number"),
    (("--prompt", "x", "--frames", "0"), "not possible"),
    (("--prompt", "x", "--out", "clip.mov"), "ending in .mp4"),
])  # fmt: skip
def test_a_refusal_is_a_sentence_and_one_json_object(capsys, words, message):
    assert generate.run(parsed(*words, "--json")) == 1
    out, err = capsys.readouterr()
    told = json.loads(out)
    assert out.count("\n") == 1 and not told["ok"] and message in told["error"] and told["hint"]
    assert told["error"] in err and told["hint"] in err and "Traceback" not in err


def test_without_json_a_refusal_leaves_stdout_empty(capsys):
    assert generate.run(parsed("--prompt", "")) == 1
    assert capsys.readouterr().out == ""


def test_a_missing_model_is_a_sentence_from_the_worker(tmp_path, capfd):
    model = str(tmp_path / "no 模型")
    words = ("--prompt", "x", "--json", "--out", str(tmp_path / "a.mp4"), "--model", model)
    assert generate.run(parsed(*words)) == 1
    told = last_object(capfd.readouterr().out.encode())
    assert not told["ok"] and model in told["error"] and told["hint"]


# ---- whole runs
@pytest.mark.native
@needs_mini
def test_unicode_and_spaces_survive_a_terminal_without_a_language(tmp_path):
    folder = tmp_path / "my clips 视频"
    folder.mkdir()
    bare = {"LANG": "", "LC_ALL": "", "PYTHONIOENCODING": "latin-1"}
    prompt = "一个红色的圆形 🎬 moves right"
    done = run_app(
        "--prompt", prompt, "--out", "雨 café.mp4", "--seed", "7", "--steps", "2", "--frames", "20", "--json",
        folder=folder, **bare,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    facts = last_object(done.stdout)
    assert facts["ok"] and facts["output_path"] == str(folder / "雨 café.mp4")
    assert facts["notices"] == ["20 frames became 22: the model makes 22, 39, 56, ... 362 frames."]
    assert (facts["seed"], facts["steps"], facts["width"], facts["frame_count"]) == ("7", 2, 128, 22)
    assert 0 < facts["cpu_s"] < 90
    record = json.loads((folder / "雨 café.json").read_text(encoding="utf-8"))
    assert record["request"]["prompt"] == prompt
    assert sorted(path.name for path in folder.iterdir()) == sorted(["雨 café.mp4", "雨 café.json"])


@pytest.mark.native
@needs_mini
def test_the_same_command_again_gives_the_same_file_again(tmp_path):
    words = ("--prompt", "a red circle", "--out", "out.mp4", "--seed", "7", "--steps", "2", "--json")
    first = last_object(run_app(*words, folder=tmp_path).stdout)
    stamp = (tmp_path / "out.mp4").stat().st_ino
    second = last_object(run_app(*words, folder=tmp_path).stdout)
    assert first["output_path"] == second["output_path"] == str(tmp_path / "out.mp4")
    assert (tmp_path / "out.mp4").stat().st_ino != stamp and first["file_bytes"] == second["file_bytes"]
    assert sorted(path.name for path in tmp_path.glob("out*")) == ["out.json", "out.mp4"]


@pytest.mark.native
@needs_mini
def test_ctrl_c_leaves_no_process_and_no_file(tmp_path):
    program = subprocess.Popen(
        command("--prompt", "a red circle", "--out", "out.mp4", "--steps", "200", "--json"), cwd=tmp_path,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # ignored below a shell's `&`
    )  # fmt: skip
    try:
        while b"denoise 1/" not in (line := program.stderr.readline()):
            assert line, "the program ended before its first step"
        children = [child.pid for child in psutil.Process(program.pid).children(recursive=True)]
        assert children
        asked = time.monotonic()
        program.send_signal(signal.SIGINT)
        out, err = program.communicate(timeout=WAIT_S)
    finally:
        program.kill()
    assert program.returncode == 130 and time.monotonic() - asked < CTRL_C_S
    assert last_object(out) == {"ok": False, "error": "The render was stopped.", "hint": ""}
    assert b"Traceback" not in err
    assert not [pid for pid in children if alive(pid)]
    assert [path.name for path in tmp_path.iterdir()] == ["home"]
