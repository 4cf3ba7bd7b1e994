"""The main path: a request becomes an mp4 with sound.

    text encoder -> denoiser -> audio decoder -> video decoder -> export

Each phase loads what it needs, runs, and gives it back before the next begins. The order of the two decoders lets the
pictures stream into the file with the sound already there.
"""

import os
import time
from itertools import chain

import numpy as np

from core import constants as c
from core.errors import MediaError
from core.kernels.backend import CancelFlag
from core.library.sidecar import settings_record, write_sidecar
from core.pipeline import phases
from core.pipeline.engine import Engine, Run
from core.pipeline.export import check_output, export_clip
from core.pipeline.preview import CellColours
from core.pipeline.reporter import Reporter
from core.request import GenerationRequest


def generate(
    engine: Engine,
    request: GenerationRequest,
    output_path: str,
    report: Reporter,
    cancel: CancelFlag,
    *,
    overwrite: bool = False,
) -> dict:
    """Make one clip and write it to `output_path`; an existing file there is kept, and the name gets `-2`.

    overwrite: replace an existing file instead, once the new one is finished
    returns:   facts as JSON types (sizes, seed, steps, seconds per phase and of all processors, findings)
    raises:    VignetteError with a sentence and a hint; Cancelled when the person stopped it. Neither leaves a file.
    """
    started, cpu_before_s = time.monotonic(), cpu_s()
    check_output(output_path, request.canvas(), request.frame_count)
    run = engine.start(request, report, cancel)
    prompt = phases.encode_text(run)
    latents = phases.denoise(run, prompt)
    waveform = phases.decode_audio(run, latents.audio)
    colours = CellColours(*latents.video.shape[1:])
    frames = chain(phases.decode_video(run, latents.video, colours), phases.finish_export(run))
    record = settings_record(request, run.describe())
    media = export_clip(frames, request.canvas(), waveform, output_path, record, overwrite=overwrite)
    run.close_phase()
    facts = {**run.facts, **media, "width": request.width, "height": request.height, "fps": c.FPS}
    facts |= {"elapsed_s": round(time.monotonic() - started, 2), "cpu_s": round(cpu_s() - cpu_before_s, 2)}
    keep_what_was_learned(run, latents.video, colours, {**record, "facts": facts})
    return facts


def keep_what_was_learned(run: Run, video_latent: np.ndarray, colours: CellColours, record: dict) -> None:
    """Write the settings beside the finished clip and refit the preview map.

    The clip has its name by now, with its settings inside: what goes wrong here is a notice, not a failed render.
    """
    try:
        write_sidecar(record["facts"]["output_path"], record)
    except MediaError as error:
        run.report.notice(error.message)
    try:
        run.model.previewer.learn(video_latent, colours)
    except OSError as error:
        run.report.notice(f"The colours of the previews could not be kept: {error}.")


def cpu_s() -> float:
    """Processor seconds that this process and the programs it has run (ffmpeg) have used so far, on all cores."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system
