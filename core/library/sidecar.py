"""The settings of a clip: in a JSON file beside it, and a second time inside the mp4 as its comment.

The mp4's comment is read here, box by box, without ffmpeg, so that the window can restore the settings of any clip
that is dropped on it. The trap: a seed above 2^53 loses digits in a browser, so it is text; and the file may come from
anyone, so lengths are checked before they are believed. tests/core/library/test_sidecar.py.
"""

import json
import os
import struct
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO

from core.errors import MediaError, RequestError
from core.library.names import sidecar_path
from core.request import GenerationRequest

FORMAT = "vignette-clip-1"
COMMENT_LIMIT_BYTES = 16 * 2**20
COMMENT_BOXES = (b"moov", b"udta", b"meta", b"ilst", b"\xa9cmt", b"data")  # iTunes-style tags, as ffmpeg writes them
UTF8_TEXT = 1  # type of a `data` box
NO_SETTINGS_HINT = "Only clips made here carry their settings."


def settings_record(request: GenerationRequest, description: dict) -> dict:
    """What is stored with a clip, as JSON types.

    description: what the render knows besides the request (model key, versions, noise rule, timings), a level with it
    """
    return {
        "format": FORMAT,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "seed": str(request.seed),
        "request": request.to_json(),
        **description,
    }


def request_of(record: dict) -> GenerationRequest:
    """The request of a record; raises MediaError when it is of another format or makes no sense."""
    if record.get("format") != FORMAT:
        raise MediaError(f"The settings have format {record.get('format')!r}; {FORMAT!r} was expected.")
    try:
        return GenerationRequest.from_json(record["request"])
    except (KeyError, TypeError, ValueError, AttributeError, RequestError) as error:
        raise MediaError(f"The settings are damaged: {error}.") from error


def write_sidecar(video_path: str | Path, record: dict) -> Path:
    """Write `record` beside a clip, whole or not at all; returns the path.

    raises: MediaError when it cannot be written, or when a file that is no record of ours has the name
    """
    target = sidecar_path(video_path)
    if holds_other_data(video_path):
        raise MediaError(f"{target} holds something else and was kept; the settings are only inside the clip.")
    unfinished = target.with_name(f".{target.name}.vignette-partial")
    text = json.dumps(record, ensure_ascii=False, indent=1)
    try:
        with open(unfinished, "wb") as file:
            file.write(text.encode("utf-8", "backslashreplace"))  # a lone surrogate becomes its JSON escape
            file.flush()
            os.fsync(file.fileno())
        os.replace(unfinished, target)
    except OSError as error:
        unfinished.unlink(missing_ok=True)
        raise MediaError(f"The settings could not be written to {target}: {error.strerror}.") from error
    return target


def read_sidecar(video_path: str | Path) -> dict | None:
    """The record beside a clip; None when there is none. Raises MediaError when it is unreadable."""
    path = sidecar_path(video_path)
    try:
        return as_record(path.read_bytes(), path)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise MediaError(f"{path} could not be read: {error.strerror}.") from error


def holds_other_data(video_path: str | Path) -> bool:
    """Whether the file named like the settings of a clip is not ours (such as a result redirected to `clip.json`)."""
    try:
        record = read_sidecar(video_path)
    except MediaError:
        return True
    return record is not None and record.get("format") != FORMAT


def clip_record(video_path: str | Path) -> dict:
    """The record of a clip from the file beside it, else from its comment; raises MediaError when neither is there."""
    record = read_sidecar(video_path)
    if record is not None:
        return record
    comment = mp4_comment(video_path)
    if comment is None:
        raise MediaError(f"{video_path} holds no settings.", hint=NO_SETTINGS_HINT)
    return as_record(comment, video_path)


def restore_request(path: str | Path) -> GenerationRequest:
    """The request that made a clip, given the clip or its settings file. Raises MediaError."""
    return request_of(clip_record(path))


def as_record(text: bytes, origin: str | Path) -> dict:
    try:
        record = json.loads(text.decode("utf-8"))
    except ValueError as error:
        raise MediaError(f"{origin} holds no readable settings.", hint=NO_SETTINGS_HINT) from error
    if not isinstance(record, dict):
        raise MediaError(f"{origin} holds no settings.", hint=NO_SETTINGS_HINT)
    return record


# ---- mp4 boxes
def mp4_comment(path: str | Path) -> bytes | None:
    """The comment of an mp4, UTF-8; None when it has none or is no mp4. Raises MediaError when it cannot be read."""
    try:
        with open(path, "rb") as file:
            return find_comment(file, os.fstat(file.fileno()).st_size)
    except OSError as error:
        raise MediaError(f"{path} could not be read: {error.strerror}.") from error


def find_comment(file: BinaryIO, size: int) -> bytes | None:
    """Follow COMMENT_BOXES from the top level down to the text."""
    start, end = 0, size
    for wanted in COMMENT_BOXES:
        found = next(((first, last) for kind, first, last in boxes(file, start, end) if kind == wanted), None)
        if found is None:
            return None
        start, end = found
        start += 4 if wanted == b"meta" else 0  # a full box: version and flags come first
    file.seek(start)
    kind, _locale = struct.unpack(">II", file.read(8).ljust(8, b"\0"))
    length = end - start - 8
    return file.read(length) if kind == UTF8_TEXT and 0 <= length <= COMMENT_LIMIT_BYTES else None


def boxes(file: BinaryIO, start: int, end: int) -> Iterator[tuple[bytes, int, int]]:
    """(kind, first byte of the content, end) of each box from `start` to `end`; stops at the first impossible one."""
    while start + 8 <= end:
        file.seek(start)
        size, kind = struct.unpack(">I4s", file.read(8))
        content = start + 8
        if size == 1:  # the size is a 64-bit one behind the kind
            size, content = int.from_bytes(file.read(8), "big"), content + 8
        stop = end if size == 0 else start + size
        if not content <= stop <= end:
            return
        yield kind, content, stop
        start = stop
