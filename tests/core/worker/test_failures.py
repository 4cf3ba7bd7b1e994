"""Sentences for every way a render can end without a result.

Tier: closed form. Cannot catch a system that kills with another signal than the known ones.
"""

import signal

import pytest

from core.errors import CheckpointError
from core.phase import Phase
from core.worker.failures import DURING, failed_with, not_started, worker_died

SIGNALS = sorted(signal.valid_signals() - {signal.SIGCHLD, signal.SIGCONT, signal.SIGSTOP})


def test_every_phase_has_its_words():
    assert set(DURING) == set(Phase) and len(set(DURING.values())) == len(Phase)


@pytest.mark.parametrize("phase", Phase)
def test_every_death_is_one_sentence_with_the_phase_and_a_hint(phase):
    for exit_code in [-number for number in SIGNALS] + [0, 1, 255]:
        failed = worker_died("j", exit_code, phase)
        assert failed.kind == "worker" and DURING[phase] in failed.message and failed.hint
        assert failed.message.endswith(".") and "\n" not in failed.message and failed.message.count(". ") == 0


def test_a_kill_names_memory_and_two_settings():
    failed = worker_died("j", -9, Phase.DENOISE)
    assert failed.message == "The system ended the render during denoising, most likely out of memory."
    assert failed.hint == "Try fewer frames or a smaller size."


def test_leaving_with_code_0_is_not_success():
    assert "without a result (exit code 0)" in worker_died("j", 0, Phase.EXPORT).message


def test_our_own_errors_keep_their_words():
    failed = failed_with("j", CheckpointError("tensor x is missing", hint="Download it again."), Phase.STARTING)
    assert (failed.kind, failed.message, failed.hint) == ("checkpoint", "tensor x is missing", "Download it again.")


OUT_OF_MEMORY = [
    MemoryError(),
    RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory"),
    OSError(12, "Cannot allocate memory"),
]


@pytest.mark.parametrize("error", OUT_OF_MEMORY)
def test_every_library_s_way_to_say_out_of_memory_is_understood(error):
    failed = failed_with("j", error, Phase.VIDEO_DECODE)
    assert failed.kind == "memory" and "while making the pictures" in failed.message and "smaller" in failed.hint


def test_an_unknown_error_is_a_crash_with_its_traceback():
    try:
        raise KeyError("qkv") from ValueError("inner")
    except KeyError as error:
        failed = failed_with("j", error, Phase.DENOISE)
    assert failed.kind == "crash" and "KeyError" in failed.message
    assert "test_failures.py" in failed.detail and "ValueError: inner" in failed.detail


def test_a_worker_that_cannot_start_says_why():
    failed = not_started("j", FileNotFoundError(2, "No such file", "/nowhere/python"))
    assert failed.kind == "worker" and "/nowhere/python" in failed.message
