"""The main path: a request becomes an mp4 with sound.

    text encoder -> denoiser -> audio decoder -> video decoder -> export

Each phase loads what it needs, runs, and gives it back before the next begins. The order of the two decoders lets the
pictures stream into the file with the sound already there.
"""

import time
from itertools import chain

from core import constants as c
from core.kernels.backend import CancelFlag
from core.library.sidecar import settings_record, write_sidecar
from core.pipeline import phases
from core.pipeline.engine import Engine
from core.pipeline.export import export_clip
from core.pipeline.preview import CellColours
from core.pipeline.reporter import Reporter
from core.request import GenerationRequest


def generate(
    engine: Engine, request: GenerationRequest, output_path: str, report: Reporter, cancel: CancelFlag
) -> dict:
    """Make one clip and write it to `output_path`.

    returns: facts as JSON types (sizes, seed, steps, seconds per phase, findings)
    raises:  VignetteError with a sentence and a hint; Cancelled when the person stopped it. Neither leaves a file.
    """
    started = time.monotonic()
    run = engine.start(request, report, cancel)
    prompt = phases.encode_text(run)
    latents = phases.denoise(run, prompt)
    waveform = phases.decode_audio(run, latents.audio)
    colours = CellColours(*latents.video.shape[1:])
    frames = chain(phases.decode_video(run, latents.video, colours), phases.finish_export(run))
    record = settings_record(request, run.describe())
    media = export_clip(frames, request.canvas(), waveform, output_path, record)
    run.close_phase()
    run.model.previewer.learn(latents.video, colours)
    facts = {**run.facts, **media, "fps": c.FPS, "elapsed_s": round(time.monotonic() - started, 2)}
    write_sidecar(facts["output_path"], {**record, "facts": facts})
    return facts
