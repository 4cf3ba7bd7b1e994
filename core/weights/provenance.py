"""What a tensor cannot tell about itself: the row order of fused query, key and value weights, and the partition.

The trap: both row orders have the same name, the same shape and alike numbers; a wrong guess gives noise without an
error. So the evidence around the file decides, in a fixed order, and the file's own statement wins.
Proof: tests/core/weights/test_provenance.py, one case per line of evidence.
"""

import json
from dataclasses import dataclass, field
from pathlib import Path

from core.errors import CheckpointError
from core.weights.components import ComponentKind
from core.weights.tensor_file import TensorFile

OFFICIAL_SHARDS = 13  # the original denoiser is published in so many files


@dataclass(frozen=True, slots=True, kw_only=True)
class FileGroup:
    """The files of one component and the statements beside them.

    beside:      `config.json` in the folder, when the folder holds this component only
    model_index: `model_index.json` of the folder above
    """

    files: tuple[TensorFile, ...]
    beside: dict = field(default_factory=dict)
    model_index: dict = field(default_factory=dict)

    @property
    def path(self) -> Path:
        return self.files[0].path

    @property
    def label(self) -> str:
        """How messages name the group."""
        return self.path.name if len(self.files) == 1 else f"{self.path.parent.name} ({len(self.files)} files)"

    @property
    def names(self) -> set[str]:
        return {name for file in self.files for name in file.tensors}

    def metadata(self, key: str) -> object | None:
        """A statement of the files' own headers."""
        return next((file.metadata[key] for file in self.files if key in file.metadata), None)

    def json_metadata(self, key: str) -> dict | None:
        """A statement that is JSON text; CheckpointError when it is not an object."""
        text = self.metadata(key)
        if text is None:
            return None
        try:
            value = json.loads(text)
        except (TypeError, ValueError) as error:
            raise CheckpointError(f"{self.label}: the metadata entry {key} is not JSON.") from error
        if not isinstance(value, dict):
            raise CheckpointError(f"{self.label}: the metadata entry {key} is not a JSON object.")
        return value


def is_interleaved(kind: ComponentKind, group: FileGroup) -> bool:
    """Whether fused query, key and value rows are stored head by head rather than in thirds."""
    stated = group.metadata("qkv_order")
    if stated is not None:
        if stated not in ("thirds", "interleaved"):
            raise CheckpointError(f"{group.label}: qkv_order is {stated!r}, expected 'thirds' or 'interleaved'.")
        return stated == "interleaved"
    if kind is not ComponentKind.DENOISER:
        return kind is ComponentKind.VIDEO_VAE  # every published video VAE keeps the original order
    if isinstance(group.beside.get("qkv_per_head"), bool):
        return group.beside["qkv_per_head"]
    if _is_repack(group):
        return False
    original_tree = "_minimax_h3" in group.model_index or len(group.files) == OFFICIAL_SHARDS
    return original_tree or (group.metadata("precision") == "bf16" and group.metadata("source_revision") is not None)


def _is_repack(group: FileGroup) -> bool:
    """Marks that only files with rows in thirds carry."""
    repacked = any(name.endswith((".comfy_quant", "adaln_t_table")) for name in group.names)
    return repacked or group.metadata("config") is not None or any(file.container == "gguf" for file in group.files)


def partition(group: FileGroup) -> str:
    """Which tasks the denoiser was trained for: "fl2va", "ref2va", or empty when nothing says so."""
    stated = group.metadata("partition") or (group.model_index.get("_minimax_h3") or {}).get("partition")
    return stated.lower() if isinstance(stated, str) else ""


def sigma_shifts(group: FileGroup) -> dict:
    """`video_shift` and `audio_shift` as far as the file or the model index states them."""
    index = group.model_index.get("_minimax_h3") or {}
    scales = group.json_metadata("sigma_shift_scales") or index.get("sigma_shift_scales") or {}
    return {f"{stream}_shift": scales[stream] for stream in ("video", "audio") if stream in scales}
