"""Prompts to judge a model by: held-out compositions without repetition, English and Chinese in turn.

Shared by score.py (the trained modules) and eval_mini.py (the application's engine), so that one seed means one set.
"""

import random
from dataclasses import dataclass

from dev.mini import world


@dataclass(frozen=True, slots=True)
class Request:
    """One clip to make: what it should show, and how it is asked for."""

    composition: world.Composition
    language: str
    prompt: str


def make_requests(count: int, seed: int) -> list[Request]:
    """`count` different held-out compositions, languages in turn."""
    rng = random.Random(seed)
    chosen = rng.sample(world.held_out_compositions(), count)
    languages = [world.LANGUAGES[i % len(world.LANGUAGES)] for i in range(count)]
    return [Request(c, lang, world.caption(c, rng, lang)) for c, lang in zip(chosen, languages, strict=True)]
