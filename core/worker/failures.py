"""What a failed render says: one sentence and a hint for every way to end without a result.

Pure. The trap: `Killed: 9` and `exit code -6` tell nobody that the machine ran out of memory, and a worker that leaves
with code 0 and no result must not look like success. tests/core/worker/test_failures.py.
"""

import signal
import traceback

from core.errors import VignetteError, WorkerError
from core.phase import Phase
from core.worker.events import JobFailed

DURING = {
    Phase.STARTING: "while starting",
    Phase.TEXT: "while reading the prompt",
    Phase.DENOISE: "during denoising",
    Phase.AUDIO_DECODE: "while making the sound",
    Phase.VIDEO_DECODE: "while making the pictures",
    Phase.EXPORT: "while writing the file",
}
SMALLER = "Try fewer frames or a smaller size."
SEE_LOG = "The worker's log has the details."
MEMORY_WORDS = ("out of memory", "not enough memory", "can't allocate memory", "cannot allocate memory")
DETAIL_LIMIT_CHARS = 20_000


def failed_with(job_id: str, error: BaseException, phase: Phase) -> JobFailed:
    """The message of an error that a job raised, with its traceback for the log."""
    if isinstance(error, VignetteError):
        kind, message, hint = error.kind, error.message, error.hint
    elif isinstance(error, MemoryError) or any(words in str(error).lower() for words in MEMORY_WORDS):
        kind, message, hint = "memory", f"The render ran out of memory {DURING[phase]}.", SMALLER
    else:
        what = ": ".join(part for part in (type(error).__name__, str(error)) if part)
        kind, message, hint = "crash", f"The render failed {DURING[phase]} ({what}).", SEE_LOG
    detail = "".join(traceback.format_exception(error))[-DETAIL_LIMIT_CHARS:]
    return JobFailed(job_id=job_id, kind=kind, message=message, hint=hint, detail=detail)


def worker_died(job_id: str, exit_code: int, phase: Phase) -> JobFailed:
    """The message for a worker that ended with `exit_code` (negative: a signal) before its job did."""
    message, hint = death_sentence(exit_code, DURING[phase])
    detail = f"worker ended in phase {phase.value} with exit code {exit_code}"
    return JobFailed(job_id=job_id, kind=WorkerError.kind, message=message, hint=hint, detail=detail)


def death_sentence(exit_code: int, during: str) -> tuple[str, str]:
    """(sentence, hint) for an exit code; `during` says when it happened."""
    match -exit_code:
        case signal.SIGKILL:
            return f"The system ended the render {during}, most likely out of memory.", SMALLER
        case signal.SIGABRT:
            return f"The render gave up {during}, which can mean too little graphics memory.", SMALLER
        case signal.SIGBUS:
            return f"The render could not read its model any more {during}.", "Check the disk the model is on."
        case signal.SIGSEGV | signal.SIGILL | signal.SIGFPE | signal.SIGTRAP as number:
            return f"The render crashed {during} ({signal.Signals(number).name}).", SEE_LOG
        case signal.SIGTERM | signal.SIGINT | signal.SIGHUP | signal.SIGQUIT:
            return f"Another program ended the render {during}.", "Start it again."
        case _:
            return f"The render stopped {during} without a result (exit code {exit_code}).", SEE_LOG


def not_started(job_id: str, error: BaseException) -> JobFailed:
    """The message for a worker whose program could not be started."""
    return JobFailed(
        job_id=job_id,
        kind=WorkerError.kind,
        message=f"The render process could not be started: {error}.",
        hint="Reinstall the app.",
        detail="".join(traceback.format_exception(error))[-DETAIL_LIMIT_CHARS:],
    )
