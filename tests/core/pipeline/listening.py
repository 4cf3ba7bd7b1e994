"""A reporter that keeps what it hears."""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from core.phase import Phase


@dataclass(slots=True)
class Listener:
    """Everything a render reported, in order."""

    on_phase: Callable[[Phase], object] = lambda phase: None
    phases: list[tuple[Phase, int]] = field(default_factory=list)
    steps: list[tuple[int, int]] = field(default_factory=list)
    previews: list[tuple[int, np.ndarray]] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)

    def phase(self, phase: Phase, total: int) -> None:
        self.phases.append((phase, total))
        self.on_phase(phase)

    def progress(self, done: int, total: int) -> None:
        self.steps.append((done, total))

    def preview(self, step: int, rgb: np.ndarray) -> None:
        self.previews.append((step, rgb))

    def notice(self, text: str) -> None:
        self.notices.append(text)
