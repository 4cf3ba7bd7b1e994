"""What a worker keeps warm between jobs, and what one render holds while it runs.

The engine keeps the model's files mapped, its tokenizer and the AdaLN tables of the last schedule: the second clip of a
session starts at once. Everything large lives in a phase and dies with it.
"""

import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from core import paths
from core.errors import KernelError, RequestError
from core.kernels.backend import Backend, CancelFlag
from core.kernels.choose import open_backend
from core.model.adaln import AdalnTables
from core.model.modes import FLOAT_MODEL, MODEL_MODES, ModelModes
from core.model.tokenizer import Tokenizer
from core.phase import Phase
from core.pipeline.noise import NOISE_RULE_VERSION
from core.pipeline.preview import LatentRgbMap, Previewer
from core.pipeline.reporter import Reporter
from core.request import GenerationRequest
from core.version import VERSION
from core.weights.checkpoint import ModelSet, open_model_set
from core.weights.components import ComponentKind
from core.weights.vocabulary import vocabulary_text

MODES_VARIABLE = "VIGNETTE_MODES"  # a name of MODEL_MODES, for tests and for finding faults


@dataclass(slots=True)
class LoadedModel:
    """A model set, mapped, with what is derived from it once."""

    files: ModelSet
    tokenizer: Tokenizer
    previewer: Previewer
    tables: dict[bytes, AdalnTables] = field(default_factory=dict)  # of the last schedule, by its plan


@dataclass(slots=True, kw_only=True)
class Run:
    """One render: the request, the model, the backend, who listens, and the facts collected on the way."""

    request: GenerationRequest
    steps: int
    model: LoadedModel
    backend: Backend
    report: Reporter
    cancel: CancelFlag
    modes: ModelModes = FLOAT_MODEL
    facts: dict = field(default_factory=dict)
    _phase_started: tuple[str, float] | None = None

    def phase(self, phase: Phase, total: int) -> None:
        """Begin a phase; closes the clock of the one before."""
        self.close_phase()
        self._phase_started = (phase.value, time.monotonic())
        self.report.phase(phase, total)

    def close_phase(self) -> None:
        """Note how long the current phase took."""
        if self._phase_started:
            name, started = self._phase_started
            self.facts.setdefault("phase_s", {})[name] = round(time.monotonic() - started, 3)
            self._phase_started = None

    def describe(self) -> dict:
        """What is stored with the clip besides the request."""
        return {
            "vignette_version": VERSION,
            "model_key": self.model.files.content_key,
            "backend": self.backend.name,
            "modes": self.modes.describe(),
            "steps": self.steps,
            "noise_rule_version": NOISE_RULE_VERSION,
        }


class Engine:
    """Opens models and starts renders. One per worker process; renders run one after another.

    modes: accuracy of the products; None: what VIGNETTE_MODES says, else float32. KernelError for an unknown name.
    """

    def __init__(
        self,
        *,
        open_model: Callable[[Path], ModelSet] = open_model_set,
        backend_name: str = "",
        modes: ModelModes | None = None,
    ):
        self._open_model = open_model
        self._backend_name = backend_name
        self._modes = modes or modes_named(os.environ.get(MODES_VARIABLE, "float"))
        self._loaded: LoadedModel | None = None

    def start(self, request: GenerationRequest, report: Reporter, cancel: CancelFlag) -> Run:
        """A render of `request`, not yet computed.

        raises: CheckpointError when the model cannot be used; RequestError for keyframes and references, which would
                otherwise be left out without a word
        """
        report.phase(Phase.STARTING, 0)
        if request.keyframes or request.references:
            raise RequestError(
                "Keyframes and references were given; this version makes clips from text alone.", hint="Remove them."
            )
        backend, notice = open_backend(self._backend_name, cancel)
        if notice:
            report.notice(notice)
        model = self._model(Path(request.model_path) if request.model_path else paths.mini_model_path())
        steps = request.steps or model.files.denoiser[0].default_steps
        run = Run(
            request=request, steps=steps, model=model, backend=backend, report=report, cancel=cancel, modes=self._modes
        )
        run.facts |= {"seed": str(request.seed), "steps": steps, "backend": backend.name}
        return run

    def _model(self, path: Path) -> LoadedModel:
        """The model at `path`; opening reads little, so files replaced since the last job are noticed here."""
        files = self._open_model(path)
        if self._loaded is None or self._loaded.files.content_key != files.content_key:
            self._loaded = None
            video_vae = files.components[ComponentKind.VIDEO_VAE]  # its map, whatever denoiser is beside it
            fit_path = paths.cache_dir() / "previews" / f"{video_vae.content_key}.json"
            self._loaded = LoadedModel(
                files=files,
                tokenizer=Tokenizer.from_rank_text(vocabulary_text(files.vocabulary_path)),
                previewer=Previewer(fit_path, _shipped_map(files)),
            )
        return self._loaded


def modes_named(name: str) -> ModelModes:
    """The entry of MODEL_MODES; raises KernelError, naming them all, when there is none."""
    if name not in MODEL_MODES:
        raise KernelError(f"There is no accuracy mode {name!r}; there are {', '.join(MODEL_MODES)}.")
    return MODEL_MODES[name]


def _shipped_map(files: ModelSet) -> LatentRgbMap | None:
    if files.latent_rgb is None:
        return None
    return LatentRgbMap(*(np.asarray(files.latent_rgb[name], np.float32) for name in ("matrix", "bias")))
