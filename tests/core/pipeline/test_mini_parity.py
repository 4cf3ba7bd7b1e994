"""The embedded model through our code and through diffusers and transformers: prompt to pixels and samples.

Tier: executed reference, end to end, from the same prompt and the same noise. Both sides read the same files, so a
mistake made when the model was exported shows in neither (dev/mini/check_export.py compares with the trained modules).

Tolerances, float32 on both sides: text 1e-6 of its largest value (the trained residual stream passes 1000, where one
float32 step is 1.2e-4; tiny models with values of order ten are held to 1e-4 absolute elsewhere), latents 1e-3 after
six steps (a step's 1e-5 grows along the trajectory), samples 1e-3, pixels one level of 255 where a value lies on a
rounding border.
"""

import numpy as np
import pytest
import torch
from diffusers import MiniMaxH3Scheduler

from core import paths
from core.kernels.backend import CancelFlag
from core.model.layout import pack_audio, patchify
from core.pipeline import phases
from core.pipeline.engine import Engine
from core.pipeline.preview import CellColours
from core.request import GenerationRequest
from tests.core.pipeline.listening import Listener
from tests.oracles import backends
from tests.oracles.denoiser import packed_layout, velocity

pytestmark = pytest.mark.skipif(
    not paths.mini_model_path().is_dir(), reason="the embedded model assets/mini is missing"
)
REQUEST = GenerationRequest(
    prompt="一个红色的圆形 moves right on a navy background, low tone", seed=11, steps=6, width=160, height=96,
    frame_count=39,
)  # fmt: skip


@pytest.fixture(scope="module")
def reference():
    """The oracle's text rows, latents, frames and samples."""
    from tests.oracles import mini

    net = mini.load(paths.mini_model_path())
    tokens = Engine()._model(paths.mini_model_path()).tokenizer.tokenize(REQUEST.prompt)
    with torch.no_grad():
        text = net.text(input_ids=torch.from_numpy(tokens.ids)[None].long()).last_hidden_state[0]
        video, audio = sample(net, tokens.tags, text.numpy())
        frames = decode_video(net, video)
        waveform = decode_audio(net, audio)
    latents = {"text": text.numpy(), "video": video.numpy(), "audio": audio.numpy()}
    return latents | {"frames": frames, "waveform": waveform}


def sample(net, tags, text: np.ndarray) -> tuple[torch.Tensor, torch.Tensor]:
    """Latents [24, T, h, w] and [2, 32, A] by diffusers' layout, transformer and scheduler."""
    config = Engine()._model(paths.mini_model_path()).files.denoiser[0]
    grid = REQUEST.grid()
    layout = packed_layout(tags, grid)
    generator = torch.Generator().manual_seed(REQUEST.seed)
    video = torch.randn(1, 24, grid.latent_t, grid.latent_h, grid.latent_w, generator=generator)[0]
    audio_rows = torch.randn(grid.audio_rows, 32, generator=generator)
    video_rows = torch.from_numpy(patchify(video.numpy()))
    schedulers = [MiniMaxH3Scheduler(shift=shift) for shift in (config.video_shift, config.audio_shift)]
    for scheduler in schedulers:
        scheduler.set_timesteps(REQUEST.steps + 1)
    for times in zip(*(scheduler.timesteps[: REQUEST.steps] for scheduler in schedulers), strict=True):
        moves = velocity(
            net.denoiser, layout, tuple(map(float, times)), video_rows.numpy(), audio_rows.numpy(), text
        )
        video_rows = schedulers[0].step(torch.from_numpy(moves[0]), times[0], video_rows).prev_sample
        audio_rows = schedulers[1].step(torch.from_numpy(moves[1]), times[1], audio_rows).prev_sample
    half_h, half_w = grid.latent_h // 2, grid.latent_w // 2
    video = video_rows.reshape(grid.latent_t, half_h, half_w, 24, 2, 2).permute(3, 0, 1, 4, 2, 5)
    audio = audio_rows.reshape(2, grid.audio_latents, 32).permute(0, 2, 1)
    return video.reshape(24, grid.latent_t, grid.latent_h, grid.latent_w).contiguous(), audio.contiguous()


def decode_video(net, latent: torch.Tensor) -> np.ndarray:
    mean, std = (values.reshape(1, 24, 1, 1, 1) for values in net.video_scale)
    pixels = net.video.decode(latent[None] * std + mean).sample[0]
    scale = [torch.tensor(v).reshape(3, 1, 1, 1) for v in ((0.229, 0.224, 0.225), (0.485, 0.456, 0.406))]
    return ((pixels * scale[0] + scale[1]).clamp(0, 1) * 255).round().byte().permute(1, 2, 3, 0).numpy()


def decode_audio(net, latent: torch.Tensor) -> np.ndarray:
    mean, std = (values.reshape(1, 32, 1) for values in net.audio_scale)
    return net.audio.decode(latent * std + mean).sample[:, 0].numpy()


@pytest.mark.parametrize("backend", backends.NAMES)
def test_the_whole_path_equals_diffusers(reference, backend, tmp_path, monkeypatch):
    monkeypatch.setenv("VIGNETTE_HOME", str(tmp_path))
    run = Engine(backend_name=backend).start(REQUEST, Listener(), CancelFlag())
    prompt = phases.encode_text(run)
    latents = phases.denoise(run, prompt)
    waveform = phases.decode_audio(run, latents.audio)
    colours = CellColours(*latents.video.shape[1:])
    frames = np.concatenate(list(phases.decode_video(run, latents.video, colours)))
    text_error = np.abs(run.backend.to_numpy(prompt.rows) - reference["text"]).max()
    assert text_error <= 1e-6 * np.abs(reference["text"]).max()
    assert np.abs(latents.video - reference["video"]).max() <= 1e-3
    assert np.abs(pack_audio(latents.audio) - pack_audio(reference["audio"])).max() <= 1e-3
    assert np.abs(waveform - reference["waveform"]).max() <= 1e-3
    levels = np.abs(frames.astype(int) - reference["frames"])
    assert frames.shape == reference["frames"].shape and levels.max() <= 1
