"""Where things live: assets of the program, and the person's output, cache and log folders.

The trap: nothing is created here, not even on use; whoever writes a file makes its folder. Inside a macOS bundle the
assets lie in the folder that the environment variable RESOURCEPATH names. `VIGNETTE_HOME` moves everything the program
keeps for itself, `VIGNETTE_OUTPUT_DIR` the finished clips. Proof: tests/core/test_paths.py.
"""

import os
import sys
from pathlib import Path

APP_NAME = "Vignette"
CHECKOUT = Path(__file__).resolve().parents[1]


def assets_dir() -> Path:
    """The folder `assets`: of the bundle when frozen, else of the checkout."""
    bundled = os.environ.get("RESOURCEPATH")
    return (Path(bundled) if bundled and getattr(sys, "frozen", False) else CHECKOUT) / "assets"


def mini_model_path() -> Path:
    """The embedded model."""
    return assets_dir() / "mini"


def output_dir() -> Path:
    """Where finished clips go unless the person says otherwise."""
    chosen = os.environ.get("VIGNETTE_OUTPUT_DIR")
    if chosen:
        return Path(chosen).expanduser()
    return Path.home() / ("Movies" if sys.platform == "darwin" else "Videos") / APP_NAME


def support_dir() -> Path:
    """Settings, history and learned previews."""
    if home := _home():
        return home / "support"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Application Support" / APP_NAME
    return _xdg("XDG_DATA_HOME", ".local/share")


def cache_dir() -> Path:
    """What can be made again."""
    if home := _home():
        return home / "cache"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / APP_NAME
    return _xdg("XDG_CACHE_HOME", ".cache")


def log_dir() -> Path:
    """Log files."""
    if home := _home():
        return home / "logs"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Logs" / APP_NAME
    return _xdg("XDG_STATE_HOME", ".local/state")


def _home() -> Path | None:
    chosen = os.environ.get("VIGNETTE_HOME")
    return Path(chosen).expanduser() if chosen else None


def _xdg(variable: str, default: str) -> Path:
    """A base folder of the XDG directory specification; relative values are ignored, as it demands."""
    base = os.environ.get(variable, "")
    return (Path(base) if base.startswith("/") else Path.home() / default) / APP_NAME
