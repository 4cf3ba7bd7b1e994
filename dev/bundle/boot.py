"""Start a bundle built by dev/bundle/dry_build.py and use it: `python -m dev.bundle.boot Vignette.app [--no-clip]`.

It gets what Finder gives: no PATH to speak of, no LANG, a foreign working folder. A clip is made from the command line
and one in the window, driven by chromium; then nothing may be left of the processes, and the bundle must hold the files
it held before, because a seal would be broken otherwise. Prints one fact per line; raises on the first that is wrong.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
from playwright.sync_api import Page, sync_playwright

from dev.bundle.dry_build import LAUNCHER_NAME

CHROMIUM = "/usr/bin/chromium"
CHROMIUM_FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--disable-quic"]
PROMPT = "a red circle moves right on a navy background, low tone"
END_OF_CLIP = "document.querySelector('#stage video')?.readyState >= 2 || document.querySelector('#error')?.innerText"
START_LIMIT_S = 600  # all of these bear a machine that renders something else
PAGE_LIMIT_S = 300
CLIP_LIMIT_S = 1200


class WrongBundle(Exception):
    """A fact about the bundle that must not be."""


def require(holds: bool, fact: str) -> None:
    """Print a fact that holds, raise for one that does not."""
    if not holds:
        raise WrongBundle(f"not so: {fact}")
    print("ok  ", fact, flush=True)


def poor_environment(home: Path) -> list[str]:
    """Command that starts a program as Finder does, with `home` as the person's folder."""
    return ["/usr/bin/env", "-i", f"HOME={home}", "PATH=/usr/bin:/bin"]


def file_set(app: Path) -> dict[str, tuple[int, int]]:
    """(bytes, modification time in ns) of every file in the bundle."""
    files = (path for path in app.rglob("*") if path.is_file() and not path.is_symlink())
    return {str(path.relative_to(app)): (path.stat().st_size, path.stat().st_mtime_ns) for path in files}


def command_line_clip(launcher: Path, home: Path) -> None:
    """A clip from `generate`, in the worker that the bundle starts by itself."""
    out = home / "clip from the command line.mp4"
    words = [str(launcher), "generate", "--prompt", PROMPT, "--frames", "22", "--out", str(out), "--json"]
    start = time.monotonic()
    done = subprocess.run(
        [*poor_environment(home), *words], capture_output=True, text=True, timeout=CLIP_LIMIT_S, cwd="/"
    )
    if done.returncode:
        raise WrongBundle(f"generate ended with {done.returncode}: {done.stdout}{done.stderr}{worker_log(home)}")
    facts = json.loads(done.stdout.strip().splitlines()[-1])
    require(out.stat().st_size > 1000, f"generate wrote {out.stat().st_size} bytes in {time.monotonic() - start:.0f} s")
    print("     facts:", json.dumps(facts, ensure_ascii=False))
    print("     said:", done.stderr.strip().replace("\n", " | "))


def worker_log(home: Path) -> str:
    """What workers wrote, empty when none ran."""
    return "".join(path.read_text(encoding="utf-8", errors="replace") for path in home.rglob("worker.log"))


@contextmanager
def window(launcher: Path, home: Path) -> Iterator[tuple[subprocess.Popen, str]]:
    """The running window and its address; ended as Quit does."""
    start = time.monotonic()
    log = home / "window.log"
    with open(log, "wb") as output:
        command = [*poor_environment(home), str(launcher), "--no-browser"]
        process = subprocess.Popen(command, stdout=output, stderr=output, cwd="/")
    try:
        while "open at http" not in log.read_text(encoding="utf-8"):
            if process.poll() is not None or time.monotonic() - start > START_LIMIT_S:
                raise WrongBundle(f"the window did not open: {log.read_text(encoding='utf-8')}")
            time.sleep(0.1)
        print(f"     the window is open after {time.monotonic() - start:.1f} s")
        yield process, log.read_text(encoding="utf-8").split("open at ")[1].split()[0]
    finally:
        process.terminate()
        process.wait(30)


def watch(page: Page, faults: list[str]) -> None:
    """Collect what a page must not do."""
    page.on("console", lambda message: faults.append(message.text) if message.type == "error" else None)
    page.on("response", lambda answer: faults.append(f"{answer.status} {answer.url}") if answer.status >= 400 else None)
    page.on("request", lambda asked: faults.append(asked.url) if not is_local(asked.url) else None)


def is_local(url: str) -> bool:
    """Whether a request stays on this machine."""
    return url.startswith(("http://127.0.0.1:", "data:", "blob:"))


def window_clip(url: str, process: subprocess.Popen, app: Path, *, clip: bool) -> None:
    """Open the page; with `clip`, make one and play it."""
    faults: list[str] = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, headless=True, args=CHROMIUM_FLAGS)
        page = browser.new_page(locale="en-US")
        page.set_default_timeout(PAGE_LIMIT_S * 1000)
        watch(page, faults)
        page.goto(url)
        page.locator("#generate").wait_for()
        require(True, "the page shows Generate")
        if clip:
            page.locator("#prompt textarea").fill(PROMPT)
            page.locator("#generate").click()
            programs = worker_programs(process)
            require(all(str(app) in program for program in programs), f"the worker runs {programs[0]}")
            page.wait_for_function(END_OF_CLIP, timeout=CLIP_LIMIT_S * 1000)
            error = page.locator("#error").inner_text()
            require(not error.strip(), f"the window made and shows a clip {error.strip()}")
        browser.close()
    require(not faults, f"no console error, no answer of 400 or more, no request to another machine {faults}")


def worker_programs(process: subprocess.Popen) -> list[str]:
    """Executables of the worker children, once the launcher's shell has become Python; waits for the first."""
    deadline = time.monotonic() + START_LIMIT_S
    while time.monotonic() < deadline:
        children = psutil.Process(process.pid).children(recursive=True)
        found = [child.exe() for child in children if "--worker" in (line := child.cmdline()) and is_python(line)]
        if found:
            return found
        time.sleep(0.1)
    raise WrongBundle("no worker was started")


def is_python(command_line: list[str]) -> bool:
    """Whether a command line is the bundle's Python at work, not yet the shell that starts it."""
    return Path(command_line[0]).name == "python"


def left_over(app: Path) -> list[str]:
    """Command lines of processes that still run out of the bundle."""
    lines = [" ".join(process.info["cmdline"] or []) for process in psutil.process_iter(["cmdline"])]
    return [line for line in lines if f"{app}/Contents/MacOS/" in line]


def main(words: list[str]) -> int:
    """All checks on one bundle."""
    parser = argparse.ArgumentParser(prog="python -m dev.bundle.boot", description=__doc__.partition("\n\n")[0])
    parser.add_argument("app", type=Path, help="Vignette.app, made by dev.bundle.dry_build")
    parser.add_argument("--no-clip", action="store_true", help="only start the window and open the page")
    arguments = parser.parse_args(words)
    app = arguments.app.resolve()
    launcher = app / "Contents" / "MacOS" / LAUNCHER_NAME
    before = file_set(app)
    with tempfile.TemporaryDirectory(prefix="vignette home 影 ") as folder:
        home = Path(folder)
        if not arguments.no_clip:
            command_line_clip(launcher, home)
        with window(launcher, home) as (process, url):
            window_clip(url, process, app, clip=not arguments.no_clip)
        require(not left_over(app), f"no process is left {left_over(app)}")
        print("     window said:", (home / "window.log").read_text(encoding="utf-8").strip().replace("\n", " | "))
    changed = sorted(name for name, _ in before.items() ^ file_set(app).items())
    require(not changed, f"the bundle's {len(before)} files are as before {changed[:5]}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
