"""The window in a real browser: who gets in, what it says, how it behaves during a job.

Tier: executed, with the real page, server and job manager, and a client that plays scripted events. Every page also
checks that it asks nobody but us, is refused nothing and logs no error (tests/browser/conftest.py). Cannot show that
anything is rendered; test_render.py does.
"""

import subprocess
from pathlib import Path

import imageio_ffmpeg
import pytest

from tests.browser.conftest import end_window, start_window

SCRIPT = Path(__file__).with_name("scripted_window.py")


@pytest.fixture(scope="module")
def window(tmp_path_factory, browser):
    folder = tmp_path_factory.mktemp("我的 clips")
    clip = folder / "clip.mp4"
    sources = ["testsrc=size=128x128:rate=24:duration=1", "sine=frequency=440:sample_rate=32000:duration=1"]
    inputs = [word for source in sources for word in ("-f", "lavfi", "-i", source)]
    coding = ["-pix_fmt", "yuv420p", "-c:v", "libx264", "-c:a", "aac", "-ac", "2"]
    ffmpeg = imageio_ffmpeg.get_ffmpeg_exe()
    subprocess.run([ffmpeg, "-loglevel", "error", *inputs, *coding, str(clip)], check=True)
    running = start_window([str(SCRIPT), str(folder), str(clip)], folder)
    yield running
    assert end_window(running) == 0


@pytest.fixture(scope="module")
def page(window, open_page):
    """One English page for all tests that need no page of their own."""
    return open_page(window)


@pytest.fixture(scope="module")
def chinese(window, open_page):
    return open_page(window, locale="zh-CN", dark=True)


def generate(page, prompt):
    page.fill("#prompt textarea", prompt)
    page.click("#generate")
    page.wait_for_selector("#stop")


def held(page, step):
    """The preview of a step the script waits at."""
    return page.wait_for_selector(f"#preview-picture[data-step='{step}']").get_attribute("src")


def release(window, *steps):
    for step in steps:
        (window.folder / f"release-{step}").touch()


def finished(page):
    """The result's text, once it is there."""
    page.wait_for_selector("[data-state=done]")
    page.wait_for_selector("#result-video")
    return page.inner_text("#result")


def type_seed(page, seed):
    page.click("#seed input")
    page.keyboard.press("Control+a")
    page.keyboard.insert_text(seed)


def fill_exact(page, **values):
    """Fill exact fields until they hold; one that is filled while the accordion still opens is emptied by it."""
    while any(page.input_value(f"#exact-{name} input") != value for name, value in values.items()):
        for name, value in values.items():
            page.fill(f"#exact-{name} input", value)


def wait_until(page, condition):
    page.wait_for_function(f"() => {{ const at = (s) => document.querySelector(s); return {condition}; }}")


def test_without_the_secret_the_page_stays_closed(browser, window):
    context = browser.new_context()
    page = context.new_page()
    assert page.goto(window.origin).status == 403
    assert page.goto(f"{window.origin}/?t=wrong").status == 403
    assert page.goto(window.url, wait_until="commit").status == 200 and "t=" not in page.url
    assert context.cookies()[0]["httpOnly"] and context.cookies()[0]["sameSite"] == "Strict"
    context.close()


def test_a_name_that_was_rebound_to_us_is_refused(browser, window):
    context = browser.new_context()
    assert context.new_page().goto(window.url.replace("127.0.0.1", "evil.example")).status == 400
    context.close()


def test_the_first_page_invites_and_hides_what_is_not_needed(page, screenshot):
    assert page.inner_text("#generate") == "Generate" and not page.is_visible("#stop")
    assert not page.is_visible("#exact-width") and not page.is_visible("#error")
    screenshot(page, "en-first")


def test_control_enter_makes_a_clip_that_plays_with_sound(page, window, screenshot):
    page.fill("#prompt textarea", "hold a red circle")
    page.keyboard.press("Control+Enter")
    early = held(page, 2)
    assert page.is_visible("#stop") and not page.is_visible("#generate")
    release(window, 2)
    assert held(page, 5) != early
    wait_until(page, "at('#status').innerText.includes('step 5/8')")
    screenshot(page, "en-preview")
    release(window, 5)
    assert "128 × 128 · 22 frames" in finished(page)
    wait_until(page, "at('#result-video').readyState >= 2")
    wait_until(page, "at('#result-video').webkitAudioDecodedByteCount > 0")
    assert page.evaluate("document.querySelector('#result-video').duration") == pytest.approx(1, abs=0.2)
    screenshot(page, "en-result")


def test_the_result_is_served_in_place_and_in_parts(page, window):
    clip = Path(page.inner_text("#result-path"))
    address = window.origin + page.get_attribute("#download", "href")
    assert clip.parent == window.folder and page.request.get(address).body() == clip.read_bytes()
    part = page.request.get(address, headers={"Range": "bytes=0-99"})
    assert part.status == 206 and part.body() == clip.read_bytes()[:100]
    assert not list((window.folder / "cache").glob("**/*.mp4"))


def test_other_files_are_not_served(page, window):
    for path in ("/etc/passwd", str(SCRIPT)):
        assert page.request.get(f"{window.origin}/gradio_api/file={path}").status == 403


def test_a_long_seed_keeps_every_digit(page):
    seed = str(2**53 + 1)
    type_seed(page, seed)
    generate(page, "a red circle")
    assert f"seed {seed}" in finished(page)
    assert page.input_value("#seed input") == seed and page.is_checked("#seed-lock input")


def test_rounded_sizes_are_announced(page, screenshot):
    page.click("#advanced button")
    fill_exact(page, width="720", height="480", frames="49")
    generate(page, "a red circle")
    assert "736 × 480 · 56 frames" in finished(page)
    notices = page.inner_text(".v-notices")
    assert "720×480 became 736×480" in notices and "49 frames became 56" in notices
    screenshot(page, "en-notices")
    fill_exact(page, width="", height="", frames="")
    page.click("#advanced button")


def test_stop_ends_the_job_and_the_next_one_runs(page, window, screenshot):
    generate(page, "hold a red circle")
    held(page, 2)
    wait_until(page, "at('.v-timing').innerText.includes('1 s so far')")
    page.click("#stop")
    wait_until(page, "at('#status').innerText.includes('finishing first')")
    page.wait_for_selector("[data-state=cancelled]")
    page.wait_for_selector("#generate")
    screenshot(page, "en-stopped")
    generate(page, "a red circle")
    finished(page)


def test_a_failure_stays_readable_and_shows_no_markup_of_others(page, screenshot):
    generate(page, "fail")
    page.wait_for_selector(".v-error")
    assert "The disk <b>is full</b>" in page.inner_text("#error")
    before = page.input_value("#seed input")
    page.click("#dice")
    wait_until(page, f"at('#seed input').value != '{before}'")
    assert page.is_visible(".v-error") and page.is_visible("#generate")
    assert page.input_value("#prompt textarea") == "fail"
    screenshot(page, "en-failed")


def test_a_narrow_screen_puts_the_stage_below_the_form(page, screenshot):
    page.set_viewport_size({"width": 700, "height": 900})
    assert page.locator("#theatre").bounding_box()["y"] > page.locator("#generate").bounding_box()["y"]
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    screenshot(page, "en-narrow")
    page.set_viewport_size({"width": 1280, "height": 900})


def test_reloaded_pages_find_the_running_job_with_its_settings(open_page, page, chinese, window, screenshot):
    page.check("#size input[value='192x128']", force=True)
    generate(page, "hold a red circle")
    held(page, 2)
    open_page.reload(page)
    held(page, 2)
    assert page.is_visible("#stop")
    wait_until(page, "at('#prompt textarea').value === 'hold a red circle'")
    wait_until(page, "at(\"#size input[value='192x128']\").checked")
    open_page.reload(chinese)
    held(chinese, 2)
    release(window, 2)
    held(chinese, 5)
    wait_until(chinese, "at('#status').innerText.includes('正在生成画面与声音')")
    screenshot(chinese, "zh-dark-preview")
    release(window, 5)
    assert "192 × 128" in finished(page) and "192 × 128" in finished(chinese)
    screenshot(chinese, "zh-dark-result")


def test_a_chinese_browser_gets_a_chinese_window(chinese):
    assert chinese.inner_text("#generate") == "生成"
    words = chinese.inner_text("#controls")
    assert "提示词" in words and "时长" in words and "自动" in words and "Prompt" not in words
    chinese.click("#example-1")
    wait_until(chinese, "at('#prompt textarea').value.includes('红色的圆形')")


def test_a_form_with_mistakes_names_them_all(chinese, screenshot):
    type_seed(chinese, "1e9")
    chinese.fill("#prompt textarea", " ")
    chinese.click("#generate")
    chinese.wait_for_selector(".v-error")
    words = chinese.inner_text("#error")
    assert "提示词为空" in words and "“1e9”" in words
    screenshot(chinese, "zh-mistakes")
