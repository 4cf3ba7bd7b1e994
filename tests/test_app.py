"""The program's entry, as its own process.

Tier: executed. What each verb does is tested with the verb.
"""

import importlib
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from app import run_verb
from core.errors import RequestError

ROOT = Path(__file__).resolve().parents[1]


def app(*words):
    command = [sys.executable, str(ROOT / "app.py"), *words]
    return subprocess.run(command, capture_output=True, text=True, encoding="utf-8", timeout=60)


def test_help_names_the_verbs():
    done = app("--help")
    assert done.returncode == 0 and "window" in done.stdout and "--no-browser" in done.stdout


def test_an_unknown_verb_is_a_sentence_and_code_2():
    done = app("generat")
    assert (done.returncode, done.stdout) == (2, "") and "'generat'" in done.stderr and "window" in done.stderr


@pytest.mark.parametrize("port", ["80000", "-1", "http"])
def test_an_impossible_port_is_refused_at_once(port):
    done = app("--no-browser", f"--port={port}")
    assert done.returncode == 2 and port in done.stderr and "Traceback" not in done.stderr


def test_our_own_errors_are_a_sentence_and_code_1(monkeypatch, capsys):
    def run(arguments):
        raise RequestError("Port 81 cannot be used.", hint="Leave --port out.")

    verb = SimpleNamespace(__doc__="A verb.", add_arguments=lambda parser: None, run=run)
    monkeypatch.setattr(importlib, "import_module", lambda name: verb)
    assert run_verb("window", []) == 1
    assert capsys.readouterr() == ("", "Port 81 cannot be used. Leave --port out.\n")


@pytest.mark.parametrize(
    ("module", "forbidden"),
    [
        ("ui.server", ("torch", "core.kernels", "core.model", "core.pipeline", "core.weights", "transformers")),
        ("core.commands.window", ("gradio", "torch", "core.kernels")),
        ("app", ("gradio", "torch", "numpy", "core.kernels")),
    ],
)
def test_the_windows_process_loads_nothing_that_renders(module, forbidden):
    code = f"import {module}, sys; print([n for n in sys.modules if n.startswith({forbidden!r})])"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, timeout=300, check=True
    )
    assert done.stdout.strip() == "[]"
