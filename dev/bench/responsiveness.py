"""How quickly the window answers while its worker renders.

    python -m dev.bench.responsiveness [--samples 100] [--clicks 40]

The real program is started with folders of its own. Renders of the embedded model are asked for as the page asks, one
after another, for as long as is measured; meanwhile the page itself is fetched, a light event is sent (the dice beside
the seed) and, with --clicks, a real browser clicks the dice and waits for the new seed. Samples are taken at a fixed
pace, so one slow answer is not hidden by fewer questions. The last line is one JSON object; the exit code is 1 when the
95th percentile of any kind reaches the target.

The trap: an idle window answers quickly too; every sample counts only while a render runs, and the figures of the idle
window are printed beside them. Proof: tests/dev/bench/test_responsiveness.py, with a server that is slow on purpose.
"""

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import numpy as np
from playwright.sync_api import sync_playwright

ROOT = Path(__file__).resolve().parents[2]
CHROMIUM = "/usr/bin/chromium"
CHROMIUM_FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--disable-background-networking"]
TARGET_MS = 200.0
PACE_S = 0.15  # between the beginnings of two samples
IDLE_SAMPLES = 20
PATIENCE_S = 120.0
PROMPT = "a red circle moves right on a navy background, low tone"
CLICK_MS = """async () => {
  const field = document.querySelector('#seed textarea, #seed input'), before = field.value, start = performance.now();
  document.querySelector('#dice').click();
  while (field.value === before) await new Promise((resolve) => setTimeout(resolve, 2));
  return performance.now() - start;
}"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """What the measured render is asked to be."""

    size: str = "256x256"
    length: int = 124
    steps: int = 32


class Page:
    """The window's page over HTTP, as its own script uses it."""

    def __init__(self, url: str):
        self.origin = "{0.scheme}://{0.netloc}".format(urlsplit(url))
        self.http = httpx.Client(base_url=self.origin, timeout=PATIENCE_S, trust_env=False)
        self.http.get(url).close()  # leaves the cookie of the gate
        self.config = self.http.get("/config").raise_for_status().json()
        self._by_id = {part["id"]: part for part in self.config["components"]}

    def fetch(self) -> None:
        """GET the page, whole."""
        self.http.get("/").raise_for_status()

    def event(self, elem_id: str) -> dict:
        """The event that a click on `elem_id` sends."""
        for event in self.config["dependencies"]:
            for target, name in event["targets"]:
                if name == "click" and self._by_id[target]["props"].get("elem_id") == elem_id:
                    return event
        raise LookupError(f"The page has no click event of {elem_id!r}.")

    def roll(self) -> None:
        """The dice: a light event, end to end."""
        body = {"data": [], "fn_index": self.event("dice")["id"], "session_hash": "dice"}
        self.http.post("/gradio_api/run/predict", json=body).raise_for_status()

    def generate(self, form: Form) -> Iterator[dict]:
        """Ask for a clip and yield the messages of its stream to the end."""
        event, session = self.event("generate"), uuid.uuid4().hex
        chosen = {"prompt": PROMPT, "size": form.size, "length": form.length, "exact-steps": str(form.steps)}
        parts = [self._by_id[number]["props"] for number in event["inputs"]]
        data = [chosen.get(part.get("elem_id"), part.get("value")) for part in parts]
        body = {"data": data, "fn_index": event["id"], "session_hash": session}
        self.http.post("/gradio_api/queue/join", json=body).raise_for_status()
        with self.http.stream("GET", "/gradio_api/queue/data", params={"session_hash": session}) as stream:
            for line in stream.iter_lines():
                if line.startswith("data:"):
                    message = json.loads(line.removeprefix("data:"))
                    yield message
                    if message["msg"] == "process_completed":
                        return


class Renders:
    """Renders one after another in a thread, each watched to its end as a page does."""

    def __init__(self, page: Page, form: Form):
        self._page = page
        self._form = form
        self._end = threading.Event()
        self.rendering = threading.Event()
        self.finished, self.updates, self.fault = 0, 0, ""
        threading.Thread(target=self._run, name="renders", daemon=True).start()

    def stop(self) -> None:
        self._end.set()

    def _run(self) -> None:
        try:
            while not self._end.is_set():
                self._render()
        except Exception as error:  # the main thread reports it
            self.fault = "" if self._end.is_set() else repr(error)
            self.rendering.set()

    def _render(self) -> None:
        for message in self._page.generate(self._form):
            if message["msg"] == "process_completed" and not message["success"]:
                raise RuntimeError(f"A render failed: {message}")
            if message["msg"] == "process_generating":
                self.updates += 1
                if "preview-picture" in json.dumps(message):
                    self.rendering.set()
        self.finished += 1


def summary(samples_ms: list[float]) -> dict[str, float]:
    """Count, median, 95th percentile and largest of the samples, milliseconds."""
    values = np.asarray(samples_ms)
    points = {"median": np.median(values), "p95": np.percentile(values, 95), "max": values.max()}
    return {"samples": len(values)} | {name: round(float(value), 1) for name, value in points.items()}


def timed_ms(action: Callable[[], object]) -> float:
    """Milliseconds that one call of `action` takes."""
    started = time.perf_counter()
    action()
    return 1000 * (time.perf_counter() - started)


def measure(actions: dict[str, Callable[[], object]], count: int, pace_s: float = PACE_S) -> dict[str, dict]:
    """Summaries of `count` samples of each action, taken in turn at a fixed pace."""
    samples: dict[str, list[float]] = {name: [] for name in actions}
    due = time.perf_counter()
    for _ in range(count):
        for name, action in actions.items():
            due = max(due + pace_s, time.perf_counter())
            time.sleep(max(0.0, due - time.perf_counter()))
            samples[name].append(timed_ms(action))
    return {name: summary(values) for name, values in samples.items()}


def verdict(figures: dict[str, dict], target_ms: float) -> dict:
    """The worst 95th percentile against the target."""
    worst_ms = max(figure["p95"] for figure in figures.values())
    return {"p95_ms": worst_ms, "target_ms": target_ms, "ok": worst_ms < target_ms}


@contextmanager
def open_window(folder: Path) -> Iterator[str]:
    """The address of the real program, running in a process of its own with its files below `folder`."""
    places = {"VIGNETTE_HOME": str(folder / "home"), "VIGNETTE_OUTPUT_DIR": str(folder / "clips")}
    with open(folder / "window.log", "w", encoding="utf-8") as log:
        process = subprocess.Popen(
            [sys.executable, str(ROOT / "app.py"), "--no-browser"],
            cwd=folder, env=os.environ | places, stdout=subprocess.PIPE, stderr=log, encoding="utf-8",
        )  # fmt: skip
    try:
        lines = (re.search(r"Vignette is open at (http\S+)", line) for line in process.stdout)
        found = next((match for match in lines if match), None)
        if found is None:
            raise RuntimeError((folder / "window.log").read_text(encoding="utf-8"))
        yield found[1]
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)


@contextmanager
def open_browser(url: str) -> Iterator[Callable[[], float]]:
    """A function that clicks the dice in a real browser and returns the milliseconds until the seed changes."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, headless=True, args=CHROMIUM_FLAGS)
        tab = browser.new_page()
        tab.goto(url)
        tab.wait_for_selector("[data-stage]")
        tab.wait_for_selector("#dice")
        yield lambda: tab.evaluate(CLICK_MS)
        browser.close()


def measure_clicks(click_ms: Callable[[], float], count: int) -> dict:
    """Summary of `count` clicks, timed inside the page."""
    samples = []
    for _ in range(count):
        time.sleep(PACE_S)
        samples.append(click_ms())
    return summary(samples)


def evaluate(arguments: argparse.Namespace, url: str) -> dict:
    """All figures as JSON types."""
    page = Page(url)
    actions = {"page": page.fetch, "event": page.roll}
    result = {"idle": measure(actions, IDLE_SAMPLES), "load_before": round(os.getloadavg()[0], 2)}
    renders = Renders(page, Form(size=arguments.size, length=arguments.frames, steps=arguments.steps))
    if not renders.rendering.wait(PATIENCE_S) or renders.fault:
        raise RuntimeError(renders.fault or f"No preview came within {PATIENCE_S:.0f} s.")
    started, updates_before = time.monotonic(), renders.updates
    figures = measure(actions, arguments.samples)
    if arguments.clicks:
        with open_browser(url) as click_ms:
            figures["click"] = measure_clicks(click_ms, arguments.clicks)
    result |= {"rendering": figures, "measured_s": round(time.monotonic() - started, 1)}
    result |= {"load_after": round(os.getloadavg()[0], 2), "cores": os.cpu_count()}
    result |= {"renders_finished": renders.finished, "page_updates": renders.updates}
    renders.stop()
    if renders.fault or renders.updates == updates_before:
        raise RuntimeError(renders.fault or "The render did not go on while it was measured.")
    return result | verdict(figures, TARGET_MS)


def main() -> int:
    parser, form = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0]), Form()
    parser.add_argument("--samples", type=int, default=100)
    parser.add_argument("--clicks", type=int, default=0, help="clicks in a real browser besides")
    parser.add_argument("--size", default=form.size)
    parser.add_argument("--frames", type=int, default=form.length)
    parser.add_argument("--steps", type=int, default=form.steps)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="vignette-responsiveness-") as folder, open_window(Path(folder)) as url:
        result = evaluate(arguments, url)
    for state in ("idle", "rendering"):
        for name, figure in result[state].items():
            print(f"{state:<10}{name:<6} " + "  ".join(f"{key} {value}" for key, value in figure.items()))
    print(json.dumps(result))
    return 0 if result["ok"] else 1


if __name__ == "__main__":
    sys.exit(main())
