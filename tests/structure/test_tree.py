"""What may lie in the repository: no weights or media (the embedded model apart), nothing large, nobody's paths.

Tier: self-consistency over the files git tracks.
"""

import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MINI = "assets/mini/"
MEDIA = (".mp4", ".mov", ".wav", ".safetensors", ".gguf", ".ckpt", ".pt", ".npy", ".npz")
MINI_LIMIT_BYTES = 40 * 1000 * 1000


def tracked() -> list[Path]:
    listing = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True, text=True).stdout
    return [ROOT / name for name in listing.split("\0") if name and (ROOT / name).is_file()]


def relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def test_no_weights_or_media_outside_the_embedded_model():
    assert not [relative(p) for p in tracked() if p.suffix in MEDIA and not relative(p).startswith(MINI)]


def test_no_file_over_one_mebibyte_outside_the_embedded_model():
    assert not [relative(p) for p in tracked() if p.stat().st_size > 2**20 and not relative(p).startswith(MINI)]


def test_the_embedded_model_fits_its_limit():
    assert sum(p.stat().st_size for p in (ROOT / MINI).glob("**/*") if p.is_file()) <= MINI_LIMIT_BYTES


def test_no_home_paths_and_no_registry_hosts():
    paths, hosts = r"/home/\w|/Users/\w|/work/(main|shared|mini)", r"pypi\.org|pythonhosted|npmjs|deb\.debian"
    pattern = re.compile(f"{paths}|{hosts}", re.IGNORECASE)
    faults = []
    for path in tracked():
        if relative(path) == "tests/structure/test_tree.py" or path.suffix in (*MEDIA, ".png", ".icns", ".tiktoken"):
            continue
        for number, line in enumerate(path.read_text(encoding="utf-8", errors="ignore").splitlines(), 1):
            if pattern.search(line):
                faults.append(f"{relative(path)}:{number}: {line.strip()[:80]}")
    assert not faults, "\n".join(faults)
