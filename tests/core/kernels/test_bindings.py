"""Wrong arguments are refused by name before any C code runs; the library is found where it must be.

Tier: self-consistency. Cannot catch a wrong struct layout; test_signatures.py compares with the header for that.
"""

import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from core.errors import KernelError
from core.kernels import bindings
from core.kernels.bindings import ENTRIES, CallContext, Library, Pool, check_arguments, library_path

ROOT = Path(__file__).resolve().parents[3]
RMS = ENTRIES["h3k_rms_norm"]


def floats(*shape: int) -> np.ndarray:
    return np.ones(shape, dtype=np.float32)


def arguments(**changes) -> dict:
    return {"x": floats(3, 5), "weight": floats(5), "y": floats(3, 5)} | changes


def unaligned(*shape: int) -> np.ndarray:
    raw = np.zeros(4 * int(np.prod(shape)) + 1, dtype=np.uint8)
    return raw[1:].view(np.float32).reshape(shape)


def read_only(*shape: int) -> np.ndarray:
    array = floats(*shape)
    array.flags.writeable = False
    return array


def test_dimensions_are_read_from_the_arrays():
    values = check_arguments(RMS, arguments(), {"eps": 0.5})
    assert values == {"rows": 3, "columns": 5, "eps": 0.5, "reserved": 0}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"x": np.ones((3, 5))}, r"x is float64\[3,5\], expected float32"),
        ({"x": floats(3, 5).astype(">f4")}, "x is >f4"),
        ({"x": [[1.0]]}, "x is a builtins.list, expected a NumPy array"),
        ({"x": torch.ones(3, 5)}, "x is a torch.Tensor on cpu, expected a NumPy array"),
        ({"x": None}, "x is missing"),
        ({"x": floats(5, 3).T}, "expected C-contiguous"),
        ({"x": floats(3, 10)[:, ::2]}, "expected C-contiguous"),
        ({"x": floats(15)}, r"x is float32\[15\], expected float32 \[rows, columns\]"),
        ({"x": unaligned(3, 5)}, "not aligned"),
        ({"weight": floats(4)}, r"weight is float32\[4\], expected float32 \[5\]"),
        ({"y": floats(4, 5)}, r"y is float32\[4,5\], expected float32 \[3, 5\]"),
        ({"y": read_only(3, 5)}, "y is read-only"),
        ({"z": floats(1)}, r"no argument \['z'\]"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(changes, message):
    with pytest.raises(KernelError, match=message):
        check_arguments(RMS, arguments(**changes), {"eps": 0.5})


def test_numbers_must_be_given_and_agree_with_the_arrays():
    with pytest.raises(KernelError, match=r"\['eps'\] is missing"):
        check_arguments(RMS, arguments(), {})
    with pytest.raises(KernelError, match=r"expected float32 \[4, columns\]"):
        check_arguments(RMS, arguments(), {"eps": 0.5, "rows": 4})


def test_a_column_slice_gives_its_row_stride_where_the_kernel_takes_one():
    matmul, whole = ENTRIES["h3k_matmul"], floats(3, 9)
    given = {"x": floats(3, 2), "w": np.zeros(32, np.uint8), "y": whole[:, 2:6]}
    others = ("format", "mode", "activation", "packing_y")
    scales = ("w_scales_row", "w_value_scales_row", "w_scale", "w_value_scale")
    numbers = {"n": 4, "w_bytes": 32} | dict.fromkeys(others + scales, 0)
    assert check_arguments(matmul, given, numbers)["ldy"] == 9
    assert check_arguments(matmul, given | {"y": floats(3, 4)}, numbers)["ldy"] == 4
    with pytest.raises(KernelError, match="expected C-contiguous"):
        check_arguments(matmul, given | {"y": whole[:, ::2][:, :4]}, numbers)
    with pytest.raises(KernelError, match=r"w is uint8\[32\], expected uint8 \[31\]"):
        check_arguments(matmul, given, numbers | {"w_bytes": 31})


def test_the_library_is_looked_for_in_the_override_the_bundle_and_the_checkout(monkeypatch, tmp_path):
    monkeypatch.delenv("VIGNETTE_NATIVE_LIB", raising=False)
    monkeypatch.setenv("RESOURCEPATH", "/Vignette.app/Contents/Resources")
    monkeypatch.setattr(sys, "platform", "darwin")
    assert library_path() == ROOT / "build" / "native" / "libh3k.dylib"
    monkeypatch.setattr(sys, "frozen", "macosx_app", raising=False)
    assert library_path() == Path("/Vignette.app/Contents/Frameworks/libh3k.dylib")
    monkeypatch.setenv("VIGNETTE_NATIVE_LIB", str(tmp_path / "other.so"))
    assert library_path() == tmp_path / "other.so"


def test_a_missing_or_foreign_library_is_an_error_with_a_remedy(monkeypatch, tmp_path):
    path = tmp_path / "libh3k.so"
    monkeypatch.setenv("VIGNETTE_NATIVE_LIB", str(path))
    with pytest.raises(KernelError, match="does not exist") as missing:
        Library()
    assert missing.value.hint.startswith("Run make native")
    path.write_bytes(b"no library")
    with pytest.raises(KernelError, match="cannot be loaded"):
        Library()


@pytest.mark.native
def test_a_library_of_another_version_is_refused(monkeypatch):
    monkeypatch.setattr(bindings, "ABI_VERSION", bindings.ABI_VERSION + 1)
    with pytest.raises(KernelError, match="ABI version"):
        Library()


@pytest.mark.native
def test_a_refusal_of_the_library_names_kernel_status_and_shapes():
    with pytest.raises(KernelError, match=r"h3k_rms_norm failed: bad argument; got x float32\[0,0\]"):
        Library().call("h3k_rms_norm", {"x": floats(0, 0), "y": floats(0, 0)}, {"eps": 1.0}, CallContext())


@pytest.mark.native
def test_pools_of_impossible_size_are_refused():
    library = Library()
    with pytest.raises(KernelError, match="expected 1 to 256"):
        Pool(library, 0)
    pool = Pool(library, 3)
    pool.close()


@pytest.mark.native
def test_the_call_log_names_kernel_shapes_types_and_addresses(monkeypatch, tmp_path):
    log = tmp_path / "kernels.log"
    monkeypatch.setenv("VIGNETTE_KERNEL_LOG", str(log))
    given = arguments(weight=None)
    Library().call("h3k_rms_norm", given, {"eps": 0.5}, CallContext())
    line = log.read_text(encoding="utf-8")
    address = f"{given['x'].ctypes.data:#x}"
    assert line.startswith(f"h3k_rms_norm x=float32[3,5]@{address} weight=none@0x0 y=float32[3,5]@0x")
    assert line.endswith(" eps=0.5\n")
