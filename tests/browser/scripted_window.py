"""The real window and job manager with a client that plays scripted events; arguments: OUTPUT_FOLDER CLIP.mp4.

For the tests of what the window does with events; nothing is rendered. Words in the prompt choose the script: "fail"
ends in an error, "hold" waits after the steps 2 and 5 for a file release-STEP, and what does not fail ends with a copy
of CLIP.
"""

import os
import shutil
import sys
import threading
import time
from pathlib import Path

from core.commands.window import prepare_environment
from core.phase import Phase
from core.request import GenerationRequest
from core.worker import events
from core.worker.jobs import JobManager

STEPS, HOLDS = 8, (2, 5)
PAUSE_S, POLL_S, STOP_S = 0.05, 0.02, 3.0


class ScriptedClient:
    """Stands where the worker's client stands: takes a job, tells its listener a story."""

    def __init__(self, listener, clip: Path):
        self._listener = listener
        self._clip = clip
        self._stop = threading.Event()

    def submit(self, job: events.StartJob) -> None:
        self._stop.clear()
        threading.Thread(target=self._play, args=(job,), daemon=True).start()

    def cancel(self, job_id: str) -> None:
        self._listener(events.CancelSeen(job_id=job_id, waits_for=Phase.DENOISE.value))
        threading.Timer(STOP_S, self._stop.set).start()

    def close(self) -> None:
        self._stop.set()

    def _play(self, job: events.StartJob) -> None:
        request = GenerationRequest.from_json(job.payload)
        self._listener(events.JobStarted(job_id=job.job_id))
        for phase, total in ((Phase.STARTING, 0), (Phase.TEXT, 0), (Phase.DENOISE, STEPS)):
            self._phase(job, phase, total, request)
            if "fail" in request.prompt and phase is Phase.DENOISE:
                self._fail(job)
                return
        for phase, total in ((Phase.AUDIO_DECODE, 0), (Phase.VIDEO_DECODE, 2), (Phase.EXPORT, 0)):
            self._phase(job, phase, total, request)
        if self._stop.is_set():
            self._listener(events.JobCancelled(job_id=job.job_id))
            return
        shutil.copyfile(self._clip, job.output_path)
        self._listener(
            events.JobDone(job_id=job.job_id, output_path=job.output_path, facts={"seed": str(request.seed)})
        )

    def _phase(self, job, phase: Phase, total: int, request: GenerationRequest) -> None:
        if self._stop.is_set():
            return
        self._listener(events.PhaseStarted(job_id=job.job_id, phase=phase.value, total=total))
        for done in range(1, max(total, 1) + 1):
            if self._stop.wait(PAUSE_S):
                return
            if total:
                self._listener(
                    events.Progress(job_id=job.job_id, phase=phase.value, done=done, total=total, elapsed_s=0.0)
                )
            if phase is Phase.DENOISE:
                self._listener(preview(job.job_id, done, request))
                if "hold" in request.prompt and done in HOLDS:
                    self._wait_for(self._clip.with_name(f"release-{done}"))

    def _wait_for(self, file: Path) -> None:
        while not file.exists() and not self._stop.wait(POLL_S):
            pass
        file.unlink(missing_ok=True)

    def _fail(self, job: events.StartJob) -> None:
        self._listener(
            events.JobFailed(
                job_id=job.job_id,
                kind="media",
                message="The disk <b>is full</b>: 3 MB free, 20 MB needed.",
                hint="Free 20 MB or choose another output folder.",
            )
        )


def preview(job_id: str, step: int, request: GenerationRequest) -> events.PreviewFrame:
    """A small picture that comes out of the noise: a red disc on navy."""
    width, height = request.width // 16, request.height // 16
    pixels = bytearray()
    for y in range(height):
        for x in range(width):
            inside = (x - width / 2) ** 2 + (y - height / 2) ** 2 < (min(width, height) / 3) ** 2
            clean = (220, 40, 50) if inside else (20, 25, 80)
            noise = (x * 73 + y * 151 + step * 89) % 251
            weight = step / STEPS
            pixels += bytes(round(weight * value + (1 - weight) * noise) for value in clean)
    return events.PreviewFrame(job_id=job_id, step=step, width=width, height=height, blob=bytes(pixels))


def main(output_folder: str, clip: str) -> int:
    prepare_environment(os.environ, Path(output_folder) / "cache")
    from ui.server import serve

    jobs = JobManager(make_client=lambda listener: ScriptedClient(listener, Path(clip)))
    folder = Path(output_folder)
    return serve(jobs, str(folder), lambda _: str(folder / f"片段 {time.time_ns()}.mp4"), open_browser=False)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
