"""Which backend computes: the native kernels, or torch when their library is missing. The choice is never silent."""

import os

from core.errors import KernelError
from core.kernels.backend import Backend, CancelFlag
from core.kernels.native import NativeBackend
from core.kernels.reference import ReferenceBackend
from core.kernels.threads import default_threads

BACKENDS = {"native": NativeBackend, "reference": ReferenceBackend}
BACKEND_VARIABLE = "VIGNETTE_BACKEND"  # forces one, for tests and for finding faults


def open_backend(name: str, cancel: CancelFlag) -> tuple[Backend, str]:
    """(backend, sentence about a fallback or "").

    name:   "native" or "reference"; empty: what VIGNETTE_BACKEND says, else native with torch as fallback
    raises: KernelError when the backend asked for by name is unknown or cannot be opened
    """
    wanted, threads = name or os.environ.get(BACKEND_VARIABLE, ""), default_threads()
    if wanted:
        if wanted not in BACKENDS:
            raise KernelError(f"There is no backend {wanted!r}; there are {', '.join(BACKENDS)}.")
        return BACKENDS[wanted](cancel=cancel, threads=threads), ""
    try:
        return NativeBackend(cancel=cancel, threads=threads), ""
    except KernelError as error:
        notice = f"Computing with torch, which is slower: {error.message}"
        return ReferenceBackend(cancel=cancel, threads=threads), notice
