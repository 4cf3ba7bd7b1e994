"""The built libraries export exactly what the bindings declare, on this machine and cross-built for the Mac.

Tier: self-consistency. Cannot run the Mac library.
"""

import importlib.util
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
}
ZIG_EXTRAS = {"__dso_handle", "_mh_dylib_header"}  # zig's linker exports these two always


def llvm_nm() -> str:
    """The program, or a visible skip."""
    found = shutil.which("llvm-nm") or shutil.which("llvm-nm-14")
    if not found:
        pytest.skip("llvm-nm is missing: apt-get install llvm")
    return found


def exported(*arguments: str) -> set[str]:
    output = subprocess.run(arguments, check=True, capture_output=True, text=True).stdout
    return {line.split()[-1] for line in output.splitlines() if line.strip()}


@pytest.mark.skipif(sys.platform == "darwin", reason="reads an ELF file; the Mac library has its own test")
def test_the_library_exports_what_the_bindings_declare():
    program = shutil.which("nm") or llvm_nm()
    assert exported(program, "-D", "--defined-only", str(library_path())) == DECLARED


@pytest.mark.slow
def test_the_mac_library_exports_what_the_bindings_declare():
    if importlib.util.find_spec("ziglang") is None:
        pytest.skip("ziglang is missing: pip install ziglang==0.16.0")
    program = llvm_nm()
    subprocess.run(["make", "--no-print-directory", "native-macos"], cwd=ROOT, check=True, capture_output=True)
    symbols = exported(program, "-g", "-U", str(ROOT / "build" / "macos" / "libh3k.dylib"))
    assert {symbol.removeprefix("_") for symbol in symbols} - ZIG_EXTRAS == DECLARED
