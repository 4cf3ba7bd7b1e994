"""Training batches: clips of one canvas whose captions have equally many tokens.

The denoiser has no padding and the caption length moves the media clock, so clips of different lengths cannot share
a batch; drawn clips wait in a queue per (canvas, length) until one is full. Held-out compositions are never drawn.
"""

import random
from dataclasses import dataclass
from pathlib import Path

import torch

from dev.mini import world
from dev.mini.captions import training_caption
from dev.mini.latents import Basis
from dev.mini.model import Layout, layout, pack_audio, patchify
from dev.mini.scenes import Canvas, ScenePool
from dev.mini.tokenizer import CaptionTokenizer

SMALLEST = 4


@dataclass(frozen=True, slots=True)
class Batch:
    """ids [B, L]; video rows [B, V, 96]; audio rows [B, 2A, 32] or None; both in model space."""

    ids: torch.Tensor
    video: torch.Tensor
    audio: torch.Tensor | None
    place: Layout


class BatchSource:
    """Endless batches over several canvases."""

    def __init__(self, scenes: Path, tokenizer: CaptionTokenizer, basis: Basis, audio_scale: tuple, seed: int) -> None:
        self._scenes, self._tokenizer, self._basis = scenes, tokenizer, basis
        self._audio_mean, self._audio_std = audio_scale
        self._pools: dict[str, ScenePool] = {}
        self._queues: dict[tuple[str, int], list] = {}
        self._compositions = world.training_compositions()
        self._rng = random.Random(seed)

    def holds(self, mix: dict[str, float]) -> bool:
        """True when every canvas of the mix has been loaded."""
        return all(name in self._pools for name in mix)

    def refresh(self, canvases: list[str]) -> dict[str, int]:
        """Load new shards of these canvases; scenes held per canvas."""
        for name in canvases:
            self._pools.setdefault(name, ScenePool(self._scenes, Canvas.parse(name), self._basis))
        return {name: pool.refresh() for name, pool in self._pools.items()}

    def next(self, mix: dict[str, float], audio_share: float, video_rows: int) -> Batch:
        """Draw a canvas by weight, then clips of it until some caption length has about `video_rows` rows of them."""
        name = self._rng.choices(list(mix), list(mix.values()))[0]
        canvas = Canvas.parse(name)
        latent_t = (canvas.frame_count - 5) // 17 * 5 + 2
        rows = latent_t * (canvas.width // 32) * (canvas.height // 32)
        wanted = max(SMALLEST, video_rows // rows)
        while True:
            composition = self._rng.choice(self._compositions)
            ids = self._tokenizer.encode(training_caption(composition, self._rng))
            queue = self._queues.setdefault((name, len(ids)), [])
            queue.append((composition, ids))
            if len(queue) >= wanted:
                break
        taken = self._queues.pop((name, len(ids)))[:wanted]
        drawn = [self._pools[name].draw(composition, self._rng) for composition, _ in taken]
        with_audio = self._rng.random() < audio_share
        audio = None
        if with_audio:
            raw = torch.stack([sound for _, sound in drawn])
            audio = pack_audio((raw - self._audio_mean[:, None]) / self._audio_std[:, None])
        return Batch(
            ids=torch.tensor([caption_ids for _, caption_ids in taken]),
            video=patchify(torch.stack([video for video, _ in drawn])),
            audio=audio,
            place=layout(
                len(ids), world.audio_latent_count(canvas.frame_count) if with_audio else 0, latent_t,
                canvas.height // 16, canvas.width // 16,
            ),
        )  # fmt: skip
