"""Make a built bundle ready to be signed: `python -m dev.bundle.finish Vignette.app`.

py2app copies packages whole and names the builder's folders in Info.plist and in the byte-code. Here what nobody needs
goes, byte-code becomes valid for good (the launcher forbids writing any, and time stamps die with the first copy of the
app), and the builder's folders go. Signing comes after: every change in here breaks a seal. Proof:
tests/dev/bundle/test_finish.py; dev/bundle/boot.py uses a finished bundle.
"""

import argparse
import compileall
import plistlib
import py_compile
import shutil
import sys
from pathlib import Path

UNNEEDED = [  # below Resources/lib/python3.Y
    "torch/include",
    "torch/share",
    "torch/test",
    "torch/bin/*[tT]est*",
    "torch/bin/protoc*",
    "torch/bin/*.pt*",
    "torch/bin/upgrader_models",
    "pandas/tests",
    "numpy/**/tests",
    "sympy/**/tests",
    "gradio/templates/node",  # rendering on the server, which needs Node
    "gradio/media_assets",  # demonstration pictures and clips
    "gradio/test_data",
    "config-3.*",
    "**/__pycache__",
]
BUILDER_FACTS = ("PythonInfoDict",)  # py2app's launcher reads none of it


def libraries(app: Path) -> Path:
    """Folder of the unzipped packages."""
    return next((app / "Contents" / "Resources" / "lib").glob("python3.*/"))


def prune(app: Path) -> int:
    """Remove UNNEEDED; the bytes that went."""
    freed = 0
    for pattern in UNNEEDED:
        for path in list(libraries(app).glob(pattern)):
            files = [path] if path.is_file() else [file for file in path.rglob("*") if file.is_file()]
            freed += sum(file.stat().st_size for file in files)
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)  # it went with the folder around it
    return freed


def compile_packages(app: Path) -> None:
    """Byte-code for every unzipped source file: never checked against its source, naming no folder of the builder."""
    compileall.compile_dir(
        libraries(app),
        quiet=2,  # some packages ship templates that are no Python
        force=True,
        stripdir=str(app.parent),
        invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH,
    )


def forget_builder(app: Path) -> None:
    """Take out of Info.plist what says where the bundle was built."""
    path = app / "Contents" / "Info.plist"
    plist = plistlib.loads(path.read_bytes())
    kept = {key: value for key, value in plist.items() if key not in BUILDER_FACTS}
    path.unlink()
    path.write_bytes(plistlib.dumps(kept))


def main(words: list[str]) -> int:
    """Finish one bundle and say what it weighs."""
    parser = argparse.ArgumentParser(prog="python -m dev.bundle.finish", description=__doc__.partition("\n\n")[0])
    parser.add_argument("app", type=Path, help="Vignette.app as py2app wrote it")
    app = parser.parse_args(words).app.resolve()
    freed = prune(app)
    compile_packages(app)
    forget_builder(app)
    left = sum(path.stat().st_size for path in app.rglob("*") if path.is_file() and not path.is_symlink())
    print(f"{app}: {freed / 1e6:.0f} MB removed, {left / 1e6:.0f} MB left")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
