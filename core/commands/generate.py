"""Make one clip from the command line, in the same worker process that the window uses."""

import argparse
import json
import queue
import sys
from pathlib import Path

from core import paths
from core.errors import VignetteError, WorkerError
from core.library.names import dated_path
from core.request import GenerationRequest, parse_seed, snap_size
from core.worker import events
from core.worker.client import WorkerClient

DEFAULTS = GenerationRequest(prompt="-")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Flags of `app.py generate`."""
    parser.add_argument("--prompt", required=True, help="what the clip shows and sounds like")
    parser.add_argument("--out", help="mp4 to write; without it a dated name in the output folder")
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
        model_path=str(Path(arguments.model).absolute()) if arguments.model else "",
    )
    return request, notices


def run(arguments: argparse.Namespace) -> int:
    """Render, print what happens to stderr, and end with the result. Exit code 0 only with a finished clip."""
    try:
        request, notices = request_of(arguments)
        for notice in notices:
            say(notice)
        output = Path(arguments.out) if arguments.out else dated_path(paths.output_dir(), request.prompt)
        facts = render(request, str(output.absolute()))
    except VignetteError as error:
        say(" ".join(part for part in (error.message, error.hint) if part))
        if arguments.json:
            print(json.dumps({"ok": False, "error": error.message, "hint": error.hint}, ensure_ascii=False))
        return 1
    say(f"Saved {facts['output_path']}")
    if arguments.json:
        print(json.dumps({"ok": True, "notices": notices, **facts}, ensure_ascii=False))
    return 0


def render(request: GenerationRequest, output_path: str) -> dict:
    """Run the request in a worker and wait for its end. Raises WorkerError with the sentence of a failed job."""
    messages: queue.SimpleQueue[events.Message] = queue.SimpleQueue()
    client = WorkerClient(messages.put)
    job = events.StartJob(
        job_id="cli", kind=events.JobKind.GENERATE.value, payload=request.to_json(), output_path=output_path
    )
    try:
        client.submit(job)
        while not isinstance(message := messages.get(), events.FINAL_MESSAGES):
            tell(message)
    except KeyboardInterrupt:
        raise WorkerError("The render was stopped.") from None
    finally:
        client.close()
    match message:
        case events.JobDone(output_path=path, facts=facts):
            return {**facts, "output_path": path}
        case events.JobFailed():
            raise WorkerError(message.message, hint=message.hint)
        case _:
            raise WorkerError("The render was stopped.")


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
