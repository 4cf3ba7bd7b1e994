"""Train the denoiser and the text stack together; resumable, steered by a control file.

`control.json` in the run folder is read again every 20 steps: threads, audio_share, mix (canvas -> weight),
cool_from and stop (UTC "YYYY-MM-DDTHH:MM"), rates. Checkpoint `last.pt` holds weights, EMA, optimiser and counters.
Loss: mean square of the velocity, video + audio; one u per clip, stratified over the batch, sigma by the released warp.
A steady sound is the same in every row, so at sigma 0.95 the noisy rows still give it away and the prompt is ignored:
after 1500 steps with one sigma for both, sampled sounds were at chance. Hence most clips get sound noise near 1.
"""

import argparse
import json
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import torch

from dev.mini import model
from dev.mini.audio_latents import audio_scale
from dev.mini.batches import Batch, BatchSource
from dev.mini.latents import load_basis
from dev.mini.muon import BlockMuon
from dev.mini.tokenizer import CaptionTokenizer

AUDIO_WEIGHT = 1.0
LOUD_NOISE_SHARE = 0.6  # clips whose sound has its own, high noise level
LOUD_NOISE_SHIFT = 24.0
WARM_UP = 80
CLIP = 1.0


@dataclass
class Control:
    """Settings that may change while the run goes on."""

    threads: int = 1
    stop: str = "2100-01-01T00:00"
    cool_from: str = "2100-01-01T00:00"
    audio_share: float = 0.0
    video_rows: int = 16 * 112
    mix: dict[str, float] = field(default_factory=lambda: {"128x128x22": 1.0})
    muon_rate: float = 3e-3
    adam_rate: float = 1.5e-3
    shift: float = 3.0
    ema: float = 0.998

    @staticmethod
    def read(path: Path) -> "Control":
        """Defaults overridden by the file, when there is one."""
        return Control(**json.loads(path.read_text())) if path.exists() else Control()

    def left(self) -> float:
        """Factor on the rates: 1 before `cool_from`, linear to 0.02 at `stop`, 0 after."""
        now, start, stop = (_utc(t) for t in (None, self.cool_from, self.stop))
        if now >= stop:
            return 0.0
        return 1.0 if now <= start else max(0.02, (stop - now) / (stop - start))


def _utc(text: str | None) -> float:
    moment = datetime.now(UTC) if text is None else datetime.fromisoformat(text).replace(tzinfo=UTC)
    return moment.timestamp()


class Trainer:
    """Weights, their average, optimisers and counters of one run."""

    def __init__(self, folder: Path, seed: int) -> None:
        torch.manual_seed(seed)
        self.folder = folder
        self.denoiser, self.text = model.build_denoiser(), model.build_text()
        model.initialise(self.denoiser, self.text)
        self.named = {f"denoiser.{n}": p for n, p in self.denoiser.named_parameters()}
        self.named |= {f"text.{n}": p for n, p in self.text.named_parameters()}
        wide = [
            p for n, p in self.named.items() if p.ndim == 2 and ("blocks" in n or "layers" in n) and "adaln" not in n
        ]
        chosen = {id(p) for p in wide}
        rest = [p for p in self.named.values() if id(p) not in chosen]
        self.muon = BlockMuon(wide, lr=1e-3)
        self.adam = torch.optim.AdamW(rest, lr=1e-3, betas=(0.9, 0.98), weight_decay=0.01, fused=True)
        self.average = {n: p.detach().clone() for n, p in self.named.items()}
        self.step, self.seconds = 0, 0.0

    def save(self, name: str = "last.pt") -> None:
        """Write everything needed to resume or export."""
        weights = {n: p.detach() for n, p in self.named.items()}
        state = {"weights": weights, "average": self.average, "step": self.step, "seconds": self.seconds}
        state |= {"muon": self.muon.state_dict(), "adam": self.adam.state_dict()}
        torch.save(state, self.folder / (name + ".part"))
        (self.folder / (name + ".part")).rename(self.folder / name)

    def resume(self, path: Path) -> None:
        """Continue from a checkpoint."""
        state = torch.load(path, weights_only=True)
        with torch.no_grad():
            for name, parameter in self.named.items():
                parameter.copy_(state["weights"][name])
        self.average = state["average"]
        self.muon.load_state_dict(state["muon"])
        self.adam.load_state_dict(state["adam"])
        self.adam.param_groups[0]["fused"] = True
        self.step, self.seconds = state["step"], state["seconds"]

    def losses(self, batch: Batch, shift: float) -> tuple[torch.Tensor, torch.Tensor]:
        """Video and audio velocity error per clip, [B] each (audio zeros without sound rows)."""
        count = len(batch.ids)
        u = (torch.rand(1) + torch.randperm(count) / count) % 1
        sigma = model.shifted(u, shift)
        loud = torch.rand(count) < LOUD_NOISE_SHARE
        audio_sigma = torch.where(loud, model.shifted(torch.rand(count), LOUD_NOISE_SHIFT), sigma)
        noise = torch.randn_like(batch.video)
        level = sigma[:, None, None]
        words = self.text(batch.ids).last_hidden_state
        audio, audio_noise = None, None
        if batch.audio is not None:
            audio_noise = torch.randn_like(batch.audio)
            audio = torch.lerp(batch.audio, audio_noise, audio_sigma[:, None, None])
        times = (1 - sigma, 1 - audio_sigma)
        noisy = torch.lerp(batch.video, noise, level)
        video, sound = model.velocity(self.denoiser, words, noisy, audio, times, batch.place)
        video_loss = (video - (batch.video - noise)).pow(2).mean((1, 2))
        if sound is None:
            return video_loss, torch.zeros(count)
        return video_loss, (sound - (batch.audio - audio_noise)).pow(2).mean((1, 2))

    def update(self, batch: Batch, control: Control) -> tuple[float, float]:
        """One optimiser step; returns mean video and audio loss."""
        began = time.monotonic()
        factor = control.left() * min(1.0, (self.step + 1) / WARM_UP)
        self.muon.param_groups[0]["lr"] = control.muon_rate * factor
        self.adam.param_groups[0]["lr"] = control.adam_rate * factor
        video, audio = self.losses(batch, control.shift)
        for optimiser in (self.muon, self.adam):
            optimiser.zero_grad(set_to_none=True)
        (video.mean() + AUDIO_WEIGHT * audio.mean()).backward()
        torch.nn.utils.clip_grad_norm_(self.named.values(), CLIP)
        self.muon.step()
        self.adam.step()
        self.step += 1
        keep = min(control.ema, (1 + self.step) / (10 + self.step))
        with torch.no_grad():
            current = [p.detach() for p in self.named.values()]
            torch._foreach_lerp_(list(self.average.values()), current, 1 - keep)
        self.seconds += time.monotonic() - began
        return float(video.detach().mean()), float(audio.detach().mean())


def run(trainer: Trainer, source: BatchSource, control_path: Path) -> None:
    """Loop until the control file says stop, printing a line every 30 s and saving every 3 minutes."""
    control = Control.read(control_path)
    torch.set_num_threads(control.threads)
    printed = saved = time.monotonic()
    sums = {True: [], False: []}
    audio_sum: list[float] = []
    while control.left() > 0:
        if trainer.step % 20 == 0:
            control = Control.read(control_path)
            torch.set_num_threads(control.threads)
        if trainer.step % 400 == 0 or not source.holds(control.mix):
            print("scenes", source.refresh(list(control.mix)), flush=True)
        batch = source.next(control.mix, control.audio_share, control.video_rows)
        video, audio = trainer.update(batch, control)
        sums[batch.place.video == 112].append(video)
        if batch.audio is not None:
            audio_sum.append(audio)
        now = time.monotonic()
        if now - printed > 30:
            means = [sum(x) / len(x) if x else float("nan") for x in (sums[True], sums[False], audio_sum)]
            rate = trainer.seconds / trainer.step
            print(f"step {trainer.step} min {trainer.seconds / 60:.1f} s/step {rate:.3f} video {means[0]:.4f} "
                  f"other {means[1]:.4f} audio {means[2]:.4f} rate {control.left():.2f}", flush=True)  # fmt: skip
            sums, audio_sum, printed = {True: [], False: []}, [], now
        if now - saved > 180:
            trainer.save()
            saved = now
    trainer.save()


def main() -> None:
    """`python -m dev.mini.train_denoiser --run FOLDER --data FOLDER`; resumes when FOLDER/last.pt exists."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--run", type=Path, required=True)
    parser.add_argument(
        "--data", type=Path, required=True, help="basis.pt, audio_scale.pt, vocabulary.tiktoken, scenes/"
    )
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    arguments.run.mkdir(parents=True, exist_ok=True)
    data = arguments.data
    trainer = Trainer(arguments.run, arguments.seed)
    if (arguments.run / "last.pt").exists():
        trainer.resume(arguments.run / "last.pt")
    source = BatchSource(
        data / "scenes", CaptionTokenizer(data / "vocabulary.tiktoken"), load_basis(data / "basis.pt"),
        audio_scale(data / "audio_scale.pt"), arguments.seed * 1000003 + trainer.step,
    )  # fmt: skip
    torch.manual_seed(arguments.seed * 1000003 + trainer.step + 1)
    run(trainer, source, arguments.run / "control.json")


if __name__ == "__main__":
    main()
