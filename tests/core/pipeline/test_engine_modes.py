"""Where the engine takes its accuracy modes from, and that a render uses and records them.

Tier: self-consistency with the embedded model; computes nothing but the choice.
"""

from dataclasses import replace

import pytest

from core import paths
from core.errors import KernelError
from core.kernels.backend import Accuracy, CancelFlag, KvFormat
from core.model.modes import FLOAT_MODEL, MODEL_MODES, NEAR, ModelModes
from core.pipeline import phases
from core.pipeline.engine import Engine
from core.request import GenerationRequest
from tests.core.pipeline.listening import Listener

pytestmark = pytest.mark.skipif(
    not paths.mini_model_path().is_dir(), reason="the embedded model assets/mini is missing"
)
REQUEST = GenerationRequest(prompt="a red circle", seed=7, steps=1, width=64, height=64)


@pytest.fixture(autouse=True)
def own_home(tmp_path, monkeypatch):
    monkeypatch.setenv("VIGNETTE_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("VIGNETTE_MODES", raising=False)


def start(engine: Engine):
    return engine.start(REQUEST, Listener(), CancelFlag())


def test_renders_are_float_unless_asked_otherwise():
    run = start(Engine(backend_name="reference"))
    assert run.modes is FLOAT_MODEL and run.describe()["modes"] == FLOAT_MODEL.describe()


@pytest.mark.parametrize("name", list(MODEL_MODES))
def test_the_environment_names_the_modes_and_an_argument_wins(name, monkeypatch):
    monkeypatch.setenv("VIGNETTE_MODES", name)
    assert start(Engine(backend_name="reference")).modes is MODEL_MODES[name]
    chosen = ModelModes(denoiser=NEAR.with_kv(KvFormat.INT4))
    assert start(Engine(backend_name="reference", modes=chosen)).describe()["modes"]["kv"] == "int4"


def test_an_unknown_name_is_a_sentence_with_all_that_there_are(monkeypatch):
    monkeypatch.setenv("VIGNETTE_MODES", "quick")
    with pytest.raises(KernelError, match="no accuracy mode 'quick'; there are float, near, exact, fast"):
        Engine()


def test_the_phases_hand_each_part_its_modes():
    modes = replace(FLOAT_MODEL, denoiser=NEAR, text_encoder=Accuracy.EXACT)
    run = start(Engine(backend_name="reference", modes=modes))
    asked, linear = [], run.backend.linear

    def noting(x, weight, *, accuracy=Accuracy.FLOAT, **options):
        asked.append((weight.name, accuracy))
        return linear(x, weight, accuracy=accuracy, **options)

    run.backend.linear = noting
    prompt = phases.encode_text(run)
    assert {accuracy for _, accuracy in asked} == {Accuracy.EXACT}
    asked.clear()
    phases.denoise(run, prompt)
    assert {accuracy for name, accuracy in asked if "fc1" in name or "qkv" in name} == {Accuracy.NEAR}
