"""The execution backends a test can run on; a missing native library is a visible skip."""

import importlib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
NAMES = ["reference", pytest.param("native", marks=pytest.mark.native)]


def make(name: str):
    """A fresh backend, to be used as the body of a fixture with `params=NAMES`."""
    if name == "native" and not list((ROOT / "build" / "native").glob("*h3k*")):
        pytest.skip("build/native has no kernel library; run `make native`")
    module = importlib.import_module(f"core.kernels.{name}")
    return getattr(module, f"{name.capitalize()}Backend")()
