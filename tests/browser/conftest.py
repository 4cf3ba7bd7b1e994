"""A real browser, the window in its own process, and a page that watches everything it asks for."""

import os
import re
import signal
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import pytest

ROOT = Path(__file__).resolve().parents[2]
CHROMIUM = "/usr/bin/chromium"
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-quic",
    "--no-first-run",
    "--autoplay-policy=no-user-gesture-required",
    "--host-resolver-rules=MAP evil.example 127.0.0.1",
]
PATIENCE_MS = 240_000  # generous: a busy machine is slow, not broken
DEAD_PROXIES = {"HTTP_PROXY": "http://127.0.0.1:1", "ALL_PROXY": "socks5://127.0.0.1:1"}


def pytest_collection_modifyitems(items):
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.browser)


@dataclass(slots=True, kw_only=True)
class Running:
    """A window's process and where it is open."""

    process: subprocess.Popen
    url: str
    folder: Path

    @property
    def origin(self) -> str:
        return "{0.scheme}://{0.netloc}".format(urlsplit(self.url))

    @property
    def port(self) -> int:
        return urlsplit(self.url).port


@dataclass(slots=True, kw_only=True)
class Watch:
    """What a page asked for and complained about. `foreign` must stay empty, `refused` and `errors` too."""

    requests: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)

    def attach(self, page) -> None:
        page.on("request", lambda request: self.requests.append(request.url))
        page.on("response", lambda r: r.status >= 400 and self.refused.append(f"{r.status} {r.url}"))
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("console", lambda m: m.type == "error" and self.errors.append(m.text))

    @property
    def foreign(self) -> list[str]:
        return [url for url in self.requests if urlsplit(url).hostname not in ("127.0.0.1", None)]


def start_window(command: list[str], folder: Path, **environment: str) -> Running:
    """Start a window as the desktop would: hardly any environment, no language set, dead proxies."""
    poor = {"HOME": str(folder), "PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT), **DEAD_PROXIES, **environment}
    with open(folder / "window.log", "w", encoding="utf-8") as log:
        process = subprocess.Popen(
            [sys.executable, *command], cwd=folder, env=poor, stdout=subprocess.PIPE, stderr=log, encoding="utf-8"
        )
    for line in process.stdout:
        if found := re.search(r"Vignette is open at (http\S+)", line):
            return Running(process=process, url=found[1], folder=folder)
    raise AssertionError((folder / "window.log").read_text(encoding="utf-8"))


def end_window(window: Running) -> int:
    """Exit code after the polite request to end."""
    window.process.send_signal(signal.SIGTERM)
    try:
        return window.process.wait(60)
    finally:
        window.process.kill()


@pytest.fixture(scope="session")
def browser():
    if not os.path.exists(CHROMIUM):
        pytest.skip(f"the distribution's chromium is not installed at {CHROMIUM}")
    sync_api = pytest.importorskip("playwright.sync_api", reason="the package playwright is not installed")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, headless=True, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def open_page(browser):
    """Function (window, locale=, dark=) -> page, entered with the secret; `open_page.reload(page)` reloads one.

    The manners of all pages are checked at the end.
    """
    contexts, watches = [], {}

    def open_one(window: Running, *, locale: str = "en-US", dark: bool = False):
        context = browser.new_context(
            locale=locale, color_scheme="dark" if dark else "light", viewport={"width": 1280, "height": 900}
        )
        context.set_default_timeout(PATIENCE_MS)
        page, watch = context.new_page(), Watch()
        watch.attach(page)
        contexts.append(context)
        watches[page] = watch
        page.goto(window.url)
        page.wait_for_selector("[data-stage]")
        return page

    def reload(page):
        """Leave and come back; gradio's client reports the streams that leaving cuts off, which is no fault."""
        known = len(watches[page].errors)
        page.reload()
        page.wait_for_selector("[data-stage]")
        del watches[page].errors[known:]

    open_one.reload = reload
    yield open_one
    for context in contexts:
        context.close()
    for watch in watches.values():
        assert watch.requests and not watch.foreign
        assert not watch.refused and not watch.errors


@pytest.fixture(scope="session")
def screenshot():
    """Function (page, name): saves what the page looks like now."""
    folder = Path(os.environ.get("VIGNETTE_SCREENSHOTS") or ROOT / "build" / "screenshots")
    folder.mkdir(parents=True, exist_ok=True)
    return lambda page, name: page.screenshot(path=folder / f"{name}.png", full_page=True)
