"""Foreign programs.

Tier: executed. Cannot catch what a real bundle's launcher adds beyond the five known names.
"""

import os
import subprocess
import sys

import pytest

from core.errors import MediaError
from core.programs import BUNDLE_VARIABLES, ffmpeg_program, foreign_environment


def test_a_foreign_python_starts_although_our_home_is_set(monkeypatch):
    monkeypatch.setenv("PYTHONHOME", "/nowhere")
    assert subprocess.run([sys.executable, "-c", ""], capture_output=True).returncode != 0
    assert subprocess.run([sys.executable, "-c", ""], env=foreign_environment(), capture_output=True).returncode == 0


def test_only_the_launchers_variables_are_taken_away(monkeypatch):
    for name in BUNDLE_VARIABLES:
        monkeypatch.setenv(name, "x")
    monkeypatch.setenv("IMAGEIO_FFMPEG_EXE", "y")
    assert set(os.environ) - set(foreign_environment()) == set(BUNDLE_VARIABLES)


def test_ffmpeg_is_found_with_no_path_at_all(monkeypatch):
    monkeypatch.delenv("IMAGEIO_FFMPEG_EXE", raising=False)
    monkeypatch.setenv("PATH", "/nowhere")
    assert subprocess.run([ffmpeg_program(), "-version"], capture_output=True).returncode == 0


def test_the_environment_can_name_another_ffmpeg_which_must_exist(monkeypatch, tmp_path):
    monkeypatch.setenv("IMAGEIO_FFMPEG_EXE", str(tmp_path / "ffmpeg"))
    with pytest.raises(MediaError, match="not an executable"):
        ffmpeg_program()
    (tmp_path / "ffmpeg").write_bytes(b"")
    with pytest.raises(MediaError, match="not an executable"):
        ffmpeg_program()
    (tmp_path / "ffmpeg").chmod(0o755)
    assert ffmpeg_program() == str(tmp_path / "ffmpeg")
