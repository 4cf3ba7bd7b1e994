"""A client with a scripted child."""

from pathlib import Path

import pytest

from core.worker.client import Patience, WorkerClient
from tests.core.worker.scripted import Heard, start_child


@pytest.fixture(autouse=True)
def own_home(tmp_path, monkeypatch) -> Path:
    """Logs go to a folder of the test."""
    monkeypatch.setenv("VIGNETTE_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture
def heard() -> Heard:
    return Heard()


@pytest.fixture
def make_client(heard):
    clients = []

    def make(patience: Patience | None = None, start=start_child) -> WorkerClient:
        clients.append(WorkerClient(heard, start=start, patience=patience or Patience()))
        return clients[-1]

    yield make
    for client in clients:
        client.close()


@pytest.fixture
def client(make_client) -> WorkerClient:
    return make_client()
