"""A worker whose jobs do exactly what the test tells them: `child.py FD`.

Job kind "play", payload {"script": [[verb, argument, ...], ...]}.
"""

import os
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT))

import numpy as np  # noqa: E402

from core.errors import MediaError  # noqa: E402
from core.phase import Phase  # noqa: E402
from core.worker.process import serve_alone  # noqa: E402

ERRORS = {
    "media": MediaError("The pictures burnt.", hint="Use water."),
    "value": ValueError("three is not four"),
    "memory": MemoryError(),
    "torch": RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 12 bytes"),
    "exit": SystemExit(3),
}


def play(job, report, cancel) -> dict:
    facts = {}
    for verb, *arguments in job.payload["script"]:
        facts |= STEPS[verb](report, cancel, *arguments) or {}
    return facts


def wait(report, cancel):
    """Work like a kernel that polls its flag between tiles."""
    while True:
        cancel.check()
        time.sleep(0.01)


def raise_error(report, cancel, name):
    raise ERRORS[name]


def preview(report, cancel, step, width, height):
    report.preview(step, np.full((height, width, 3), step, np.uint8))


def start_program(report, cancel, pid_file):
    """Stand-in for ffmpeg: outlives everything unless it is killed."""
    Path(pid_file).write_text(str(subprocess.Popen(["sleep", "600"]).pid), encoding="utf-8")


def touch(report, cancel, path):
    Path(path).mkdir(parents=True)


STEPS = {
    "phase": lambda report, cancel, name, total: report.phase(Phase(name), total),
    "progress": lambda report, cancel, done, total: report.progress(done, total),
    "notice": lambda report, cancel, text: report.notice(text),
    "print": lambda report, cancel, text: print(text),
    "deaf": lambda report, cancel, seconds: time.sleep(seconds),
    "die": lambda report, cancel, number: os.kill(os.getpid(), number),
    "leave": lambda report, cancel, code: os._exit(code),
    "facts": lambda report, cancel, facts: facts,
    "odd facts": lambda report, cancel: {"n": np.int64(3), "x": np.float32(0.5), "a": np.arange(2), "p": Path("/p")},
    "nice": lambda report, cancel: {"nice": os.nice(0), "pid": os.getpid(), "torch": "torch" in sys.modules},
    "raise": raise_error,
    "wait": wait,
    "preview": preview,
    "program": start_program,
    "folder": touch,
}

if __name__ == "__main__":
    serve_alone(int(sys.argv[1]), {"play": play})
