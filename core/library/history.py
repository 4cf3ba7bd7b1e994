"""Finished clips of a folder, newest first. The files are the history: there is no index that could disagree with them.

Tested by tests/core/library/test_history.py.
"""

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from core.errors import MediaError
from core.library.names import sidecar_path
from core.library.sidecar import read_sidecar


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryEntry:
    """A finished clip. `record` is what lies beside it, None when nothing readable does."""

    video_path: Path
    made: datetime
    record: dict | None


def history(folder: str | Path, limit: int = 30) -> list[HistoryEntry]:
    """The newest clips of `folder`; empty when the folder does not exist."""
    found = []
    for path in Path(folder).glob("*.mp4"):
        try:
            found.append((path.stat().st_mtime, path))
        except OSError:  # deleted or on a disk that went away meanwhile
            continue
    newest = sorted(found, reverse=True)[:limit]
    return [
        HistoryEntry(video_path=path, made=datetime.fromtimestamp(stamp), record=readable_record(path))
        for stamp, path in newest
    ]


def readable_record(video_path: Path) -> dict | None:
    """The record beside a clip, None when it is missing or damaged."""
    try:
        return read_sidecar(video_path)
    except MediaError:
        return None


def delete_clip(entry: HistoryEntry) -> None:
    """Remove a clip and its settings; raises MediaError when the system refuses."""
    try:
        entry.video_path.unlink(missing_ok=True)
        sidecar_path(entry.video_path).unlink(missing_ok=True)
    except OSError as error:
        raise MediaError(f"{entry.video_path} could not be deleted: {error.strerror}.") from error
