"""File names made of prompts, and free names.

Tier: closed form. Cannot catch a file system with rules of its own; the characters exFAT forbids are listed here.
"""

import unicodedata
from datetime import datetime

import pytest

from core.library.names import dated_path, discard_scratch, free_path, prompt_words, scratch_folder, sidecar_path

EXFAT_FORBIDS = set('"*/:<>?\\|') | {chr(code) for code in range(32)}
PROMPTS = [
    "a red circle moves right, low tone",
    "雨の夜、café — émigré 🎬",
    'con*tains: "every" <bad> | char? \\ / \n \t \x00 \x7f',
    "   ...   ",
    "",
    "a" * 500,
    "夜" * 500,
    "हिन्दी में एक वाक्य",
    "../../etc/passwd",
    "half \ud83d pair",
]


@pytest.mark.parametrize("prompt", PROMPTS)
def test_any_prompt_gives_a_name_every_disk_takes(tmp_path, prompt):
    path = dated_path(tmp_path, prompt)
    assert path.parent == tmp_path and not EXFAT_FORBIDS & set(path.name)
    assert not path.stem.endswith((".", " ")) and len(scratch_folder(path).name.encode()) < 255
    path.write_bytes(b"")


def test_names_are_readable():
    assert prompt_words("A red circle moves right, low tone!") == "A-red-circle-moves-right-low-tone"
    assert prompt_words("雨の夜、café — émigré 🎬") == "雨の夜-café-émigré"
    assert prompt_words("हिन्दी वाक्य") == "हिन्दी-वाक्य"  # vowel signs are marks, not letters
    assert prompt_words("🎬 …") == "clip"


def test_words_are_not_cut_but_one_long_word_is():
    assert prompt_words("word " * 30) == "-".join(["word"] * 8)
    assert prompt_words("夜" * 500) == "夜" * 40
    assert prompt_words("𒀀" * 500) == "𒀀" * 30  # four bytes each: the limit of 120 bytes comes first


def test_the_same_prompt_typed_in_either_unicode_form_gives_the_same_name():
    assert prompt_words(unicodedata.normalize("NFD", "café")) == prompt_words("café") == "café"


def test_names_sort_by_date(tmp_path):
    moment = datetime(2026, 3, 1, 18, 5, 9)
    assert dated_path(tmp_path, "a dog", now=moment).name == "2026-03-01_18-05-09_a-dog.mp4"


def test_a_name_is_free_when_neither_clip_nor_settings_have_it(tmp_path):
    path = tmp_path / "clip.mp4"
    assert free_path(path) == path
    path.write_bytes(b"")
    assert free_path(path).name == "clip-2.mp4"
    sidecar_path(tmp_path / "clip-2.mp4").write_text("{}", encoding="utf-8")
    assert free_path(path).name == "clip-3.mp4"


def test_discarding_scratch_removes_only_the_scratch_folder(tmp_path):
    path = tmp_path / "clip.mp4"
    path.write_bytes(b"kept")
    scratch_folder(path).mkdir()
    (scratch_folder(path) / "clip.mp4").write_bytes(b"torn")
    discard_scratch(path)
    discard_scratch(path)
    assert [entry.name for entry in tmp_path.iterdir()] == ["clip.mp4"]
