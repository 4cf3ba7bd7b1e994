"""From the window to a clip, with the real program, its worker and the embedded model.

Tier: executed, everything real. Says whether a clip comes and plays, not whether it is what the prompt asked for;
`make eval-mini` measures that.
"""

import io
import time
from base64 import b64decode
from pathlib import Path

import numpy as np
import psutil
import pytest
from PIL import Image

from core import paths
from tests.browser.conftest import ROOT, end_window, start_window

PROMPT = "a red circle moves right on a navy background, low tone"
SIDE = 8  # pictures are compared at this size, in RGB
DOUBLE_CLICK_MS = 700  # a click on Stop right after Generate counts as half of a double click
COLLECT = """() => {
  window.previews = [];
  new MutationObserver(() => {
    const picture = document.querySelector('#preview-picture');
    if (picture && picture.src !== window.previews.at(-1)) window.previews.push(picture.src);
  }).observe(document.querySelector('#stage'), {subtree: true, childList: true, attributes: true});
}"""
FRAME_AT = """async (time) => {
  const video = document.querySelector('#result-video');
  video.pause();
  await new Promise((resolve) => { video.onseeked = resolve; video.currentTime = time; });
  const canvas = document.createElement('canvas');
  [canvas.width, canvas.height] = [video.videoWidth, video.videoHeight];
  canvas.getContext('2d').drawImage(video, 0, 0);
  return canvas.toDataURL('image/png');
}"""


@pytest.fixture(scope="module")
def window(tmp_path_factory, browser):
    if not any(paths.mini_model_path().glob("*")):
        pytest.skip(f"the embedded model is not there: {paths.mini_model_path().relative_to(ROOT)} is empty")
    folder = tmp_path_factory.mktemp("影片 home")
    places = {"VIGNETTE_HOME": str(folder / "state"), "VIGNETTE_OUTPUT_DIR": str(folder / "我的 clips")}
    running = start_window([str(ROOT / "app.py"), "--no-browser"], folder, **places)
    yield running
    children = psutil.Process(running.process.pid).children(recursive=True)
    assert end_window(running) == 0
    assert not psutil.wait_procs(children, timeout=10)[1]


@pytest.fixture(scope="module")
def page(window, open_page):
    return open_page(window)


def generate(page, *, steps=8, size="128x128"):
    page.fill("#prompt textarea", PROMPT)
    page.check(f"#steps input[value='{steps}']", force=True)
    page.check(f"#size input[value='{size}']", force=True)
    page.click("#generate")
    page.wait_for_selector("#stop")


def small(address: str) -> np.ndarray:
    """A picture in a data address as floats [SIDE, SIDE, 3]."""
    picture = Image.open(io.BytesIO(b64decode(address.partition(",")[2]))).convert("RGB")
    return np.asarray(picture.resize((SIDE, SIDE), Image.Resampling.BOX), dtype=np.float32)


def distance(a: np.ndarray, b: np.ndarray) -> float:
    """Root mean square over pixels and colours, 0..255."""
    return float(np.sqrt(np.mean((a - b) ** 2)))


def test_a_prompt_becomes_a_clip_while_the_previews_approach_it(page, window, screenshot):
    page.evaluate(COLLECT)
    generate(page)
    page.wait_for_selector("#preview-picture")
    screenshot(page, "render-preview")
    page.wait_for_selector("#result-video")
    previews = [small(address) for address in page.evaluate("window.previews")]
    assert len(previews) >= 2 and len({picture.tobytes() for picture in previews}) >= 2
    page.wait_for_function("document.querySelector('#result-video').readyState >= 2")
    page.wait_for_function("document.querySelector('#result-video').webkitAudioDecodedByteCount > 0")
    duration_s = page.evaluate("document.querySelector('#result-video').duration")
    assert duration_s == pytest.approx(22 / 24, abs=0.1)
    frames = [small(page.evaluate(FRAME_AT, time_s)) for time_s in np.linspace(0.02, duration_s - 0.05, 6)]
    first, last = (min(distance(picture, frame) for frame in frames) for picture in (previews[0], previews[-1]))
    assert last < first, (first, last)
    screenshot(page, "render-result")
    clip = Path(page.inner_text("#result-path"))
    assert clip.parent == window.folder / "我的 clips" and clip.stat().st_size > 1000
    assert not list((window.folder / "state" / "cache").glob("**/*.mp4"))


def test_the_windows_process_has_no_torch_and_no_kernels(window):
    loaded = Path(f"/proc/{window.process.pid}/maps").read_text(encoding="utf-8")
    assert "libtorch" not in loaded and "libh3k" not in loaded


def test_stop_halts_the_render_within_five_seconds_and_the_next_one_works(page, screenshot):
    generate(page, steps=32, size="256x256")
    page.wait_for_selector("#preview-picture")
    page.wait_for_timeout(DOUBLE_CLICK_MS)
    asked = time.monotonic()
    page.click("#stop")
    page.wait_for_selector("[data-state=cancelled]")
    assert time.monotonic() - asked < 5
    screenshot(page, "render-stopped")
    generate(page)
    page.wait_for_selector("#result-video")


def test_a_page_reloaded_in_mid_render_finds_the_clip_again(open_page, page):
    generate(page, steps=16)
    page.wait_for_selector("#preview-picture")
    open_page.reload(page)
    page.wait_for_selector("#stop")
    page.wait_for_selector("#preview-picture")
    page.wait_for_selector("#result-video")
    assert page.input_value("#prompt textarea") == PROMPT


def test_a_killed_worker_is_one_readable_box_and_the_next_clip_comes(page, window, screenshot):
    generate(page, steps=32)
    page.wait_for_selector("#preview-picture")
    for child in psutil.Process(window.process.pid).children():
        child.kill()
    page.wait_for_selector(".v-error")
    words = page.inner_text("#error")
    assert "ended unexpectedly" in words and "memory" in words and "Traceback" not in words
    screenshot(page, "render-killed")
    generate(page)
    page.wait_for_selector("#result-video")
    assert not page.is_visible(".v-error")
