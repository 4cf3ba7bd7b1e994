"""The gate in front of the window's server.

Tier: closed form (a tiny application behind the gate, every header given). Cannot catch what a browser sends by itself;
tests/browser does that.
"""

import pytest
from starlette.responses import PlainTextResponse
from starlette.testclient import TestClient

from ui.gate import guarded

PORT, SECRET = 4321, "s3cret-of-this-start"
OWN = f"http://127.0.0.1:{PORT}"


async def application(scope, receive, send):
    await PlainTextResponse("inside")(scope, receive, send)


@pytest.fixture
def client():
    return TestClient(guarded(application, port=PORT, secret=SECRET), base_url=OWN, follow_redirects=False)


@pytest.fixture
def entered(client):
    client.get(f"/?t={SECRET}")
    return client


def test_without_the_secret_nothing_is_answered(client):
    for path in ("/", "/config", "/gradio_api/file=/etc/passwd", "/?t=wrong", "/?t="):
        assert client.get(path).status_code == 403


def test_the_secret_gives_a_cookie_scripts_cannot_read_and_leaves_the_address(client):
    answer = client.get(f"/?t={SECRET}")
    assert (answer.status_code, answer.headers["location"]) == (303, "/")
    cookie = answer.headers["set-cookie"].lower()
    assert "httponly" in cookie and "samesite=strict" in cookie and f"vignette_{PORT}=" in cookie
    assert client.get("/").text == "inside"


def test_the_secret_counts_only_on_the_first_page(client):
    assert client.get(f"/config?t={SECRET}").status_code == 403


def test_a_cookie_of_another_port_does_not_count(client):
    client.cookies.set(f"vignette_{PORT + 1}", SECRET)
    assert client.get("/").status_code == 403


@pytest.mark.parametrize("host", ["evil.example", f"evil.example:{PORT}", "127.0.0.1.evil.example", "[::1]"])
def test_another_host_name_is_refused_even_with_the_cookie(entered, host):
    assert entered.get("/", headers={"host": host}).status_code == 400


def test_localhost_is_accepted(entered):
    assert entered.get("/", headers={"host": f"localhost:{PORT}"}).text == "inside"


@pytest.mark.parametrize(
    "origin", ["http://evil.example", f"http://127.0.0.1:{PORT + 1}", "null", f"https://127.0.0.1:{PORT}"]
)
def test_a_foreign_origin_is_refused_even_with_the_cookie(entered, origin):
    assert entered.get("/", headers={"origin": origin}).status_code == 403
    assert entered.post("/", headers={"origin": origin}).status_code == 403


def test_our_own_origin_passes(entered):
    assert entered.post("/", headers={"origin": OWN}).text == "inside"


def test_a_damaged_cookie_is_refused_without_an_exception(client):
    for value in ("vignette_4321", 'a=b; ;;; =; "', f"vignette_{PORT}=ä".encode()):
        assert client.get("/", headers={"cookie": value}).status_code == 403


def test_the_refusal_speaks_the_readers_language(client):
    assert "网址" in client.get("/", headers={"accept-language": "zh-CN"}).text
