"""The four computing phases of a render. Each loads its component, runs it, and lets go of it."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from core.errors import KernelError, RequestError
from core.kernels.backend import Array
from core.kernels.provider import Weights
from core.model.adaln import AdalnTables, build_tables, plan_tables, table_bytes
from core.model.audio_decoder import AudioDecoder
from core.model.layout import LatentRows, PackedLayout, pack, unpack_audio, unpatchify
from core.model.text_encoder import TextEncoder
from core.model.tokenizer import TokenizedPrompt
from core.model.transformer import Denoiser, PreparedClip
from core.model.video_decoder import LayerMode, open_video_decoder
from core.model.video_stream import decode_frames
from core.model.video_tiling import plan_tiles
from core.phase import Phase
from core.pipeline.engine import Run
from core.pipeline.noise import draw_noise
from core.pipeline.preview import CellColours
from core.pipeline.sampler import SamplerState, sample
from core.pipeline.schedule import Schedule, build_schedule

KEPT_TABLES_BYTES = 256 * 2**20  # larger ones would crowd the decoders; 20 steps of the released model take 390 MB
MAX_PROMPT_TOKENS = 4096  # far above any useful brief; activations grow with it before anything can be refused


@dataclass(frozen=True, slots=True)
class EncodedPrompt:
    """What the denoiser gets of a prompt: tokens with modality tags, and their rows [L, text_dim]."""

    tokens: TokenizedPrompt
    rows: Array


@dataclass(frozen=True, slots=True)
class ClipLatents:
    """A finished clip before decoding, float32 in model space: video [24, T, h, w], audio [2, 32, A]."""

    video: np.ndarray
    audio: np.ndarray


# ---- text
def encode_text(run: Run) -> EncodedPrompt:
    """Tokenise the prompt and run the text encoder over it."""
    config, source = run.model.files.text_encoder
    run.phase(Phase.TEXT, config.num_layers)
    tokens = run.model.tokenizer.tokenize(run.request.prompt)
    if tokens.rows > MAX_PROMPT_TOKENS:
        raise RequestError(
            f"The prompt has {tokens.rows} tokens; at most {MAX_PROMPT_TOKENS} are possible.", hint="Shorten it."
        )
    encoder = TextEncoder(config, Weights(source, run.backend), run.modes.text_encoder)
    return EncodedPrompt(tokens, encoder.encode(tokens.ids, on_layer=run.report.progress))


# ---- denoiser
def denoise(run: Run, prompt: EncodedPrompt) -> ClipLatents:
    """Sample the latents of the clip, showing a preview after each step."""
    config, source = run.model.files.denoiser
    grid = run.request.grid()
    run.phase(Phase.DENOISE, run.steps)
    schedule = build_schedule(run.steps, video_shift=config.video_shift, audio_shift=config.audio_shift)
    layout = pack(prompt.tokens.tags, grid)
    denoiser = Denoiser(Weights(source, run.backend), config, run.modes.denoiser)
    clip = denoiser.prepare(layout, _tables(run, layout, schedule), prompt.rows)
    latents = draw_noise(run.request.seed, grid).target
    for step in sample(_predictor(run, denoiser, clip), schedule, SamplerState(done=0, latents=latents)):
        latents = step.state.latents
        run.report.preview(step.state.done, run.model.previewer.picture(unpatchify(step.clean.video, grid)))
        run.report.progress(step.state.done, run.steps)
    return ClipLatents(unpatchify(latents.video, grid), unpack_audio(latents.audio))


def _predictor(run: Run, denoiser: Denoiser, clip: PreparedClip):
    def predict(step: int, latents: LatentRows) -> LatentRows:
        return denoiser.forward(clip, step, latents, on_block=lambda _: run.cancel.check())

    return predict


def _tables(run: Run, layout: PackedLayout, schedule: Schedule) -> AdalnTables:
    """AdaLN tables of the schedule; those of the last one are kept, since the next clip usually has the same."""
    config, source = run.model.files.denoiser
    kept = run.model.tables
    plan = plan_tables(layout, schedule.video.timesteps, schedule.audio.timesteps)
    key = run.backend.name.encode() + plan.timesteps.tobytes() + plan.entries.tobytes()
    if key in kept:
        return replace(kept[key], plan=plan)
    kept.clear()
    weights = Weights(source, run.backend)
    tables = build_tables(weights, config, plan, on_block=lambda _: run.cancel.check())
    if table_bytes(config, plan) <= KEPT_TABLES_BYTES:
        kept[key] = tables
    return tables


# ---- decoders
def decode_audio(run: Run, audio_latent: np.ndarray) -> np.ndarray:
    """Waveform float32 [2, 800 A] at 32 kHz, within -1..1."""
    config, source = run.model.files.audio_vae
    run.phase(Phase.AUDIO_DECODE, 0)
    decoder = AudioDecoder(config, Weights(source, run.backend))
    waveform = decoder.decode(audio_latent, on_progress=run.report.progress)
    _check_finite("audio decoder", waveform)
    return waveform


def decode_video(run: Run, video_latent: np.ndarray, colours: CellColours) -> Iterator[np.ndarray]:
    """Finished frames uint8 [n, H, W, 3], clip by clip; `colours` collects them for the preview map."""
    config, source = run.model.files.video_vae
    run.phase(Phase.VIDEO_DECODE, 0)
    _check_finite("denoiser", video_latent)
    single_tile = plan_tiles(config, run.request.height, run.request.width).count == 1
    mode = LayerMode.RESIDENT if single_tile else LayerMode.STREAMED
    weights, accuracy = Weights(source, run.backend), run.modes.video_decoder
    with open_video_decoder(config, weights, mode, accuracy) as decoder:
        for frames in decode_frames(decoder, config, video_latent, on_progress=run.report.progress):
            colours.add(frames)
            yield frames


def finish_export(run: Run) -> Iterator[np.ndarray]:
    """No frames: runs when the last one has been handed to the encoder, and says that only the file is left to do."""
    run.phase(Phase.EXPORT, 0)
    yield from ()


def _check_finite(what: str, values: np.ndarray) -> None:
    bad = values.size - int(np.count_nonzero(np.isfinite(values)))
    if bad:
        raise KernelError(
            f"The {what} returned {bad} of {values.size} numbers that are not finite.", hint="Verify the weight file."
        )
