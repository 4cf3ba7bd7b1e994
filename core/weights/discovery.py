"""Weight files below a folder, grouped into components: by container bytes and shard lists, not by file name.

The traps: download caches keep files without an extension behind links, interrupted downloads look like models, and
macOS leaves `._` side files that start with other bytes. Proof: tests/core/weights/test_checkpoint.py.
"""

import json
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from core.errors import CheckpointError
from core.weights.gguf import is_gguf, open_gguf
from core.weights.provenance import FileGroup
from core.weights.safetensors import is_safetensors, open_safetensors
from core.weights.tensor_file import REDOWNLOAD_HINT, TensorFile

MAX_DEPTH = 3
MAX_FILES = 2000
UNFINISHED = (".part", ".incomplete", ".crdownload", ".download", ".aria2")
SHARD_NAME = re.compile(r"(?P<stem>.+)-\d{5}-of-(?P<total>\d{5})(?P<end>\.\w+)")
INDEX_SUFFIX = ".index.json"


@dataclass(frozen=True, slots=True)
class Found:
    """Groups that can be opened, and sentences about what cannot."""

    groups: list[FileGroup]
    faults: list[CheckpointError]


def open_weights(path: Path) -> TensorFile:
    """Map a weight file of either container."""
    head = _head(path)
    if is_gguf(head):
        return open_gguf(path)
    if is_safetensors(head):
        return open_safetensors(path)
    if head.startswith(b"version "):
        raise CheckpointError(f"{path.name} is a pointer, the file itself is not here.", hint=REDOWNLOAD_HINT)
    if head.startswith(b"PK\x03\x04"):
        raise CheckpointError(f"{path.name} is a pickled torch file.", hint="Use safetensors or GGUF files.")
    raise CheckpointError(f"{path.name} is no model file.", hint="Use safetensors or GGUF files.")


def _head(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(16)
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error.strerror}.") from error


def find_groups(roots: Sequence[Path]) -> Found:
    """Components below folders and among files named one by one; a file named directly must be a weight file."""
    faults: list[CheckpointError] = []
    groups = []
    for paths in _grouped(_weight_paths(roots), faults):
        try:
            groups.append(tuple(open_weights(path) for path in paths))
        except CheckpointError as error:
            faults.append(error)
    crowd: dict[Path, int] = {}
    for files in groups:
        crowd[files[0].path.parent] = crowd.get(files[0].path.parent, 0) + 1
    return Found([_with_statements(files, alone=crowd[files[0].path.parent] == 1) for files in groups], faults)


def _weight_paths(roots: Sequence[Path]) -> list[Path]:
    """Files to open, each once even when links lead to it twice."""
    paths: dict[Path, Path] = {}
    for root in roots:
        if not root.exists():
            raise CheckpointError(f"{root} does not exist.", hint="Choose the folder that holds the model files.")
        candidates = (path for path in walk(root) if _looks_like_weights(path)) if root.is_dir() else (root,)
        for path in candidates:
            if path.suffix not in (".tiktoken", ".json"):
                paths.setdefault(path.resolve(), path)
    return sorted(paths.values())


def walk(folder: Path, depth: int = 0) -> Iterator[Path]:
    """Files of a folder and three levels below it, in order of name, hidden ones apart."""
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError as error:
        raise CheckpointError(
            f"The folder {folder} cannot be read: {error.strerror}.", hint="Check the disk and who may read it."
        ) from error
    count = 0
    for entry in entries:
        if entry.name.startswith("."):
            continue
        if entry.is_dir():
            if depth < MAX_DEPTH:
                yield from walk(Path(entry.path), depth + 1)
        else:
            count += 1
            if count > MAX_FILES:
                raise CheckpointError(
                    f"{folder} holds more than {MAX_FILES} files.", hint="Choose the folder of one model."
                )
            yield Path(entry.path)


def _looks_like_weights(path: Path) -> bool:
    if path.name.endswith(UNFINISHED) or not path.is_file():
        return False
    if path.suffix in (".safetensors", ".gguf"):
        return True
    try:
        head = _head(path)
    except CheckpointError:  # somebody else's file: not readable, not missed
        return False
    return is_gguf(head) or is_safetensors(head)


def _grouped(paths: list[Path], faults: list[CheckpointError]) -> Iterator[list[Path]]:
    """Paths that make up one component each: as an index lists them, else by shard numbers, else alone."""
    left = dict.fromkeys(paths)
    for folder in dict.fromkeys(path.parent for path in paths):
        for index in sorted(folder.glob(f"*{INDEX_SUFFIX}")):
            members = [folder / name for name in _indexed_names(index)]
            if not any(member in left for member in members):
                continue
            for member in members:
                left.pop(member, None)
            if _complete(members, index.name, faults):
                yield members
    shards: dict[tuple, list[Path]] = {}
    for path in list(left):
        match = SHARD_NAME.fullmatch(path.name)
        if match:
            shards.setdefault((path.parent, match["stem"], match["total"], match["end"]), []).append(path)
            left.pop(path)
    for (folder, stem, total, end), _ in shards.items():
        members = [folder / f"{stem}-{number:05d}-of-{total}{end}" for number in range(1, int(total) + 1)]
        if _complete(members, f"{stem}{end}", faults):
            yield members
    yield from ([path] for path in left)


def _indexed_names(index: Path) -> list[str]:
    """File names a shard index lists, in order."""
    names = set((read_json(index).get("weight_map") or {}).values())
    return sorted(name for name in names if isinstance(name, str) and "/" not in name)


def _complete(members: list[Path], label: str, faults: list[CheckpointError]) -> bool:
    missing = [path.name for path in members if not path.is_file()]
    if missing:
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        message = f"{label} is made of {len(members)} files, missing {missing[0]}{more}."
        faults.append(CheckpointError(message, hint="Download the missing files."))
    return not missing


def _with_statements(files: tuple[TensorFile, ...], *, alone: bool) -> FileGroup:
    """The group with the JSON files around it. A `config.json` counts only in a folder of one component."""
    folder = files[0].path.parent
    beside = read_json(folder / "config.json") if alone else {}
    if alone and not beside:  # the original video VAE keeps its weights one folder below
        beside = read_json(folder.parent / "config.json") if folder.name == "source" else {}
    above = folder.parent.parent if folder.name == "source" else folder.parent
    return FileGroup(files=files, beside=beside, model_index=read_json(above / "model_index.json"))


def read_json(path: Path) -> dict:
    """A JSON object, or empty when the file is absent or is none."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}
