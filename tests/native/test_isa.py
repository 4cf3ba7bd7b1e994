"""Each instruction-set variant of the inner products: chosen as asked, right, repeatable, confined to its object file.

Tier: independent transcription (float64 NumPy) for values, self-consistency for bits, disassembly for the instructions.
Cannot test a variant that this processor lacks; the names printed by pytest say which ones ran.
"""

import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from core.errors import KernelError
from core.kernels.backend import HeadLayout
from core.kernels.bindings import ISA_VARIABLE, Library, library_path
from core.kernels.matrix import WeightFormat
from core.kernels.native import NativeBackend
from core.kernels.reference_dequant import expand
from tests.native.kernel_data import ISAS, PRODUCT_TOLERANCE, assert_close, instruction_set, normal, random_matrix

pytestmark = pytest.mark.native
OBJECTS = library_path().parent / "obj"


@pytest.fixture(params=ISAS)
def isa(request, monkeypatch):
    with instruction_set(request.param, monkeypatch) as name:
        yield name


def test_the_variant_asked_for_is_the_one_in_use(isa):
    assert NativeBackend(threads=1).library.isa_name() == isa


def test_the_fastest_is_taken_unless_asked(monkeypatch):
    monkeypatch.delenv(ISA_VARIABLE, raising=False)
    library = Library()
    assert library.isa_name() == library.isas_offered()[0] and library.isas_offered()[-1] == "generic"


@pytest.mark.parametrize("wrong", ["avx9", "AVX2", " generic"])
def test_an_unknown_variant_is_refused_before_any_call(monkeypatch, wrong):
    monkeypatch.setenv(ISA_VARIABLE, wrong)
    with pytest.raises(KernelError, match=rf"VIGNETTE_ISA is '{wrong}'; the library .* offer .*generic"):
        Library()


@pytest.mark.parametrize("format", [WeightFormat.F32, WeightFormat.Q6_K], ids=lambda f: f.label)
def test_products_are_close_to_float64_for_every_row_count(isa, format):
    backend, matrix = NativeBackend(threads=1), random_matrix(format, 19, 768)
    x, w = normal(30, 768), expand(matrix).astype(np.float64)
    whole = backend.linear(x, matrix)
    magnitude = np.abs(x).astype(np.float64) @ np.abs(w).T
    assert_close(whole, x.astype(np.float64) @ w.T, PRODUCT_TOLERANCE[format], magnitude=magnitude)
    for rows in range(1, 30):
        assert np.array_equal(backend.linear(x[30 - rows :], matrix), whole[30 - rows :]), rows


def test_threads_change_no_bit(isa):
    matrix, x = random_matrix(WeightFormat.Q8_0, 70, 512), normal(389, 512)
    layout = HeadLayout(heads=2, kv_heads=1, head_dim=20)
    qkv = normal(230, layout.width)
    one, many = NativeBackend(threads=1), NativeBackend(threads=4)
    assert np.array_equal(one.linear(x, matrix), many.linear(x, matrix))
    assert np.array_equal(one.attention(qkv, layout), many.attention(qkv, layout))


def instructions(path: Path) -> set[str]:
    """Names of the instructions in an object file."""
    listing = subprocess.run(
        ["objdump", "-d", "--no-show-raw-insn", str(path)], check=True, capture_output=True, text=True
    ).stdout
    return set(re.findall(r"^\s+[0-9a-f]+:\t(\w+)", listing, re.MULTILINE))


def test_avx_instructions_stay_in_the_files_compiled_for_them():
    if "avx2" not in Library().isas_offered():
        pytest.skip("this processor has no avx2")
    if shutil.which("objdump") is None or not OBJECTS.is_dir():
        pytest.skip("objdump (apt-get install binutils) or the object files are missing")
    names = {path.relative_to(OBJECTS).as_posix(): instructions(path) for path in OBJECTS.rglob("*.o")}
    encoded = {name for name, used in names.items() if any(re.match(r"v[a-z]", word) for word in used)}
    assert encoded == {name for name in names if name.startswith("arch/x86_64/")}
    assert "vfmadd231ps" in names["arch/x86_64/panel_avx2.o"]
