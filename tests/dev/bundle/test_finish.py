"""What is taken out of a built bundle, what stays, and what its byte-code says.

Tier: closed form on a small tree with the names of the real one. Cannot catch a file that the program needs and the
list removes: dev/bundle/boot.py uses a finished bundle (make bundle-dry).
"""

import importlib.util
import marshal
import plistlib

import pytest

from dev.bundle import finish

NEEDED = (
    "torch/bin/torch_shm_manager",
    "torch/testing/__init__.py",
    "torch/lib/libtorch.dylib",
    "gradio/templates/frontend/index.html",
    "gradio/hash_seed.txt",
    "core/commands/generate.py",
    "numpy/testing/__init__.py",
)
UNNEEDED = (
    "torch/include/torch/all.h",
    "torch/bin/test_api",
    "torch/bin/HashStoreTest",
    "torch/bin/protoc-3.13.0.0",
    "pandas/tests/test_frame.py",
    "numpy/_core/tests/test_umath.py",
    "gradio/templates/node/index.js",
)


@pytest.fixture
def app(tmp_path):
    app = tmp_path / "builder" / "Vignette.app"
    for name in NEEDED + UNNEEDED:
        path = app / "Contents" / "Resources" / "lib" / "python3.12" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("value = 1\n", encoding="utf-8")
    plist = {"CFBundleName": "Vignette", "PythonInfoDict": {"PythonExecutable": "/somewhere/bin/python"}}
    (app / "Contents" / "Info.plist").write_bytes(plistlib.dumps(plist))
    return app


def test_only_what_nobody_needs_goes(app):
    freed = finish.prune(app)
    library = finish.libraries(app)
    assert {path.relative_to(library).as_posix() for path in library.rglob("*") if path.is_file()} == set(NEEDED)
    assert freed == len("value = 1\n") * len(UNNEEDED)


def test_byte_code_is_never_checked_against_its_source_and_names_no_folder_of_the_builder(app):
    finish.compile_packages(app)
    source = finish.libraries(app) / "core" / "commands" / "generate.py"
    code = next(source.parent.glob("__pycache__/generate.*.pyc")).read_bytes()
    assert int.from_bytes(code[4:8], "little") == 0b01  # hash-based, unchecked: PEP 552
    assert code[:4] == importlib.util.MAGIC_NUMBER
    assert "builder" not in marshal.loads(code[16:]).co_filename


def test_old_byte_code_is_replaced(app):
    stale = finish.libraries(app) / "core" / "__pycache__" / "gone.cpython-312.pyc"
    stale.parent.mkdir()
    stale.write_bytes(b"")
    finish.prune(app)
    assert not stale.exists()


def test_info_plist_forgets_the_builder_and_keeps_the_rest(app):
    finish.forget_builder(app)
    assert plistlib.loads((app / "Contents" / "Info.plist").read_bytes()) == {"CFBundleName": "Vignette"}
