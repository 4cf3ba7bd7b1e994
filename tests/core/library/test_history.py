"""The history is the folder.

Tier: self-consistency. Cannot catch a folder with ten thousand clips being slow.
"""

import os

from core.library.history import delete_clip, history
from core.library.sidecar import write_sidecar


def make_clip(folder, name: str, stamp: float, record: dict | None) -> None:
    path = folder / name
    path.write_bytes(b"clip")
    os.utime(path, (stamp, stamp))
    if record is not None:
        write_sidecar(path, record)


def test_newest_clips_come_first_with_what_lies_beside_them(tmp_path):
    make_clip(tmp_path, "b.mp4", 1000, {"n": "old"})
    make_clip(tmp_path, "a.mp4", 3000, {"n": "new"})
    make_clip(tmp_path, "c.mp4", 2000, None)
    (tmp_path / "note.txt").write_bytes(b"")
    (tmp_path / ".d.vignette-partial").mkdir()
    found = [(entry.video_path.name, entry.record) for entry in history(tmp_path)]
    assert found == [("a.mp4", {"n": "new"}), ("c.mp4", None), ("b.mp4", {"n": "old"})]
    assert [entry.video_path.name for entry in history(tmp_path, limit=1)] == ["a.mp4"]


def test_a_damaged_sidecar_does_not_hide_the_clip(tmp_path):
    make_clip(tmp_path, "a.mp4", 1000, {})
    (tmp_path / "a.json").write_bytes(b"{")
    assert [entry.record for entry in history(tmp_path)] == [None]


def test_a_missing_folder_has_no_history(tmp_path):
    assert history(tmp_path / "nowhere") == []


def test_deleting_takes_the_settings_along_and_nothing_else(tmp_path):
    make_clip(tmp_path, "a.mp4", 1000, {})
    make_clip(tmp_path, "b.mp4", 2000, {})
    delete_clip(history(tmp_path)[0])
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["a.json", "a.mp4"]
