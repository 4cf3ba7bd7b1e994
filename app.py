"""Vignette: `python app.py` opens the window, `python app.py generate ...` works without one.

Started with `--worker FD` it is the child that renders; that is decided before anything heavy is imported, because the
window's process must not load what the worker needs, nor the other way round.
"""

import argparse
import importlib
import pkgutil
import sys

from core import commands
from core.errors import VignetteError

WORKER_FLAG = "--worker"
WINDOW = "window"


def verbs() -> list[str]:
    """The command-line verbs: one file each in core/commands."""
    return sorted(module.name for module in pkgutil.iter_modules(commands.__path__))


def run_verb(verb: str, words: list[str]) -> int:
    """Exit code of one verb; its own errors become a sentence on stderr."""
    command = importlib.import_module(f"core.commands.{verb}")
    description = (command.__doc__ or "").partition("\n\n")[0]
    parser = argparse.ArgumentParser(prog="app.py" if verb == WINDOW else f"app.py {verb}", description=description)
    if verb == WINDOW:
        parser.epilog = f"Without a verb the window opens. Verbs: {', '.join(verbs())}. Each knows --help."
    command.add_arguments(parser)
    try:
        return command.run(parser.parse_args(words))
    except VignetteError as error:
        print(" ".join(part for part in (error.message, error.hint) if part), file=sys.stderr)
        return 1


def main(words: list[str]) -> int:
    """Child, verb or window."""
    if words[:1] == [WORKER_FLAG]:
        from core.worker.process import main as work

        return work(int(words[1]))
    verb, rest = (words[0], words[1:]) if words and not words[0].startswith("-") else (WINDOW, words)
    if verb not in verbs():
        print(f"There is no verb {verb!r}. Verbs: {', '.join(verbs())}.", file=sys.stderr)
        return 2
    return run_verb(verb, rest)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
