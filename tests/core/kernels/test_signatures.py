"""The signatures are the header: every struct field and every function of native/include, compared with our tables.

Tier: independent transcription (the header is parsed as text). Cannot catch other padding of
structs; the calls of test_native_products.py would.
"""

import re
from pathlib import Path

import pytest

from core.kernels.bindings import ABI_VERSION, ENTRIES, SIZE_FUNCTIONS
from core.kernels.signatures import ArrayField

INCLUDE = Path(__file__).resolve().parents[3] / "native" / "include"
OTHERS = {
    "h3k_abi_version", "h3k_status_name", "h3k_pool_create", "h3k_pool_destroy", "h3k_pool_thread_count",
    "h3k_isa_name", "h3k_isa_offered", "h3k_isa_choose", "h3k_attention_path", "h3k_packing",
}  # fmt: skip
NUMBER_TYPES = {"int64_t": "i64", "int32_t": "i32", "float": "f32", "double": "f64"}
ARRAY_TYPES = {"float *": "float32", "int32_t *": "int32", "void *": "uint8"}


def header() -> str:
    text = "\n".join(path.read_text(encoding="utf-8") for path in sorted(INCLUDE.glob("*.h")))
    return re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL)


def header_structs() -> dict[str, list[tuple[str, str]]]:
    """(name, type) of the fields of each argument struct, in order; pointers keep their star, const is dropped."""
    structs = {}
    for body, name in re.findall(r"typedef struct h3k_\w+_args \{(.*?)\} (h3k_\w+)_args;", header(), re.DOTALL):
        fields = []
        for line in filter(None, (part.strip() for part in body.split(";"))):
            base, names = re.fullmatch(r"(?:const )?(\w+ \*|\w+ )(.+)", line).groups()
            fields += [(field.strip(), base.strip() if "*" not in base else base) for field in names.split(",")]
        structs[name] = fields
    return structs


def header_functions() -> dict[str, str]:
    """Struct name, or parameter list, of each exported function."""
    return dict(re.findall(r"H3K_API [\w ]+?\*?(h3k_\w+)\((.*?)\);", header(), re.DOTALL))


@pytest.mark.parametrize("symbol", ENTRIES)
def test_argument_struct_has_the_fields_of_the_header_in_order(symbol):
    struct = re.fullmatch(r"const (h3k_\w+)_args \*a", header_functions()[symbol]).group(1)
    expected = header_structs()[struct]
    got = [("call", "h3k_call")]
    for field in ENTRIES[symbol].fields:
        got.append((field.name, field.dtype if isinstance(field, ArrayField) else field.type))
    assert got == [(name, ARRAY_TYPES.get(kind) or NUMBER_TYPES.get(kind, kind)) for name, kind in expected]


@pytest.mark.parametrize("symbol", SIZE_FUNCTIONS)
def test_size_function_has_the_parameters_of_the_header(symbol):
    parameters = header_functions()[symbol].split(", ")
    assert parameters == [f"int64_t {name}" for name in SIZE_FUNCTIONS[symbol].arguments]


def test_every_function_of_the_header_is_declared():
    assert set(header_functions()) == set(ENTRIES) | set(SIZE_FUNCTIONS) | OTHERS


def test_abi_version_is_that_of_the_header():
    assert re.search(r"#define H3K_ABI_VERSION (\d+)", header()).group(1) == str(ABI_VERSION)
