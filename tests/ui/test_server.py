"""The socket and the address of the window.

Tier: executed. The served page is tested in tests/browser.
"""

import socket

import pytest

from core.errors import RequestError
from ui.server import Address, bind, has_screen


def test_port_zero_is_any_free_port_of_the_loopback_address_only():
    with bind(0) as first, bind(0) as second:
        assert first.getsockname()[0] == "127.0.0.1"
        assert first.getsockname()[1] != second.getsockname()[1]


def test_a_taken_port_is_an_error_that_names_it():
    with bind(0) as taken, pytest.raises(RequestError, match=str(taken.getsockname()[1])):
        bind(taken.getsockname()[1])


def test_the_socket_takes_connections_before_the_server_runs():
    with bind(0) as listener, socket.create_connection(listener.getsockname(), timeout=5):
        pass


def test_the_address_holds_the_secret():
    assert Address(port=81, secret="abc").url == "http://127.0.0.1:81/?t=abc"


def test_without_a_screen_no_text_browser_is_started(monkeypatch):
    monkeypatch.delenv("DISPLAY", raising=False)
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    assert not has_screen("linux") and has_screen("darwin")
    monkeypatch.setenv("WAYLAND_DISPLAY", "wayland-0")
    assert has_screen("linux")
