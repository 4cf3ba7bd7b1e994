"""Build Vignette.app on Linux as far as that goes: `python -m dev.bundle.dry_build OUT_FOLDER [--alias]`.

py2app runs whole, apart from what needs Mach-O files: load paths are not rewritten and nothing is signed. Then the
Linux stand-ins of what a Mac would put there are added, so that dev/bundle/boot.py can start the result. This finds
missing modules, missing data and wrong paths; it proves nothing about loading, signing or Cocoa.
"""

import argparse
import os
import shutil
import sys
import time
from pathlib import Path

import py2app.build_app

import setup_app

NATIVE_LIBRARY = setup_app.ROOT / "build" / "native" / "libh3k.so"
LAUNCHER = Path(__file__).with_name("launcher.sh")
LAUNCHER_NAME = "vignette-linux"
WHEEL_LIBRARIES = ("numpy.libs", "pillow.libs")  # Linux wheels keep libraries beside the package, Mac wheels inside


def run_py2app(out: Path, options: dict, *, alias: bool = False) -> Path:
    """Folder Vignette.app, written below `out` by py2app with its Mach-O steps left out."""
    py2app.build_app.loader_paths = lambda *_: ()
    py2app.build_app.codesign_adhoc = lambda _: None
    words = ["py2app", "--dist-dir", str(out / "dist"), "--bdist-base", str(out / "build")]
    os.chdir(setup_app.ROOT)
    setup_app.main([*words, "--alias" if alias else "--debug-skip-macholib"], options)
    return out / "dist" / f"{setup_app.NAME}.app"


def add_linux_parts(app: Path, native_library: Path = NATIVE_LIBRARY) -> Path:
    """Put the kernel library, the wheels' own libraries and a launcher into a dry bundle; path of the launcher."""
    frameworks = app / "Contents" / "Frameworks"
    frameworks.mkdir(exist_ok=True)
    shutil.copy2(native_library, frameworks)
    library_folder = app / "Contents" / "Resources" / "lib" / f"python3.{sys.version_info.minor}"
    site_packages = Path(py2app.__file__).parents[1]
    for name in WHEEL_LIBRARIES:
        shutil.copytree(site_packages / name, library_folder / name)
    launcher = app / "Contents" / "MacOS" / LAUNCHER_NAME
    shutil.copy2(LAUNCHER, launcher)
    launcher.chmod(0o755)
    return launcher


def main(words: list[str]) -> int:
    """Build and say where the bundle is."""
    parser = argparse.ArgumentParser(prog="python -m dev.bundle.dry_build", description=__doc__.partition("\n\n")[0])
    parser.add_argument("out", type=Path, help="folder for dist/ and build/")
    parser.add_argument("--alias", action="store_true", help="only plist, launcher and links; takes seconds")
    arguments = parser.parse_args(words)
    start = time.monotonic()
    app = run_py2app(arguments.out.absolute(), setup_app.OPTIONS, alias=arguments.alias)
    if not arguments.alias:
        add_linux_parts(app)
    print(f"{app} took {time.monotonic() - start:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
