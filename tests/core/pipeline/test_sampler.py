"""The sampling loop.

Tier: executed reference (the diffusers MiniMax-H3 loops for t2va, fl2va and ref2va over the tiny model, and its
scheduler step, bit for bit). Cannot catch a wrong text or decoder: it starts from text rows and ends at latents.
"""

import functools
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from diffusers import MiniMaxH3Scheduler
from diffusers.modular_pipelines.minimax_h3 import modular_blocks_minimax_h3 as blocks
from diffusers.utils import logging

from core.errors import KernelError
from core.geometry import Canvas, latent_grid
from core.kernels.provider import Weights
from core.model.adaln import build_tables, plan_tables
from core.model.layout import (
    AudioReference,
    ImageReference,
    KeyframePosition,
    LatentRows,
    SegmentKind,
    VideoReference,
    pack,
    patchify,
    unpack_audio,
    unpatchify,
)
from core.model.transformer import Denoiser
from core.pipeline.noise import draw_noise, noised_condition
from core.pipeline.sampler import SamplerState, euler_step, sample
from core.pipeline.schedule import build_schedule
from tests.oracles import backends, denoiser
from tests.oracles.portable import normal_like

GRID = latent_grid(Canvas(width=96, height=32), 124)  # the shortest clip the diffusers loops accept
SEED, STEPS = 5, 4
TAGS = [1, 1, 0, 0, 0, 0, 1, 1, 1]
REFERENCES = (
    ImageReference(latent_h=6, latent_w=4),
    VideoReference(latent_t=7, latent_h=4, latent_w=4, audio_latents=30),
    AudioReference(audio_latents=11),
)
TEXT = normal_like("loop.text", 9, 80)
PICTURES = {  # clean latents of the picture conditions, [24, t, h, w], in packed order
    "t2va": [],
    "fl2va": [normal_like(f"loop.key{i}", 24, 1, 2, 6) for i in range(2)],
    "ref2va": [normal_like("loop.image", 24, 1, 6, 4), normal_like("loop.clip", 24, 7, 4, 4)],
}
SOUNDS = [normal_like(f"loop.sound{i}", 2 * latents, 32) for i, latents in enumerate((30, 11))]


@pytest.fixture(params=backends.NAMES)
def backend(request):
    return backends.make(request.param)


@functools.cache
def diffusers_loop(task: str) -> tuple[np.ndarray, np.ndarray]:
    """Final latents [24, T, h, w] and [2, 32, A] of the diffusers core blocks."""
    logging.disable_progress_bar()
    block, name, extra = {
        "t2va": (blocks.MiniMaxH3CoreDenoiseStep, "transformer", {}),
        "fl2va": (blocks.MiniMaxH3FL2VACoreDenoiseStep, "transformer", {"keyframe_anchors": ("first", "last")}),
        "ref2va": (blocks.MiniMaxH3Ref2VACoreDenoiseStep, "transformer_ref", {
            "normalized_references": denoiser.reference_kinds(REFERENCES),
            "audio_condition_latents": [torch.from_numpy(rows) for rows in SOUNDS],
        }),
    }[task]  # fmt: skip
    if PICTURES[task]:
        extra = extra | {"condition_latents": [torch.from_numpy(latent)[None] for latent in PICTURES[task]]}
    pipe = block().init_pipeline()
    pipe.update_components(
        **{name: denoiser.model()},
        scheduler=MiniMaxH3Scheduler(shift=12.0), audio_scheduler=MiniMaxH3Scheduler(shift=3.0),
    )  # fmt: skip
    state = pipe(
        prompt_embeds=torch.from_numpy(TEXT)[None], text_token_tags=torch.tensor(TAGS), height=32, width=96,
        num_frames=124, num_inference_steps=STEPS + 1, generator=torch.Generator().manual_seed(SEED), **extra,
    )  # fmt: skip
    return state.get("latents")[0].numpy(), state.get("audio_latents").numpy()


@dataclass(frozen=True)
class Run:
    """Our loop over the same model."""

    predict: object
    schedule: object
    start: SamplerState

    @staticmethod
    def make(backend, task: str) -> "Run":
        keyframes = list(KeyframePosition) if task == "fl2va" else ()
        layout = pack(TAGS, GRID, keyframes=keyframes, references=REFERENCES if task == "ref2va" else ())
        schedule = build_schedule(STEPS, video_shift=12.0, audio_shift=3.0)
        noise = draw_noise(SEED, GRID, condition_shapes=[latent.shape[1:] for latent in PICTURES[task]])
        pictures = [noised_condition(x, e) for x, e in zip(PICTURES[task], noise.conditions, strict=True)]
        streams = {
            SegmentKind.KEYFRAME: map(patchify, pictures),
            SegmentKind.REFERENCE_VIDEO: map(patchify, pictures),
            SegmentKind.REFERENCE_AUDIO: iter(SOUNDS),
        }
        weights = Weights(denoiser.source(denoiser.model()), backend)
        plan = plan_tables(layout, schedule.video.timesteps, schedule.audio.timesteps)
        net = Denoiser(weights, denoiser.CONFIG)
        clip = net.prepare(
            layout, build_tables(weights, denoiser.CONFIG, plan), backend.from_numpy(TEXT),
            conditions=[next(streams[segment.kind]) for segment in layout.conditions],
        )  # fmt: skip
        predict = functools.partial(net.forward, clip)
        return Run(predict, schedule, SamplerState(done=0, latents=noise.target))


@pytest.mark.parametrize("task", PICTURES)
def test_latents_equal_the_diffusers_loop(backend, task):
    run = Run.make(backend, task)
    *_, last = sample(run.predict, run.schedule, run.start)
    video, audio = diffusers_loop(task)
    assert last.state.done == STEPS
    assert np.abs(unpatchify(last.state.latents.video, GRID) - video).max() <= 1e-4
    assert np.abs(unpack_audio(last.state.latents.audio) - audio).max() <= 1e-4


def test_sampling_goes_on_from_a_saved_state(backend):
    run = Run.make(backend, "t2va")
    steps = list(sample(run.predict, run.schedule, run.start))
    resumed = list(sample(run.predict, run.schedule, steps[1].state))
    assert [step.state.done for step in steps] == [1, 2, 3, 4]
    assert [step.state.done for step in resumed] == [3, 4]
    assert np.array_equal(resumed[-1].state.latents.video, steps[-1].state.latents.video)
    assert np.array_equal(resumed[-1].state.latents.audio, steps[-1].state.latents.audio)
    assert list(sample(run.predict, run.schedule, steps[-1].state)) == []


@pytest.mark.parametrize(("steps", "shift"), [(4, 12.0), (7, 3.0), (50, 12.0)])
def test_each_euler_step_equals_diffusers_bit_for_bit(steps, shift):
    scheduler = MiniMaxH3Scheduler(shift=shift)
    scheduler.set_timesteps(steps + 1)
    grid = build_schedule(steps, video_shift=shift, audio_shift=shift).video
    x = normal_like("euler.x", 42, 96)
    for step in range(steps):
        velocity = normal_like(f"euler.v{step}", 42, 96)
        expected = scheduler.step(torch.from_numpy(velocity), scheduler.timesteps[step], torch.from_numpy(x))
        x, _ = euler_step(grid, step, x, velocity)
        assert x.dtype == np.float32
        assert np.array_equal(x, expected.prev_sample.numpy())


def test_a_perfect_velocity_leads_to_the_data_from_every_step():
    """Closed form: along x_t = t x0 + (1 - t) e the velocity is x0 - e everywhere."""
    data, noise = (LatentRows(normal_like(f"{name}.v", 6, 96), normal_like(f"{name}.a", 4, 32)) for name in "de")
    velocity = LatentRows(data.video - noise.video, data.audio - noise.audio)
    schedule = build_schedule(5, video_shift=12.0, audio_shift=3.0)
    done = list(sample(lambda step, rows: velocity, schedule, SamplerState(done=0, latents=noise)))
    for step in done:
        assert np.abs(step.clean.video - data.video).max() < 1e-5
        assert np.abs(step.clean.audio - data.audio).max() < 1e-5
        sigma = schedule.audio.sigmas[step.state.done]
        assert np.abs(step.state.latents.audio - ((1 - sigma) * data.audio + sigma * noise.audio)).max() < 1e-5
    assert np.array_equal(done[-1].state.latents.video, done[-1].clean.video)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_numbers_that_are_not_finite_stop_the_loop_with_their_step(bad):
    schedule = build_schedule(3, video_shift=12.0, audio_shift=3.0)
    start = SamplerState(done=0, latents=LatentRows(np.zeros((6, 96), np.float32), np.zeros((4, 32), np.float32)))

    def predict(step, rows):
        velocity = LatentRows(np.zeros_like(rows.video), np.zeros_like(rows.audio))
        if step == 1:
            velocity.audio[3, 30:] = bad
        return velocity

    loop = sample(predict, schedule, start)
    assert next(loop).state.done == 1
    with pytest.raises(KernelError, match="2 of 128 audio numbers that are not finite in step 2"):
        next(loop)
