"""What a render tells whoever is watching. The worker sends these over its socket; tests collect them in a list."""

from typing import Protocol

import numpy as np

from core.phase import Phase


class Reporter(Protocol):
    """Called from the thread that renders; must not block for long."""

    def phase(self, phase: Phase, total: int) -> None:
        """A phase begins; `total` units of work in it, 0 when unknown."""

    def progress(self, done: int, total: int) -> None:
        """Units of the current phase finished so far."""

    def preview(self, step: int, rgb: np.ndarray) -> None:
        """A rough picture, uint8 [h, w, 3], after evaluation `step` (from 1)."""

    def notice(self, text: str) -> None:
        """A sentence the person should see, such as a fallback that was taken."""
