"""A real render killed in every phase: one sentence, no orphan, no broken file, and the next job runs.

Tier: executed with the embedded model. Cannot catch how macOS words its own memory kills.
"""

import os
import queue
import signal

import pytest

from core import paths
from core.phase import Phase
from core.request import GenerationRequest
from core.worker import events
from core.worker.client import WorkerClient
from tests.core.worker.scripted import gone_after_s

pytestmark = [
    pytest.mark.native,
    pytest.mark.skipif(not paths.mini_model_path().is_dir(), reason="the embedded model assets/mini is missing"),
]
REQUEST = GenerationRequest(prompt="a white star spins on a black background, pulse", seed=5, steps=3)
WAIT_S = 120


@pytest.fixture
def conversation(tmp_path, monkeypatch):
    monkeypatch.setenv("VIGNETTE_HOME", str(tmp_path / "home"))
    messages = queue.SimpleQueue()
    client = WorkerClient(messages.put)
    yield client, messages
    client.close()


def render(client, messages, path, until) -> events.Message:
    """Start a render and return the first message that `until` accepts."""
    client.submit(events.StartJob(job_id="r", kind="generate", payload=REQUEST.to_json(), output_path=str(path)))
    while not until(message := messages.get(timeout=WAIT_S)):
        assert not isinstance(message, events.FINAL_MESSAGES), message
    return message


def is_final(message: events.Message) -> bool:
    return isinstance(message, events.FINAL_MESSAGES)


@pytest.mark.parametrize("phase", list(Phase))
def test_kill_9_in_each_phase_is_one_sentence_and_the_next_render_works(conversation, tmp_path, phase):
    client, messages = conversation
    render(
        client, messages, tmp_path / "a.mp4",
        lambda m: isinstance(m, events.PhaseStarted) and m.phase == phase.value,
    )  # fmt: skip
    pid = client.worker_pid
    os.kill(pid, signal.SIGKILL)
    while not is_final(failed := messages.get(timeout=WAIT_S)):
        pass
    assert isinstance(failed, events.JobFailed) and failed.kind == "worker" and failed.hint
    assert failed.message.count(".") == 1 and "\n" not in failed.message
    assert gone_after_s(pid, 5) < 5
    assert not [path for path in tmp_path.iterdir() if path.name != "home"]
    done = render(client, messages, tmp_path / "b.mp4", is_final)
    assert isinstance(done, events.JobDone) and os.path.getsize(done.output_path) > 1000
