"""Where a clip and what belongs to it lie: dated names, free names, the scratch folder of an unfinished export.

The trap: a name that is fine on the startup disk is refused by an exFAT stick. So only letters, digits, combining marks
and `-` of a prompt get into a name. tests/core/library/test_names.py holds the rule on many scripts.
"""

import shutil
import unicodedata
from datetime import datetime
from pathlib import Path

WORDS_LIMIT_CHARS = 40
WORDS_LIMIT_BYTES = 120  # a file name has 255 bytes in all on ext4 and APFS


def prompt_words(prompt: str) -> str:
    """The beginning of a prompt as a part of a file name, words joined by `-`; "clip" when nothing is left."""
    composed = unicodedata.normalize("NFC", prompt)
    kept = "".join(char if unicodedata.category(char)[0] in "LNM" else " " for char in composed)
    words = ""
    for word in kept.split():
        longer = f"{words}-{word}" if words else word
        if len(longer) > WORDS_LIMIT_CHARS or len(longer.encode()) > WORDS_LIMIT_BYTES:
            break
        words = longer
    return words or cut(kept.split()[0] if kept.split() else "clip")


def cut(word: str) -> str:
    """The beginning of a word that alone is over the limits (scripts without spaces)."""
    return word[:WORDS_LIMIT_CHARS].encode()[:WORDS_LIMIT_BYTES].decode(errors="ignore")


def dated_path(folder: str | Path, prompt: str, *, now: datetime | None = None) -> Path:
    """Free path in `folder` such as `2026-03-01_18-05-09_a-red-circle.mp4`. Makes nothing."""
    moment = (now or datetime.now()).strftime("%Y-%m-%d_%H-%M-%S")
    return free_path(Path(folder) / f"{moment}_{prompt_words(prompt)}.mp4")


def free_path(path: Path) -> Path:
    """`path`, or the first of `name-2`, `name-3`, ... that is taken neither as a clip nor as its settings."""
    candidate, number = path, 2
    while candidate.exists() or sidecar_path(candidate).exists():
        candidate = path.with_name(f"{path.stem}-{number}{path.suffix}")
        number += 1
    return candidate


def sidecar_path(video_path: str | Path) -> Path:
    """The settings file of a clip: the same name with `.json`."""
    return Path(video_path).with_suffix(".json")


def scratch_folder(output_path: str | Path) -> Path:
    """Folder beside `output_path`, so on the same disk, that holds an unfinished export."""
    path = Path(output_path)
    return path.with_name(f".{path.stem}.vignette-partial")


def discard_scratch(output_path: str | Path) -> None:
    """Remove what a dead export left behind; nothing happens when there is nothing."""
    shutil.rmtree(scratch_folder(output_path), ignore_errors=True)
