"""Settings beside a clip and inside it.

Tier: self-consistency, and against a real ffmpeg for the comment box. Cannot catch tags other programs write otherwise.
"""

import io
import json
import struct
import subprocess

import imageio_ffmpeg
import pytest

from core.errors import MediaError
from core.library.sidecar import (
    boxes,
    clip_record,
    find_comment,
    mp4_comment,
    read_sidecar,
    request_of,
    restore_request,
    settings_record,
    write_sidecar,
)
from core.request import GenerationRequest

PROMPT = '雨の夜、café 🎬 "q"\nnew line \ud83d'
REQUEST = GenerationRequest(prompt=PROMPT, seed=2**63 - 1, steps=8, width=256, height=128)
RECORD = settings_record(REQUEST, {"model_key": "mini-1", "versions": {"app": "0.1"}, "timings_s": {"denoise": 1.5}})


def box(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I4s", 8 + len(content), kind) + content


def wide_box(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I4sQ", 1, kind, 16 + len(content)) + content


def tagged(text: bytes, *, make_moov=box) -> bytes:
    """The smallest file with a comment."""
    data = box(b"data", struct.pack(">II", 1, 0) + text)
    tags = box(b"ilst", box(b"\xa9too", box(b"data", bytes(8) + b"x")) + box(b"\xa9cmt", data))
    return box(b"ftyp", b"isom") + make_moov(
        b"moov", box(b"mvhd", bytes(9)) + box(b"udta", box(b"meta", bytes(4) + tags))
    )


def test_a_record_restores_the_request_digit_for_digit(tmp_path):
    write_sidecar(tmp_path / "clip.mp4", RECORD)
    assert restore_request(tmp_path / "clip.mp4") == REQUEST
    assert restore_request(tmp_path / "clip.json") == REQUEST


@pytest.mark.parametrize("content", [b"", b"[1]", b'{"ok": true}', b"\xff"])
def test_a_file_of_somebody_else_is_never_overwritten(tmp_path, content):
    (tmp_path / "clip.json").write_bytes(content)
    with pytest.raises(MediaError, match="holds something else and was kept"):
        write_sidecar(tmp_path / "clip.mp4", RECORD)
    assert (tmp_path / "clip.json").read_bytes() == content


def test_our_own_settings_are_replaced(tmp_path):
    write_sidecar(tmp_path / "clip.mp4", RECORD)
    write_sidecar(tmp_path / "clip.mp4", RECORD | {"n": 2})
    assert read_sidecar(tmp_path / "clip.mp4")["n"] == 2


def test_the_seed_is_text_so_that_a_browser_keeps_every_digit(tmp_path):
    text = write_sidecar(tmp_path / "clip.mp4", RECORD).read_text(encoding="utf-8")
    assert json.loads(text)["seed"] == "9223372036854775807" == json.loads(text)["request"]["seed"]
    assert "9223372036854775807," not in text.replace('"9223372036854775807"', "")
    assert "雨の夜、café 🎬" in text  # readable for people, not only for programs


def test_the_record_says_model_versions_and_timings():
    assert (
        RECORD["model_key"] == "mini-1"
        and RECORD["versions"] == {"app": "0.1"}
        and RECORD["timings_s"]["denoise"] == 1.5
    )


def test_an_interrupted_write_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch):
    path = write_sidecar(tmp_path / "clip.mp4", RECORD)
    before = path.read_bytes()

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.replace", full)
    with pytest.raises(MediaError, match="No space left"):
        write_sidecar(tmp_path / "clip.mp4", {"other": 1})
    assert path.read_bytes() == before and [entry.name for entry in tmp_path.iterdir()] == ["clip.json"]


def test_a_missing_sidecar_is_none_and_a_damaged_one_an_error(tmp_path):
    assert read_sidecar(tmp_path / "clip.mp4") is None
    for damaged in (b"{", b"\xff\xfe", b"[1]", b""):
        (tmp_path / "clip.json").write_bytes(damaged)
        with pytest.raises(MediaError):
            read_sidecar(tmp_path / "clip.mp4")


@pytest.mark.parametrize(
    "record",
    [
        {},
        {"format": "vignette-clip-9", "request": RECORD["request"]},
        {**RECORD, "request": None},
        {**RECORD, "request": {**RECORD["request"], "unknown": 1}},
        {**RECORD, "request": {**RECORD["request"], "width": "wide"}},
        {**RECORD, "request": {**RECORD["request"], "seed": "1e9"}},
        {**RECORD, "request": {**RECORD["request"], "frame_count": 24}},
    ],
)
def test_settings_that_make_no_sense_are_an_error(record):
    with pytest.raises(MediaError):
        request_of(record)


@pytest.mark.parametrize("make_moov", [box, wide_box], ids=["32-bit sizes", "64-bit size"])
def test_the_comment_is_found_box_by_box(tmp_path, make_moov):
    path = tmp_path / "clip.mp4"
    path.write_bytes(tagged("夜".encode(), make_moov=make_moov))
    assert mp4_comment(path).decode() == "夜"


def test_ffmpeg_writes_the_comment_where_it_is_looked_for(tmp_path):
    path = tmp_path / "other name.mp4"
    text = json.dumps(RECORD)
    tone = ["-f", "lavfi", "-i", "sine=d=0.1"]
    command = [imageio_ffmpeg.get_ffmpeg_exe(), "-v", "error", *tone, "-metadata", f"comment={text}", str(path)]
    subprocess.run(command, check=True)
    assert clip_record(path) == json.loads(text)
    assert restore_request(path) == REQUEST


def test_the_file_beside_the_clip_wins_over_its_comment(tmp_path):
    (tmp_path / "clip.mp4").write_bytes(tagged(b'{"from": "comment"}'))
    assert clip_record(tmp_path / "clip.mp4") == {"from": "comment"}
    write_sidecar(tmp_path / "clip.mp4", {"from": "sidecar"})
    assert clip_record(tmp_path / "clip.mp4") == {"from": "sidecar"}


def test_a_file_torn_anywhere_has_no_settings_and_raises_nothing_else(tmp_path):
    whole = tagged(b'{"a": 1}')
    for length in range(len(whole)):
        (tmp_path / "clip.mp4").write_bytes(whole[:length])
        with pytest.raises(MediaError):
            clip_record(tmp_path / "clip.mp4")


def test_impossible_box_sizes_end_the_search():
    for size in (2, 7, 10**9):
        assert list(boxes(io.BytesIO(struct.pack(">I4s", size, b"moov") + bytes(8)), 0, 16)) == []
    huge = struct.pack(">I4sQ", 1, b"moov", 2**63)
    assert list(boxes(io.BytesIO(huge), 0, len(huge))) == []


def test_a_comment_that_is_no_text_is_none():
    data = tagged(b"x").replace(struct.pack(">II", 1, 0) + b"x", struct.pack(">II", 21, 0) + b"x")
    assert find_comment(io.BytesIO(data), len(data)) is None


def test_a_missing_clip_is_an_error(tmp_path):
    with pytest.raises(MediaError):
        clip_record(tmp_path / "nowhere.mp4")
