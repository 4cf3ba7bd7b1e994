"""Programs that are not ours: where they are and which environment they may see.

The trap: inside the bundle our environment points a foreign Python at our own libraries, and a program started with it
dies at once. tests/core/test_programs.py starts one.
"""

import os
import shutil

import imageio_ffmpeg

from core.errors import MediaError

BUNDLE_VARIABLES = ("PYTHONHOME", "PYTHONPATH", "RESOURCEPATH", "ARGVZERO", "EXECUTABLEPATH")


def foreign_environment() -> dict[str, str]:
    """Our environment without what the bundle's launcher added for our own Python."""
    return {name: value for name, value in os.environ.items() if name not in BUNDLE_VARIABLES}


def ffmpeg_program() -> str:
    """Path of the bundled ffmpeg, or of the one IMAGEIO_FFMPEG_EXE names; raises MediaError when there is none."""
    try:
        program = imageio_ffmpeg.get_ffmpeg_exe()
    except RuntimeError as error:
        raise missing_ffmpeg(str(error)) from error
    found = shutil.which(program)
    if found is None:
        raise missing_ffmpeg(f"{program} is not an executable file")
    return os.path.abspath(found)


def missing_ffmpeg(reason: str) -> MediaError:
    """The error for a video encoder that cannot be started."""
    return MediaError(f"The video encoder ffmpeg was not found: {reason}.", hint="Reinstall the app's ffmpeg package.")
