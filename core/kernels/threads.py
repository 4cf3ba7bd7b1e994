"""How many threads may compute: the machine stays usable while a render runs.

Read by both backends and by the export, for ffmpeg. Proof: tests/core/kernels/test_threads.py.
"""

import os

from core.errors import KernelError


def default_threads() -> int:
    """VIGNETTE_THREADS, or all processors but one where there are more than two."""
    asked = os.environ.get("VIGNETTE_THREADS")
    if asked is not None:
        if not asked.isdigit() or not 1 <= int(asked) <= 256:
            raise KernelError(f"VIGNETTE_THREADS is {asked!r}, expected a number from 1 to 256.")
        return int(asked)
    cores = available_processors()
    return cores - 1 if cores > 2 else cores


def available_processors() -> int:
    """Processors this process may run on; macOS has no affinity, there it is all of them."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
