"""The kernel library through ctypes: found, checked against its ABI version, called with checked arrays.

The trap: a wrong pointer crashes the process or, worse, does not. So every array is checked for type, dtype, shape,
density, alignment and writability before a call, against the field descriptions of signatures.py.
Proof: tests/core/kernels/test_bindings.py refuses each kind of wrong argument by name.
"""

import ctypes
import os
import sys
import weakref
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from core.errors import Cancelled, KernelError
from core.kernels import signatures, signatures_conv, signatures_schemes
from core.kernels.signatures import ArrayField, Entry, NumberField

ABI_VERSION = 1
STATUS_OK, STATUS_CANCELLED = 0, 1
ENTRIES = {
    entry.symbol: entry for part in (signatures, signatures_conv, signatures_schemes) for entry in part.ENTRIES
}
SIZE_FUNCTIONS = {size.symbol: size for size in (*signatures.SIZE_FUNCTIONS, *signatures_conv.SIZE_FUNCTIONS)}
NUMBER_TYPES = {"i64": ctypes.c_int64, "i32": ctypes.c_int32, "f32": ctypes.c_float, "f64": ctypes.c_double}
HINT_BUILD = "Run make native; in the app, install it again."
ISA_VARIABLE = "VIGNETTE_ISA"  # forces one variant of the inner products, for tests and for finding faults


class CallHead(ctypes.Structure):
    """h3k_call."""

    _fields_ = [
        ("args_bytes", ctypes.c_int64),
        ("pool", ctypes.c_void_p),
        ("cancel", ctypes.c_void_p),
        ("scratch", ctypes.c_void_p),
        ("scratch_bytes", ctypes.c_int64),
    ]


@dataclass(frozen=True, slots=True)
class CallContext:
    """What every call of one backend shares: threads, stop flag cell (int32 [1] or None), scratch (uint8 or None)."""

    pool: "Pool | None" = None
    cancel_cell: np.ndarray | None = None
    scratch: np.ndarray | None = None


def library_path() -> Path:
    """Where the library must be: the VIGNETTE_NATIVE_LIB override, the app bundle's Frameworks, or build/native."""
    name = "libh3k.dylib" if sys.platform == "darwin" else "libh3k.so"
    override = os.environ.get("VIGNETTE_NATIVE_LIB")
    resources = os.environ.get("RESOURCEPATH")
    if override:
        return Path(override).absolute()
    if getattr(sys, "frozen", False) and resources:
        return Path(resources).absolute().parent / "Frameworks" / name
    return Path(__file__).absolute().parents[2] / "build" / "native" / name


def argument_struct(entry: Entry) -> type[ctypes.Structure]:
    """The ctypes struct of an entry."""
    fields = [("call", CallHead)]
    for field in entry.fields:
        fields.append((field.name, ctypes.c_void_p if isinstance(field, ArrayField) else NUMBER_TYPES[field.type]))
    return type(f"{entry.symbol}_args", (ctypes.Structure,), {"_fields_": fields})


class Library:
    """A loaded kernel library. Loading fails with KernelError when the file is missing or of another version."""

    def __init__(self, path: Path | None = None):
        self.path = path or library_path()
        if not self.path.is_file():
            raise KernelError(f"The kernel library {self.path} does not exist.", hint=HINT_BUILD)
        try:
            self._dll = ctypes.CDLL(str(self.path))
        except OSError as error:
            raise KernelError(f"The kernel library {self.path} cannot be loaded: {error}.", hint=HINT_BUILD) from error
        self._check_abi()
        self._declare_pool_functions()
        self._choose_isa()
        self._declare("h3k_packing", ctypes.c_int32, [ctypes.c_int32, ctypes.c_int32])
        self._declare("h3k_attention_path", ctypes.c_char_p, [ctypes.c_int32, ctypes.c_int32])
        self._structs = {symbol: argument_struct(entry) for symbol, entry in ENTRIES.items()}
        for symbol in ENTRIES:
            self._declare(symbol, ctypes.c_int32, [ctypes.POINTER(self._structs[symbol])])
        for symbol, size in SIZE_FUNCTIONS.items():
            self._declare(symbol, ctypes.c_int64, [ctypes.c_int64] * len(size.arguments))
        self._log_path = os.environ.get("VIGNETTE_KERNEL_LOG")

    def _function(self, symbol: str) -> Any:
        try:
            return getattr(self._dll, symbol)
        except AttributeError as error:
            raise KernelError(f"The kernel library {self.path} lacks {symbol}.", hint=HINT_BUILD) from error

    def _declare(self, symbol: str, result: Any, arguments: list) -> None:
        function = self._function(symbol)
        function.restype, function.argtypes = result, arguments

    def _check_abi(self) -> None:
        self._declare("h3k_abi_version", ctypes.c_int32, [])
        version = self._dll.h3k_abi_version()
        if version != ABI_VERSION:
            raise KernelError(f"{self.path} has ABI version {version}, expected {ABI_VERSION}.", hint=HINT_BUILD)

    def _declare_pool_functions(self) -> None:
        self._declare("h3k_status_name", ctypes.c_char_p, [ctypes.c_int32])
        self._declare("h3k_pool_create", ctypes.c_int32, [ctypes.c_int32, ctypes.POINTER(ctypes.c_void_p)])
        self._declare("h3k_pool_destroy", None, [ctypes.c_void_p])
        self._declare("h3k_pool_thread_count", ctypes.c_int32, [ctypes.c_void_p])

    def _choose_isa(self) -> None:
        """Take the variant that VIGNETTE_ISA names, else the fastest; it serves the whole process."""
        self._declare("h3k_isa_name", ctypes.c_char_p, [])
        self._declare("h3k_isa_offered", ctypes.c_char_p, [ctypes.c_int32])
        self._declare("h3k_isa_choose", ctypes.c_int32, [ctypes.c_char_p])
        asked = os.environ.get(ISA_VARIABLE)
        if self._dll.h3k_isa_choose(asked.encode() if asked else None) != STATUS_OK:
            offered = ", ".join(self.isas_offered())
            raise KernelError(f"{ISA_VARIABLE} is {asked!r}; the library and this processor offer {offered}.")

    def packing(self, weight_format: int, mode: int) -> int:
        """h3k_packing: what rows must be packed as for a product with this format in this mode; -1: unknown."""
        return self._dll.h3k_packing(weight_format, mode)

    def isa_name(self) -> str:
        """The variant of the inner products in use: "generic", "avx2"."""
        return self._dll.h3k_isa_name().decode("ascii")

    def isas_offered(self) -> list[str]:
        """Variants this processor runs, fastest first."""
        names = []
        while name := self._dll.h3k_isa_offered(len(names)):
            names.append(name.decode("ascii"))
        return names

    def attention_path(self, mode: int, *, causal: bool = False) -> str:
        """Name of the products that attention in this mode (h3k_mode) is made of: "float", "maddubs" or others."""
        return self._dll.h3k_attention_path(mode, int(causal)).decode("ascii")

    def status_name(self, status: int) -> str:
        return self._dll.h3k_status_name(status).decode("ascii")

    def size(self, symbol: str, *arguments: int) -> int:
        """Result of one of the *_bytes functions."""
        return getattr(self._dll, symbol)(*arguments)

    def call(
        self, symbol: str, arrays: dict[str, np.ndarray | None], numbers: dict[str, int | float], context: CallContext
    ) -> None:
        """Run one kernel.

        arrays:  by field name; a missing or None one is a null pointer
        numbers: by field name; dimensions that the shapes give may be left out, and are compared when given
        raises:  KernelError for arguments that do not fit, Cancelled when the stop flag was set
        """
        entry = ENTRIES[symbol]
        values = check_arguments(entry, arrays, numbers)
        struct = self._structs[symbol]()
        struct.call = _call_head(struct, context)
        for field in entry.fields:
            value = values[field.name] if isinstance(field, NumberField) else _address(arrays.get(field.name))
            setattr(struct, field.name, value)
        if self._log_path:
            self._log(symbol, arrays, numbers)
        status = getattr(self._dll, symbol)(ctypes.byref(struct))
        if status == STATUS_CANCELLED:
            raise Cancelled()
        if status != STATUS_OK:
            shapes = ", ".join(f"{name} {_describe(array)}" for name, array in arrays.items())
            raise KernelError(f"{symbol} failed: {self.status_name(status)}; got {shapes}, {numbers}.")

    def _log(self, symbol: str, arrays: dict, numbers: dict) -> None:
        """One line per call, written before it runs: the last line names the kernel of a crash."""
        parts = [f"{name}={_describe(array)}@{_address(array) or 0:#x}" for name, array in arrays.items()]
        parts += [f"{name}={value}" for name, value in numbers.items()]
        with open(self._log_path, "a", encoding="utf-8") as log:
            log.write(f"{symbol} {' '.join(parts)}\n")


class Pool:
    """Threads of the library, ended when the object goes. `threads` counts the caller."""

    def __init__(self, library: Library, threads: int):
        pointer = ctypes.c_void_p()
        status = library._dll.h3k_pool_create(threads, ctypes.byref(pointer))
        if status != STATUS_OK:
            raise KernelError(f"A pool of {threads} threads failed: {library.status_name(status)}; expected 1 to 256.")
        self.pointer = pointer.value
        self.threads = threads
        self._finalizer = weakref.finalize(self, library._dll.h3k_pool_destroy, pointer)

    def close(self) -> None:
        """End the threads now. The pool must not be used afterwards."""
        self._finalizer()


def check_arguments(entry: Entry, arrays: dict, numbers: dict) -> dict[str, int | float]:
    """Values of all number fields, after every array was found to fit; raises KernelError otherwise."""
    array_fields = {field.name: field for field in entry.fields if isinstance(field, ArrayField)}
    unknown = set(arrays) - set(array_fields)
    if unknown:
        raise KernelError(f"{entry.symbol} has no argument {sorted(unknown)}.")
    values = {"reserved": 0, **numbers}
    for name, field in array_fields.items():
        array = arrays.get(name)
        if array is None:
            if not field.optional:
                raise KernelError(f"{entry.symbol}: {name} is missing.")
            continue
        _check_array(entry.symbol, field, array)
        _bind_shape(entry.symbol, field, array, values)
    missing = {field.name for field in entry.fields} - set(array_fields) - set(values)
    if missing:
        raise KernelError(f"{entry.symbol}: {sorted(missing)} is missing.")
    return values


def _check_array(symbol: str, field: ArrayField, array: Any) -> None:
    if not isinstance(array, np.ndarray):
        kind, device = f"{type(array).__module__}.{type(array).__name__}", getattr(array, "device", None)
        where = f" on {device}" if device is not None else ""
        raise KernelError(f"{symbol}: {field.name} is a {kind}{where}, expected a NumPy array.")
    if array.dtype != field.dtype or not array.dtype.isnative:
        raise KernelError(f"{symbol}: {field.name} is {_describe(array)}, expected {field.dtype}.")
    dense = array.flags.c_contiguous or (bool(field.row_stride) and _has_dense_rows(array))
    if not dense:
        raise KernelError(
            f"{symbol}: {field.name} {_describe(array)} has strides {array.strides}, expected C-contiguous."
        )
    if not array.flags.aligned:
        raise KernelError(f"{symbol}: {field.name} is at {_address(array):#x}, not aligned to its elements.")
    if field.written and not array.flags.writeable:
        raise KernelError(f"{symbol}: {field.name} is read-only, expected a writable array.")


def _has_dense_rows(array: np.ndarray) -> bool:
    item = array.itemsize
    return array.ndim == 2 and (array.strides[1] == item or array.shape[1] == 1) and array.strides[0] % item == 0


def _bind_shape(symbol: str, field: ArrayField, array: np.ndarray, values: dict) -> None:
    if field.shape is None:
        return
    expected = [name if isinstance(name, int) else values.get(name, name) for name in field.shape]
    fits = len(expected) == array.ndim and all(
        isinstance(want, str) or want == got for want, got in zip(expected, array.shape, strict=True)
    )
    if not fits:
        wanted = ", ".join(str(want) for want in expected)
        raise KernelError(f"{symbol}: {field.name} is {_describe(array)}, expected {field.dtype} [{wanted}].")
    values.update({name: got for name, got in zip(field.shape, array.shape, strict=True) if isinstance(name, str)})
    if field.row_stride:
        dense = array.flags.c_contiguous or array.shape[0] <= 1
        values[field.row_stride] = array.shape[1] if dense else array.strides[0] // array.itemsize


def _call_head(struct: ctypes.Structure, context: CallContext) -> CallHead:
    scratch = context.scratch
    return CallHead(
        args_bytes=ctypes.sizeof(struct),
        pool=context.pool.pointer if context.pool else None,
        cancel=_address(context.cancel_cell),
        scratch=_address(scratch),
        scratch_bytes=0 if scratch is None else scratch.nbytes,
    )


def _address(array: np.ndarray | None) -> int | None:
    return None if array is None else array.ctypes.data


def _describe(array: np.ndarray | None) -> str:
    return "none" if array is None else f"{array.dtype}[{','.join(map(str, array.shape))}]"
