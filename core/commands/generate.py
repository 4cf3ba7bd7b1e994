"""Make one clip from the command line, in the same worker process that the window uses.

Exit codes: 0 with a finished clip, 1 with a sentence about what failed, 130 when it was stopped with Ctrl-C (no file
and no process is left then), 2 for words argparse does not know. The trap: whoever runs this from a script reads the
file that was named, so that file is replaced once the new one is finished; a name we choose never replaces anything.
tests/core/commands/test_generate.py.
"""

import argparse
import json
import queue
import sys
from dataclasses import dataclass
from pathlib import Path

from core import paths
from core.errors import Cancelled, MediaError, RequestError, VignetteError, WorkerError
from core.library.names import dated_path
from core.request import GenerationRequest, parse_seed, snap_size
from core.worker import events
from core.worker.client import WorkerClient

DEFAULTS = GenerationRequest(prompt="-")
FAILED, STOPPED = 1, 130  # 128 + SIGINT, as shells say it


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Where the clip goes. `overwrite`: the person named this very file."""

    path: Path
    overwrite: bool


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Flags of `app.py generate`."""
    parser.add_argument("--prompt", required=True, help="what the clip shows and sounds like")
    parser.add_argument(
        "--out",
        help="mp4 to write, replaced if it exists, or a folder; without it a dated name in the output folder",
    )
    parser.add_argument("--model", default="", help="folder with the model's files; without it the embedded model")
    parser.add_argument("--width", type=int, default=DEFAULTS.width, help="px, multiple of 32 (default %(default)s)")
    parser.add_argument("--height", type=int, default=DEFAULTS.height, help="px, multiple of 32 (default %(default)s)")
    parser.add_argument("--frames", type=int, default=DEFAULTS.frame_count, help="22, 39, ... (default %(default)s)")
    parser.add_argument("--steps", type=int, help="model evaluations; without it the model's own number")
    parser.add_argument("--seed", default="-1", help="whole number; -1 draws one (default %(default)s)")
    parser.add_argument("--json", action="store_true", help="print one JSON object with the result as the last line")


def request_of(arguments: argparse.Namespace) -> tuple[GenerationRequest, list[str]]:
    """The legal request next to what was typed, and a sentence for each change."""
    width, height, frame_count, notices = snap_size(arguments.width, arguments.height, arguments.frames)
    request = GenerationRequest(
        prompt=arguments.prompt,
        width=width,
        height=height,
        frame_count=frame_count,
        steps=arguments.steps,
        seed=parse_seed(arguments.seed),
        model_path=str(Path(arguments.model).expanduser().absolute()) if arguments.model else "",
    )
    return request, notices


def target_of(out: str | None, prompt: str) -> Target:
    """What `--out` means: an mp4, a folder that gets a dated name, or nothing. Raises RequestError for other files."""
    path = Path(out).expanduser().absolute() if out else paths.output_dir().absolute()
    try:
        if not out or out.endswith("/") or path.is_dir():
            return Target(path=dated_path(path, prompt), overwrite=False)
    except OSError as error:  # a name that is too long, or a folder we may not look into
        raise MediaError(f"{path} cannot be used: {error.strerror}.", hint="Choose another --out.") from error
    if path.suffix.lower() != ".mp4":
        raise RequestError(
            f"--out is {path.name!r}; a name ending in .mp4 or an existing folder was expected.",
            hint=f"Use {path.stem or 'clip'}.mp4.",
        )
    return Target(path=path, overwrite=True)


def run(arguments: argparse.Namespace) -> int:
    """Render, print what happens to stderr, and end with the result. Exit code 0 only with a finished clip."""
    try:
        request, notices = request_of(arguments)
        for notice in notices:
            say(notice)
        facts, later_notices = render(request, target_of(arguments.out, request.prompt))
    except VignetteError as error:
        return give_up(error.message, error.hint, FAILED, as_json=arguments.json)
    except (Cancelled, KeyboardInterrupt):
        return give_up("The render was stopped.", "", STOPPED, as_json=arguments.json)
    say(f"Saved {facts['output_path']}")
    if arguments.json:
        print_json({"ok": True, "notices": [*notices, *later_notices], **facts})
    return 0


def give_up(error: str, hint: str, code: int, *, as_json: bool) -> int:
    """Say why there is no clip; returns the exit code."""
    say(" ".join(part for part in (error, hint) if part))
    if as_json:
        print_json({"ok": False, "error": error, "hint": hint})
    return code


def print_json(result: dict) -> None:
    """One line, in ASCII: a path or prompt must not fail on a terminal that knows less than Unicode."""
    print(json.dumps(result, ensure_ascii=True), flush=True)


def render(request: GenerationRequest, target: Target) -> tuple[dict, list[str]]:
    """Run the request in a worker and wait for its end.

    returns: the facts with the `output_path`, and the worker's notices
    raises:  WorkerError with the sentence of a failed job; Cancelled when it was stopped
    """
    messages: queue.SimpleQueue[events.Message] = queue.SimpleQueue()
    client = WorkerClient(messages.put)
    job = events.StartJob(
        job_id="cli",
        kind=events.JobKind.GENERATE.value,
        payload=request.to_json(),
        output_path=str(target.path),
        overwrite=target.overwrite,
    )
    notices = []
    try:
        client.submit(job)
        while not isinstance(message := messages.get(), events.FINAL_MESSAGES):
            tell(message)
            notices += [message.text] if isinstance(message, events.Notice) else []
    finally:
        client.close()
    match message:
        case events.JobDone(output_path=path, facts=facts):
            return {**facts, "output_path": path}, notices
        case events.JobFailed():
            raise WorkerError(message.message, hint=message.hint)
        case _:
            raise Cancelled()


def tell(message: events.Message) -> None:
    """One line per phase and per step of a long phase."""
    match message:
        case events.PhaseStarted(phase=phase):
            say(f"{phase} ...")
        case events.Progress(phase=phase, done=done, total=total) if phase == "denoise":
            say(f"{phase} {done}/{total}  {message.elapsed_s:.1f} s")
        case events.Notice(text=text):
            say(text)


def say(text: str) -> None:
    """Progress goes to stderr so that stdout stays a result."""
    print(text, file=sys.stderr, flush=True)
