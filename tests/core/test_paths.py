"""Folders of the program follow the platform and the overrides; nothing is created.

Tier: closed form. Cannot catch a platform that moves its folders.
"""

import importlib
from pathlib import Path

import pytest

from core import paths

OVERRIDES = (
    "VIGNETTE_HOME", "VIGNETTE_OUTPUT_DIR", "RESOURCEPATH", "XDG_DATA_HOME", "XDG_CACHE_HOME", "XDG_STATE_HOME",
)  # fmt: skip


@pytest.fixture(autouse=True)
def plain_home(monkeypatch, tmp_path):
    for name in OVERRIDES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(paths.sys, "platform", "linux")
    return tmp_path


def test_assets_lie_in_the_checkout():
    assert paths.assets_dir() == Path(__file__).resolve().parents[2] / "assets"
    assert paths.mini_model_path() == paths.assets_dir() / "mini"


def test_assets_of_a_bundle_lie_in_its_resources(monkeypatch):
    monkeypatch.setenv("RESOURCEPATH", "/Applications/Vignette.app/Contents/Resources")
    assert paths.assets_dir().parent == Path(__file__).resolve().parents[2]
    monkeypatch.setattr(paths.sys, "frozen", "macosx_app", raising=False)
    assert paths.mini_model_path() == Path("/Applications/Vignette.app/Contents/Resources/assets/mini")


def test_linux_folders(plain_home):
    assert paths.output_dir() == plain_home / "Videos" / "Vignette"
    assert paths.support_dir() == plain_home / ".local/share/Vignette"
    assert paths.cache_dir() == plain_home / ".cache/Vignette"
    assert paths.log_dir() == plain_home / ".local/state/Vignette"


def test_mac_folders(plain_home, monkeypatch):
    monkeypatch.setattr(paths.sys, "platform", "darwin")
    assert paths.output_dir() == plain_home / "Movies" / "Vignette"
    assert paths.support_dir() == plain_home / "Library/Application Support/Vignette"
    assert paths.cache_dir() == plain_home / "Library/Caches/Vignette"
    assert paths.log_dir() == plain_home / "Library/Logs/Vignette"


def test_base_folders_of_the_desktop_are_honoured_when_absolute(plain_home, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", "/var/tmp/c")
    monkeypatch.setenv("XDG_DATA_HOME", "relative")
    assert paths.cache_dir() == Path("/var/tmp/c/Vignette")
    assert paths.support_dir() == plain_home / ".local/share/Vignette"


def test_overrides_win_everywhere(plain_home, monkeypatch):
    monkeypatch.setenv("VIGNETTE_HOME", "~/my vignette")
    monkeypatch.setenv("VIGNETTE_OUTPUT_DIR", "~/my clips")
    for platform in ("darwin", "linux"):
        monkeypatch.setattr(paths.sys, "platform", platform)
        assert paths.output_dir() == plain_home / "my clips"
        assert paths.support_dir() == plain_home / "my vignette" / "support"
        assert paths.cache_dir() == plain_home / "my vignette" / "cache"
        assert paths.log_dir() == plain_home / "my vignette" / "logs"


def test_nothing_is_created(plain_home):
    importlib.reload(paths)
    for folder in (paths.output_dir, paths.support_dir, paths.cache_dir, paths.log_dir):
        folder()
    assert not list(plain_home.iterdir())
