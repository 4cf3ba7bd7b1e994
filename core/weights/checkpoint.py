"""Open a model: four components with their configurations, described by what is in the files.

Opening reads headers only, whatever the size of the weights; everything wrong is reported before anything runs.
Proof: tests/core/weights/test_checkpoint.py, toy models written in every published layout give equal tensors.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from core import constants as c
from core.errors import CheckpointError
from core.kernels.matrix import BLOCK_FORMATS
from core.model.config import AudioVaeConfig, DenoiserConfig, TextEncoderConfig, VideoVaeConfig
from core.weights import configs
from core.weights.components import SPECS, ComponentKind, ComponentSpec, identify
from core.weights.configs import Config
from core.weights.discovery import find_groups, read_json, walk
from core.weights.provenance import FileGroup, is_interleaved, partition, sigma_shifts
from core.weights.source import CanonicalTensor, MappedSource, canonical_tensors

READABLE_HINT = f"Use a file in {', '.join(weight_format.name for weight_format in BLOCK_FORMATS)}, INT8, FP8 or NVFP4."
PARTS_HINT = "A model needs a denoiser, a text encoder, a video VAE and an audio VAE; add the missing files."
LATENT_RGB_NAME = "latent_rgb.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Component:
    """One part of a model: `config` (shapes) and `source` (tensors under canonical names).

    content_key: changes with the content of its files; partition: "fl2va", "ref2va" or empty
    stored_bytes: size of its tensors as stored
    """

    kind: ComponentKind
    config: Config
    source: MappedSource
    paths: tuple[Path, ...]
    content_key: str
    partition: str
    stored_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSet:
    """The components of one model. `latent_rgb` is the preview map that came with it, JSON as stored, or None."""

    components: dict[ComponentKind, Component]
    vocabulary_path: Path | None
    latent_rgb: dict | None

    @property
    def denoiser(self) -> tuple[DenoiserConfig, MappedSource]:
        return self._part(ComponentKind.DENOISER)

    @property
    def text_encoder(self) -> tuple[TextEncoderConfig, MappedSource]:
        return self._part(ComponentKind.TEXT_ENCODER)

    @property
    def video_vae(self) -> tuple[VideoVaeConfig, MappedSource]:
        return self._part(ComponentKind.VIDEO_VAE)

    @property
    def audio_vae(self) -> tuple[AudioVaeConfig, MappedSource]:
        return self._part(ComponentKind.AUDIO_VAE)

    @property
    def content_key(self) -> str:
        """Key of everything that decides a result; for caches."""
        keys = [f"{kind.value} {part.content_key}" for kind, part in self.components.items()]
        return hashlib.sha256("\n".join(sorted(keys)).encode()).hexdigest()

    def _part(self, kind: ComponentKind) -> tuple[Config, MappedSource]:
        part = self.components[kind]
        return part.config, part.source


def open_model_set(path: str | Path | Sequence[str | Path]) -> ModelSet:
    """Open the model in a folder, or made of the given files and folders.

    raises: CheckpointError naming all missing components together, or the first fault of a component
    """
    roots = [Path(path)] if isinstance(path, str | Path) else [Path(item) for item in path]
    found = find_groups(roots)
    groups, reasons = _by_kind(found.groups)
    missing = [kind.value for kind in ComponentKind if kind not in groups]
    if missing:
        raise _missing_error(roots, missing, reasons, found.faults)
    return ModelSet(
        components={kind: open_component(kind, groups[kind]) for kind in ComponentKind},
        vocabulary_path=_vocabulary(roots),
        latent_rgb=_latent_rgb(roots),
    )


def _by_kind(groups: list[FileGroup]) -> tuple[dict[ComponentKind, FileGroup], list[str]]:
    """The one group of each kind, and sentences about files of no kind."""
    chosen: dict[ComponentKind, FileGroup] = {}
    reasons = []
    for group in groups:
        kind = identify(group.names)
        if isinstance(kind, str):
            reasons.append(f"{group.label} holds {kind}")
        elif kind in chosen:
            raise CheckpointError(
                f"There are two files for the {kind.value}: {chosen[kind].path} and {group.path}.",
                hint="Choose a folder with one of them, or name the files one by one.",
            )
        else:
            chosen[kind] = group
    return chosen, reasons


def _missing_error(
    roots: list[Path], missing: list[str], reasons: list[str], faults: list[CheckpointError]
) -> CheckpointError:
    """One error for all missing components, with what was found instead."""
    where = roots[0] if len(roots) == 1 else f"{len(roots)} places"
    listed = " and the ".join(filter(None, (", the ".join(missing[:-1]), missing[-1])))
    unusable = [fault.message.rstrip(".") for fault in faults] + reasons
    detail = f" Not usable: {'; '.join(unusable)}." if unusable else ""
    hints = dict.fromkeys([fault.hint for fault in faults if fault.hint] or [PARTS_HINT])
    return CheckpointError(f"{where} lacks the {listed}.{detail}", hint=" ".join(hints))


def open_component(kind: ComponentKind, group: FileGroup) -> Component:
    """Map, configure and check one component. raises: CheckpointError naming the tensor, what was got and expected."""
    spec = SPECS[kind]
    tensors = canonical_tensors(list(group.files), spec.table)
    config = _configure(kind, group, tensors)
    expected = spec.shapes(config)
    configs.check_shapes({name: tensor.shape for name, tensor in tensors.items()}, expected, group.label)
    _check_readable({name: tensors[name] for name in expected}, group.label)
    source = MappedSource(tensors, _head_width(config) if is_interleaved(kind, group) else 0)
    config = _with_stored_facts(config, source, group.label)
    keys = [file.content_key() for file in group.files]
    return Component(
        kind=kind, config=config, source=source, paths=tuple(file.path for file in group.files),
        content_key=hashlib.sha256(f"{config!r} {source.interleaved_heads} {keys}".encode()).hexdigest(),
        partition=partition(group), stored_bytes=sum(tensors[name].stored_bytes for name in expected),
    )  # fmt: skip


def _configure(kind: ComponentKind, group: FileGroup, tensors: dict[str, CanonicalTensor]) -> Config:
    """What the files state, completed from shapes."""
    spec: ComponentSpec = SPECS[kind]
    stated = configs.flat_config(group.json_metadata("config") or group.beside)
    if kind is ComponentKind.DENOISER:
        stated |= sigma_shifts(group)
        stated.setdefault("default_steps", group.metadata("default_steps"))
    fields = configs.stated_fields(spec.keys, stated, group.label)
    view = configs.ShapeView({name: tensor.shape for name, tensor in tensors.items()})
    derived = {name: value for name, value in spec.derive(view, fields).items() if value is not None}
    config = spec.config_class(**derived | fields)
    if kind is ComponentKind.TEXT_ENCODER:  # later layers exist in the full encoder and are not used
        return replace(config, num_layers=min(config.num_layers, TextEncoderConfig().num_layers))
    if kind is ComponentKind.VIDEO_VAE and "decoder_rope_dim_ratio" in stated:
        return replace(
            config, decoder_rotary_dim=int(config.decoder_head_dim * float(stated["decoder_rope_dim_ratio"]))
        )
    return config


def _check_readable(tensors: dict[str, CanonicalTensor], label: str) -> None:
    """Every tensor has a number format that can be read."""
    unreadable = [tensor for tensor in tensors.values() if tensor.unreadable]
    if unreadable:
        more = f" and {len(unreadable) - 1} more" if len(unreadable) > 1 else ""
        raise CheckpointError(
            f"{label}: {unreadable[0].name}{more} are stored as {unreadable[0].unreadable}, which cannot be read.",
            hint=READABLE_HINT,
        )


def _head_width(config: Config) -> int:
    """Channels of one head in fused query, key and value rows."""
    return config.decoder_head_dim if isinstance(config, VideoVaeConfig) else config.head_dim


def _with_stored_facts(config: Config, source: MappedSource, label: str) -> Config:
    """Facts that tensors carry (latent statistics) put into the configuration, and the last checks."""
    if isinstance(config, VideoVaeConfig | AudioVaeConfig):
        stored = {name: source.values(name) for name in ("latents_mean", "latents_std") if source.has(name)}
        config = replace(config, **{name: tuple(value.reshape(-1).tolist()) for name, value in stored.items()})
    if isinstance(config, DenoiserConfig):
        frequencies = source.values("rope.inv_freq") if source.has("rope.inv_freq") else None
        configs.check_denoiser(config, frequencies, label)
    elif isinstance(config, TextEncoderConfig):
        configs.check_text_encoder(config, label)
    elif isinstance(config, AudioVaeConfig):
        configs.check_audio_vae(config, label)
    else:
        configs.check_latent_statistics(config, c.VIDEO_LATENT_CHANNELS, label)
    return config


def _latent_rgb(roots: list[Path]) -> dict | None:
    """The preview map that lies in one of the folders or was named itself."""
    files = [root if root.name == LATENT_RGB_NAME else root / LATENT_RGB_NAME for root in roots]
    return next((value for file in files if (value := read_json(file))), None)


def _vocabulary(roots: list[Path]) -> Path | None:
    """The rank file among the model's files; None stands for the Qwen vocabulary."""
    files = [path for root in roots for path in (walk(root) if root.is_dir() else (root,))]
    ranks = [path for path in files if path.name.endswith(".tiktoken")]
    if len(ranks) > 1:
        raise CheckpointError(f"There are two vocabularies: {ranks[0]} and {ranks[1]}.", hint="Keep one of them.")
    return ranks[0] if ranks else None
