"""Batched Euler sampling with the released rules: two schedules, one warp each, data-ward velocity."""

from dataclasses import dataclass

import torch
from diffusers import MiniMaxH3Transformer3DModel
from transformers import Qwen3VLTextModel

from dev.mini import model, world
from dev.mini.latents import latent_count
from dev.mini.scenes import Canvas


@dataclass(frozen=True, slots=True)
class Schedule:
    """Number of model evaluations and the warp of each modality."""

    steps: int = 12
    video_shift: float = 3.0
    audio_shift: float = 3.0

    def sigmas(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Video and audio noise levels, [steps + 1] each, from 1 to 0."""
        base = torch.linspace(1, 0, self.steps + 1)
        return model.shifted(base, self.video_shift), model.shifted(base, self.audio_shift)


@torch.no_grad()
def sample(
    denoiser: MiniMaxH3Transformer3DModel,
    text: Qwen3VLTextModel,
    ids: torch.Tensor,
    canvas: Canvas,
    schedule: Schedule,
    seed: int,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Generate one clip per row of ids [B, L].

    returns: model-space latents, video [B, 24, T, h, w] and audio [B, 2, 32, A]
    """
    count = len(ids)
    latent_t, latent_h, latent_w = latent_count(canvas.frame_count), canvas.height // 16, canvas.width // 16
    place = model.layout(ids.shape[1], world.audio_latent_count(canvas.frame_count), latent_t, latent_h, latent_w)
    generator = torch.Generator().manual_seed(seed)
    video = model.patchify(torch.randn(count, 24, latent_t, latent_h, latent_w, generator=generator))
    audio = torch.randn(count, place.audio, 32, generator=generator)
    words = text(ids).last_hidden_state
    video_sigma, audio_sigma = schedule.sigmas()
    for i in range(schedule.steps):
        times = ((1 - video_sigma[i]).expand(count), (1 - audio_sigma[i]).expand(count))
        video_velocity, audio_velocity = model.velocity(denoiser, words, video, audio, times, place)
        video = video + (video_sigma[i] - video_sigma[i + 1]) * video_velocity
        audio = audio + (audio_sigma[i] - audio_sigma[i + 1]) * audio_velocity
    return model.unpatchify(video, latent_t, latent_h, latent_w), model.unpack_audio(audio)
