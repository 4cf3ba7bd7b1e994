"""Files stay small: at most 500 lines, functions at most 60 (inner C kernels 100). Prints the largest ones.

Tier: self-consistency. Says nothing about how good the code is.
"""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FILE_LINES, FUNCTION_LINES, PARAMETERS = 500, 60, 6
PYTHON = sorted(p for top in ("core", "ui", "dev", "tests") for p in ROOT.glob(f"{top}/**/*.py"))
PYTHON += [p for p in (ROOT / "app.py", ROOT / "setup_app.py") if p.exists()]
C = sorted([*ROOT.glob("native/**/*.c"), *ROOT.glob("native/**/*.h")])


def python_functions(path: Path):
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            positional = [a for a in node.args.args + node.args.posonlyargs if a.arg not in ("self", "cls")]
            yield node.name, node.end_lineno - node.lineno + 1, len(positional)


def c_functions(path: Path):
    """(name, lines) of functions laid out with the closing brace in the first column."""
    start, name = 0, ""
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        match = re.match(r"^[a-z][\w \*]*?\b(\w+)\(", line)
        if match and not line.rstrip().endswith(";"):
            start, name = number, match.group(1)
        elif line.startswith("}") and start:
            yield name, number - start + 1
            start = 0


def test_files_are_short():
    lengths = {str(p.relative_to(ROOT)): len(p.read_text(encoding="utf-8").splitlines()) for p in [*PYTHON, *C]}
    print("longest files:", sorted(lengths.items(), key=lambda item: -item[1])[:8])
    assert not {name: n for name, n in lengths.items() if n > FILE_LINES}


def test_python_functions_are_short():
    found = [(lines, f"{p.relative_to(ROOT)}:{name}") for p in PYTHON for name, lines, _ in python_functions(p)]
    print("longest functions:", sorted(found, reverse=True)[:8])
    assert not [item for item in found if item[0] > FUNCTION_LINES]


def test_python_functions_take_few_positional_parameters():
    crowded = [
        f"{p.relative_to(ROOT)}:{name} takes {count}"
        for p in PYTHON
        if not p.is_relative_to(ROOT / "tests")
        for name, _, count in python_functions(p)
        if count > PARAMETERS
    ]
    assert not crowded, crowded


def test_c_functions_are_short():
    limit = 100
    found = [(lines, f"{p.relative_to(ROOT)}:{name}") for p in C for name, lines in c_functions(p)]
    print("longest C functions:", sorted(found, reverse=True)[:8])
    assert not [item for item in found if item[0] > limit]
