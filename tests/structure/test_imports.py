"""Import directions, held by walking the syntax trees.

Tier: self-consistency. Cannot catch imports by string; the window's process is checked for those in tests/browser.
"""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCES = sorted([*ROOT.glob("core/**/*.py"), *ROOT.glob("ui/**/*.py"), ROOT / "app.py"])
FIRST = {"constants", "errors", "geometry", "request", "paths", "phase", "programs", "version"}
MAY_IMPORT = {  # layer of core -> layers it may import, besides FIRST and itself
    "kernels": set(),
    "weights": {"kernels", "model.config"},
    "model": {"kernels"},
    "library": set(),
    "pipeline": {"kernels", "weights", "model", "library"},
    "worker": {"pipeline", "kernels", "library"},
    "commands": {"kernels", "weights", "model", "pipeline", "worker", "library"},
}
UI_MAY_IMPORT = FIRST | {"library", "worker.client", "worker.events", "worker.jobs", "worker.launch"}
HEAVY = {"torch", "gguf", "diffusers", "transformers"}


def imports_of(path: Path) -> list[tuple[str, int, bool]]:
    """(module, line, inside a function) of every import statement."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    found = []
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    inside = {id(node) for function in functions for node in ast.walk(function)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [(alias.name, node.lineno, id(node) in inside) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            is_package = (ROOT / node.module.replace(".", "/")).is_dir()
            targets = dict.fromkeys(names if is_package else [node.module])
            found += [(target, node.lineno, id(node) in inside) for target in targets]
    return found


def layer(module: str) -> str:
    return module.split(".")[1] if module.startswith("core.") else ""


def allowed_in_core(path: Path, module: str) -> bool:
    own, target = path.relative_to(ROOT / "core").parts[0].removesuffix(".py"), module.removeprefix("core.")
    top = target.split(".")[0]
    if top == own or top in FIRST:
        return True
    return any(target == name or target.startswith(name + ".") for name in MAY_IMPORT.get(own, set()))


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_point_inwards(path):
    name = str(path.relative_to(ROOT))
    faults = []
    for module, line, inside in imports_of(path):
        top = module.split(".")[0]
        if name.startswith("core/") and top in ("gradio", "ui") and name != "core/commands/window.py":
            faults.append(f"{name}:{line} imports {module}")
        if name.startswith("core/") and top == "core" and not allowed_in_core(path, module):
            faults.append(f"{name}:{line} imports {module} against the layer order")
        if name.startswith("ui/") and top == "core":
            target = module.removeprefix("core.")
            if not any(target == ok or target.startswith(ok + ".") for ok in UI_MAY_IMPORT):
                faults.append(f"{name}:{line} imports {module}")
        if name.startswith("ui/") and top in HEAVY:
            faults.append(f"{name}:{line} imports {module} into the window's process")
        if top in ("diffusers", "transformers"):
            faults.append(f"{name}:{line} imports the test oracle {module}")
        if top == "ctypes" and name != "core/kernels/bindings.py":
            faults.append(f"{name}:{line} imports ctypes")
        if inside and name != "app.py" and not name.startswith("core/commands/") and name != "core/worker/process.py":
            faults.append(f"{name}:{line} imports {module} inside a function")
    assert not faults, "\n".join(faults)


def test_only_the_worker_process_imports_the_pipeline():
    users = {
        str(path.relative_to(ROOT))
        for path in SOURCES
        for module, _, _ in imports_of(path)
        if module.startswith("core.pipeline") and not path.is_relative_to(ROOT / "core/pipeline")
    }
    assert users <= {"core/worker/process.py", "core/worker/runners.py"}, users


def test_package_markers_are_empty():
    filled = [str(p.relative_to(ROOT)) for p in ROOT.glob("[cu]*/**/__init__.py") if p.read_text().strip()]
    assert not filled, filled
