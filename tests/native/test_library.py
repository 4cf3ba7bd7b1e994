"""The built libraries export exactly what the bindings declare, on this machine and cross-built for the Mac.

Tier: self-consistency. Cannot run the Mac library.
"""

import importlib.util
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from core.kernels.bindings import ENTRIES, SIZE_FUNCTIONS, library_path

pytestmark = pytest.mark.native
ROOT = Path(__file__).resolve().parents[2]
DECLARED = {
    *ENTRIES,
    *SIZE_FUNCTIONS,
    "h3k_abi_version",
    "h3k_status_name",
    "h3k_pool_create",
    "h3k_pool_destroy",
    "h3k_pool_thread_count",
    "h3k_isa_name",
    "h3k_isa_offered",
    "h3k_isa_choose",
    "h3k_packing",
    "h3k_attention_path",
}
ZIG_EXTRAS = {"__dso_handle", "_mh_dylib_header"}  # zig's linker exports these two always


def llvm_tool(name: str) -> str:
    """The program, or a visible skip."""
    found = shutil.which(name) or shutil.which(f"{name}-14")
    if not found:
        pytest.skip(f"{name} is missing: apt-get install llvm")
    return found


def exported(*arguments: str) -> set[str]:
    output = subprocess.run(arguments, check=True, capture_output=True, text=True).stdout
    return {line.split()[-1] for line in output.splitlines() if line.strip()}


@pytest.mark.skipif(sys.platform == "darwin", reason="reads an ELF file; the Mac library has its own test")
def test_the_library_exports_what_the_bindings_declare():
    program = shutil.which("nm") or llvm_tool("llvm-nm")
    assert exported(program, "-D", "--defined-only", str(library_path())) == DECLARED


@pytest.fixture(scope="module")
def mac_library() -> Path:
    """Cross-built here; skips visibly without the compiler."""
    if importlib.util.find_spec("ziglang") is None:
        pytest.skip("ziglang is missing: pip install ziglang==0.16.0")
    subprocess.run(["make", "--no-print-directory", "native-macos"], cwd=ROOT, check=True, capture_output=True)
    return ROOT / "build" / "macos" / "libh3k.dylib"


@pytest.mark.slow
def test_the_mac_library_exports_what_the_bindings_declare(mac_library):
    symbols = exported(llvm_tool("llvm-nm"), "-g", "-U", str(mac_library))
    assert {symbol.removeprefix("_") for symbol in symbols} - ZIG_EXTRAS == DECLARED


@pytest.mark.slow
def test_the_mac_library_needs_macos_14_and_the_system_library_alone(mac_library):
    program = llvm_tool("llvm-objdump")
    used, headers = (
        subprocess.run([program, "--macho", what, str(mac_library)], check=True, capture_output=True, text=True).stdout
        for what in ("--dylibs-used", "--private-headers")
    )
    libraries = re.findall(r"^\s+(\S+) \(compatibility", used, re.MULTILINE)
    assert libraries == ["@rpath/libh3k.dylib", "/usr/lib/libSystem.B.dylib"]
    assert re.search(r"^ +minos 14\.0$", headers, re.MULTILINE) and "LC_CODE_SIGNATURE" in headers
