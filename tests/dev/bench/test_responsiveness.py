"""The probe of the window's answers, against small servers of known delay.

Tier: closed form and self-consistency. Does not start the window; `make bench-responsiveness` does.
"""

import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from dev.bench.responsiveness import Page, measure, summary, verdict

CONFIG = {
    "components": [
        {"id": 3, "props": {"elem_id": "generate"}},
        {"id": 4, "props": {"elem_id": "dice"}},
    ],
    "dependencies": [
        {"id": 0, "targets": [[None, "load"], [3, "click"]]},
        {"id": 7, "targets": [[4, "click"]]},
    ],
}


class Answers(BaseHTTPRequestHandler):
    """The page after `server.delay_s`, its configuration at once, and what was posted kept."""

    def do_GET(self):
        body = json.dumps(CONFIG).encode() if self.path == "/config" else b"page"
        time.sleep(0 if self.path == "/config" else self.server.delay_s)
        self._send(body)

    def do_POST(self):
        self.server.posted.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self._send(b"{}")

    def log_message(self, *_):
        pass

    def _send(self, body: bytes):
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@pytest.fixture
def server():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    server.delay_s, server.posted = 0.0, []
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


def page_of(server) -> Page:
    return Page(f"http://127.0.0.1:{server.server_port}/?t=secret")


def test_summary_of_one_to_a_hundred():
    assert summary([float(n) for n in range(100, 0, -1)]) == {
        "samples": 100,
        "median": 50.5,
        "p95": pytest.approx(95.05, abs=0.06),
        "max": 100.0,
    }


def test_the_worst_kind_decides_and_the_target_itself_is_too_slow():
    figures = {"page": {"p95": 12.0}, "event": {"p95": 200.0}}
    assert verdict(figures, 200.0) == {"p95_ms": 200.0, "target_ms": 200.0, "ok": False}
    assert verdict(figures, 200.1)["ok"]


def test_a_slow_page_misses_the_target_and_its_events_are_told_apart(server):
    page = page_of(server)
    server.delay_s = 0.25
    figures = measure({"page": page.fetch, "event": page.roll}, 3, pace_s=0.0)
    assert figures["page"]["median"] >= 250 > figures["event"]["median"]
    assert not verdict(figures, 200.0)["ok"]


def test_samples_begin_at_the_asked_pace():
    started = time.perf_counter()
    measure({"a": lambda: None, "b": lambda: None}, 3, pace_s=0.05)
    assert time.perf_counter() - started >= 6 * 0.05


def test_the_dice_are_found_by_their_element(server):
    page_of(server).roll()
    assert [posted["fn_index"] for posted in server.posted] == [7]


def test_an_element_without_a_click_is_named(server):
    with pytest.raises(LookupError, match="'stop'"):
        page_of(server).event("stop")
