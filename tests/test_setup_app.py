"""The recipe of the bundle is complete and py2app accepts it.

Tier: self-consistency, and py2app's own option check through an alias build, which copies nothing. Cannot catch a
module that is imported by name and stands in no package of the recipe: only a built bundle that is used can (make
bundle-dry). Nothing here is signed or loaded by macOS.
"""

import ast
import importlib.util
import os
import plistlib
import subprocess
import sys
from pathlib import Path

import pytest

import setup_app

ROOT = Path(__file__).resolve().parents[1]


def imported_by_the_application() -> set[str]:
    """Top-level names that core, ui and app.py import, without the standard library."""
    names = set()
    for path in [*ROOT.glob("core/**/*.py"), *ROOT.glob("ui/**/*.py"), ROOT / "app.py"]:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                names |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and not node.level:
                names.add(node.module.split(".")[0])
    return names - sys.stdlib_module_names


def test_every_package_the_application_imports_is_copied_whole():
    assert imported_by_the_application() - set(setup_app.PACKAGES) == set()


@pytest.mark.parametrize("name", setup_app.PACKAGES)
def test_every_package_of_the_recipe_is_an_installed_folder(name):
    spec = importlib.util.find_spec(name)
    assert spec is not None and spec.submodule_search_locations, name


def test_nothing_is_both_copied_and_excluded():
    assert set(setup_app.PACKAGES).isdisjoint(setup_app.EXCLUDES)
    assert len(set(setup_app.PACKAGES)) == len(setup_app.PACKAGES)


def test_oracles_and_tools_stay_out():
    assert {"diffusers", "transformers", "tokenizers", "pytest", "test", "tkinter"} <= set(setup_app.EXCLUDES)


def test_version_is_the_one_the_program_states():
    text = (ROOT / "core" / "version.py").read_text(encoding="utf-8")
    assert f'"{setup_app.version()}"' in text
    assert setup_app.PLIST["CFBundleVersion"] == setup_app.PLIST["CFBundleShortVersionString"] == setup_app.version()


def test_the_name_and_the_kernel_library_are_those_the_program_looks_for():
    from core import paths
    from core.kernels import bindings

    assert setup_app.NAME == paths.APP_NAME
    assert Path(setup_app.KERNEL_LIBRARY).name == bindings.library_path().with_suffix(".dylib").name


def test_bundle_name_and_identifier_can_stand_in_a_path():
    for words in (setup_app.NAME, setup_app.IDENTIFIER):
        assert words.isascii() and not set(words) & set(":/ ")


def test_resources_exist_and_hold_the_embedded_model_and_the_licences():
    assert [name for name in setup_app.OPTIONS["resources"] if not (ROOT / name).exists()] == []
    assert {"assets", "LICENSE", "THIRD_PARTY_NOTICES.md"} <= set(setup_app.OPTIONS["resources"])


def test_the_bundle_cannot_be_ended_silently_and_asks_for_folders_in_words():
    plist = setup_app.PLIST
    assert plist["NSSupportsAutomaticTermination"] is plist["NSSupportsSuddenTermination"] is False
    for folder in ("Desktop", "Documents", "Downloads"):
        assert setup_app.NAME in plist[f"NS{folder}FolderUsageDescription"]


def test_importing_the_recipe_brings_nothing_of_ours():
    code = "import sys, setup_app; print(*[m for m in sys.modules if m.split('.')[0] in ('core', 'ui', 'torch')])"
    shown = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == ""


@pytest.fixture(scope="module")
def alias_bundle(tmp_path_factory):
    """Contents of an alias build: real plist and launcher, links instead of copies."""
    out = tmp_path_factory.mktemp("alias")
    code = (
        "import sys, pathlib, setup_app; from dev.bundle import dry_build;"
        "print(dry_build.run_py2app(pathlib.Path(sys.argv[1]), {**setup_app.OPTIONS, 'frameworks': []}, alias=True))"
    )
    done = subprocess.run([sys.executable, "-c", code, str(out)], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return Path(done.stdout.splitlines()[-1]) / "Contents"


def test_py2app_accepts_every_option_and_writes_our_plist(alias_bundle):
    plist = plistlib.loads((alias_bundle / "Info.plist").read_bytes())
    assert {key: plist.get(key) for key in setup_app.PLIST} == setup_app.PLIST


def test_the_launcher_is_an_arm64_program(alias_bundle):
    launcher = alias_bundle / "MacOS" / "Vignette"
    head = launcher.read_bytes()[:8]
    assert head == bytes.fromhex("cffaedfe0c000001")  # Mach-O 64, CPU_TYPE_ARM64
    assert os.access(launcher, os.X_OK)


def test_the_assets_lie_where_the_program_looks(alias_bundle):
    assert (alias_bundle / "Resources" / "assets" / "css" / "window.css").is_file()


def test_py2app_refuses_an_option_it_does_not_know(tmp_path):
    code = (
        "import sys, pathlib, setup_app; from dev.bundle import dry_build;"
        "dry_build.run_py2app(pathlib.Path(sys.argv[1]), {'pakages': ['core']}, alias=True)"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode != 0 and "has no such option" in done.stderr
