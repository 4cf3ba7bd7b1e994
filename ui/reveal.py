"""Show a file in the system's file manager."""

import subprocess
import sys
from pathlib import Path


def reveal_command(path: str, platform: str = sys.platform) -> list[str]:
    """Program and arguments that show `path` selected (macOS) or its folder (elsewhere)."""
    if platform == "darwin":
        return ["/usr/bin/open", "-R", path]
    return ["xdg-open", str(Path(path).parent)]


def show_in_folder(path: str) -> bool:
    """Whether a file manager could be started. Does not wait for it."""
    silent = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    try:
        subprocess.Popen(reveal_command(path), start_new_session=True, **silent)
    except OSError:
        return False
    return True
