"""Open the window in the browser; the default when no verb is given."""

import argparse
import os
from collections.abc import MutableMapping
from pathlib import Path

from core import paths
from core.library.names import dated_path
from core.worker.jobs import JobManager

LOOPBACK_NAMES = "127.0.0.1,localhost"
PROXY_VARIABLES = ("ALL_PROXY", "all_proxy", "HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The window's own options."""
    parser.add_argument("--no-browser", action="store_true", help="only print the address")
    parser.add_argument("--port", type=port_number, default=0, help="port on this machine; any free one when left out")


def port_number(text: str) -> int:
    """Port from the command line; ValueError, which argparse reports, when there is no such port."""
    port = int(text)
    if not 0 <= port < 2**16:
        raise ValueError(text)
    return port


def run(arguments: argparse.Namespace) -> int:
    """Show the window until the process is told to end; the exit code."""
    prepare_environment(os.environ, paths.cache_dir())
    from ui.server import serve  # imports gradio, which reads the environment now

    folder = Path(paths.output_dir())
    folder.mkdir(parents=True, exist_ok=True)
    return serve(
        JobManager(),
        str(folder),
        lambda request: str(dated_path(folder, request.prompt)),
        port=arguments.port,
        open_browser=not arguments.no_browser,
    )


def prepare_environment(environment: MutableMapping[str, str], cache_folder: str | Path) -> None:
    """What gradio and its libraries read when they are imported: nothing leaves this machine, files stay in our cache.

    A SOCKS proxy is taken out because the HTTP library refuses to be imported with one.
    """
    for name in PROXY_VARIABLES:
        if environment.get(name, "").startswith("socks"):
            del environment[name]
    for name in ("NO_PROXY", "no_proxy"):
        environment[name] = ",".join(part for part in (environment.get(name, ""), LOOPBACK_NAMES) if part)
    environment |= {
        "GRADIO_ANALYTICS_ENABLED": "False",
        "GRADIO_TEMP_DIR": str(Path(cache_folder) / "window"),
        "GRADIO_RUN_HISTORY": "False",
        "HF_HUB_OFFLINE": "1",
        "HF_HUB_DISABLE_TELEMETRY": "1",
    }
