"""The window's own web server on this machine's loopback address.

The trap: Gradio's `launch` asks itself over HTTP, which a proxy setting breaks, answers any Host, and looks for a fixed
port. So we bind the socket (any free port), mount the page behind the gate, and run uvicorn in a second thread; the
first thread waits for the end, as a desktop event loop does. Gradio reads its environment variables when it is
imported, so `core/commands/window.py` sets them before this file is. Proof: tests/browser and tests/ui/test_server.py.
"""

import os
import secrets
import signal
import socket
import sys
import threading
import time
import webbrowser
from collections.abc import Callable
from dataclasses import dataclass

import gradio as gr
import uvicorn
from fastapi import FastAPI

from core.errors import RequestError
from core.request import GenerationRequest
from core.worker.jobs import JobManager
from ui.components.prompt import SHORTCUT_HEAD
from ui.gate import SECRET_PARAMETER, guarded
from ui.theme import style_sheet, window_theme
from ui.window import build_window, translations

LOOPBACK = "127.0.0.1"
END_OF_CONNECTIONS_S = 2  # open event streams are cut after that
START_POLL_S = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """Where this start of the window is reached. `secret` is part of it."""

    port: int
    secret: str

    @property
    def url(self) -> str:
        return f"http://{LOOPBACK}:{self.port}/?{SECRET_PARAMETER}={self.secret}"


def bind(port: int) -> socket.socket:
    """Listening socket on the loopback address; port 0 takes any free one. RequestError when the port is taken."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((LOOPBACK, port))
    except OSError as error:
        listener.close()
        raise RequestError(f"Port {port} cannot be used: {error}.", hint="Leave --port out.") from error
    listener.listen(128)
    return listener


def build_application(jobs: JobManager, output_folder: str, output_path: Callable, address: Address):
    """The page behind the gate, as an ASGI application. Clips are read from `output_folder` where they lie."""
    gr.set_static_paths([output_folder])
    i18n = translations()
    application = gr.mount_gradio_app(
        FastAPI(docs_url=None, redoc_url=None, openapi_url=None),
        build_window(jobs, output_path, i18n).queue(default_concurrency_limit=None),
        path="/",
        server_name=LOOPBACK,
        server_port=address.port,
        footer_links=[],
        run_history=False,
        ssr_mode=False,
        enable_monitoring=False,
        pwa=False,
        mcp_server=False,
        i18n=i18n,
        theme=window_theme(),
        css_paths=[style_sheet()],
        head=SHORTCUT_HEAD,
    )
    return guarded(application, port=address.port, secret=address.secret)


def serve(
    jobs: JobManager,
    output_folder: str,
    output_path: Callable[[GenerationRequest], str],
    *,
    port: int = 0,
    open_browser: bool = True,
) -> int:
    """Show the window until the process is told to end; returns the exit code. The worker is gone afterwards."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with bind(port) as listener:
        address = Address(port=listener.getsockname()[1], secret=secrets.token_urlsafe(24))
        application = build_application(jobs, output_folder, output_path, address)
        server = uvicorn.Server(
            uvicorn.Config(
                application, log_level="warning", access_log=False, timeout_graceful_shutdown=END_OF_CONNECTIONS_S
            )
        )
        thread = threading.Thread(target=server.run, args=([listener],), name="server", daemon=True)
        thread.start()
        try:
            while thread.is_alive() and not server.started:
                time.sleep(START_POLL_S)
            _announce(address, open_browser)
            thread.join()
        except KeyboardInterrupt:
            return 0
        finally:
            jobs.close()
            server.should_exit = True
            thread.join()
    return 1


def _announce(address: Address, open_browser: bool) -> None:
    print(f"Vignette is open at {address.url}", flush=True)
    if open_browser and has_screen():
        webbrowser.open(address.url)


def has_screen(platform: str = sys.platform) -> bool:
    """Whether a graphical browser can show up; without a screen Python would start a text browser in the terminal."""
    return platform == "darwin" or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
