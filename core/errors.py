"""The exception tree. Each error says what failed, what was got and what was expected; the remedy is its own field.

Only `ui/messages.py` and the command line turn an error into prose. `Cancelled` is an outcome, not an error.
"""


class VignetteError(Exception):
    """Base of everything we raise on purpose. `hint` is one sentence saying what to do, or empty."""

    kind = "error"

    def __init__(self, message: str, *, hint: str = ""):
        super().__init__(message)
        self.message = message
        self.hint = hint


class RequestError(VignetteError):
    """The person asked for something the model cannot do."""

    kind = "request"


class CheckpointError(VignetteError):
    """A weight file is missing, truncated, of another model, or of an unknown format."""

    kind = "checkpoint"


class MemoryBudgetError(VignetteError):
    """The job does not fit this machine."""

    kind = "memory"


class KernelError(VignetteError):
    """A kernel was called with impossible arguments, or the library is missing or of another version."""

    kind = "kernel"


class MediaError(VignetteError):
    """Encoding, decoding or writing a media file failed."""

    kind = "media"


class WorkerError(VignetteError):
    """The worker process died or did not answer."""

    kind = "worker"


class Cancelled(Exception):
    """The person stopped the job."""
