"""Train the two halves of the audio VAE apart: the decoder as a vocoder on band latents, the encoder as a regression.

Joint training was near silence after six minutes; each half alone needs a few. Decoder loss: 20 * absolute error
(with 5, pulses stayed at the wrong place) and three STFT resolutions. Noise on the decoder input makes it tolerant of
the denoiser. Resumes from `audio.pt`.
"""

import argparse
import random
import time
from pathlib import Path

import torch

from dev.mini import world
from dev.mini.audio_latents import audio_scale, band_latents
from dev.mini.audio_vae import DECODER_PARTS, ENCODER_PARTS, build_audio_vae, parameters_of
from dev.mini.world import SAMPLES_PER_LATENT

POOL = 480
CROP = {"decoder": 10, "encoder": 15}
COUNT = {"decoder": 12, "encoder": 8}
NOISE = 0.1


def make_pool(seed: int, count: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Mono waveforms [29600] (both channels of random clips) and their raw latents [32, 37]."""
    rng = random.Random(seed)
    pool = []
    for _ in range(count // 2):
        composition = rng.choice(world.compositions())
        stereo = torch.from_numpy(world.sound(composition, world.make_scene(composition, rng, 22)))
        pool += list(zip(stereo, band_latents(stereo), strict=True))
    return pool


def draw(pool: list, half: str, rng: random.Random) -> tuple[torch.Tensor, torch.Tensor]:
    """Crops: waveforms [B, 1, 800 * n] and raw latents [B, 32, n]."""
    length = CROP[half]
    waves, latents = [], []
    for wave, latent in rng.choices(pool, k=COUNT[half]):
        start = rng.randrange(latent.shape[1] - length + 1)
        waves.append(wave[start * SAMPLES_PER_LATENT : (start + length) * SAMPLES_PER_LATENT])
        latents.append(latent[:, start : start + length])
    return torch.stack(waves)[:, None], torch.stack(latents)


def spectral_error(ours: torch.Tensor, theirs: torch.Tensor) -> torch.Tensor:
    """Magnitude and log-magnitude distance at three window lengths; inputs [B, 1, N]."""
    total = ours.new_zeros(())
    for window in (256, 1024, 2048):
        shape = torch.hann_window(window)
        a, b = (
            torch.stft(x.flatten(0, 1), window, window // 4, window=shape, return_complex=True).abs() / window**0.5
            for x in (ours, theirs)
        )
        total = total + (a - b).abs().mean() + 0.3 * ((a + 1e-2).log() - (b + 1e-2).log()).abs().mean()
    return total


def loss_of(vae: torch.nn.Module, half: str, wave: torch.Tensor, latent: torch.Tensor, scale: tuple) -> torch.Tensor:
    """Training loss of one half on a batch."""
    std = scale[1][:, None]
    if half == "decoder":
        level = NOISE * torch.rand(len(latent), 1, 1)
        ours = vae.decode(latent + level * std * torch.randn_like(latent)).sample
        return 20 * (ours - wave).abs().mean() + spectral_error(ours, wave)
    error = (vae.encode(wave).latent_dist.mean - latent)[:, :, 1:-1] / std
    return error.pow(2).mean()


@torch.no_grad()
def quality(vae: torch.nn.Module, half: str, pool: list, scale: tuple) -> str:
    """Median signal-to-noise ratio of the decoder or explained variance of the encoder on unseen sounds."""
    wave, latent = torch.stack([w for w, _ in pool])[:, None], torch.stack([z for _, z in pool])
    if half == "decoder":
        error = ((vae.decode(latent).sample - wave) ** 2).mean((1, 2))
        return f"SNR median {float((10 * ((wave**2).mean((1, 2)) / error).log10()).median()):.1f} dB"
    std = scale[1][:, None]
    error = ((vae.encode(wave).latent_dist.mean - latent) / std).pow(2).mean()
    spread = ((latent - latent.mean((0, 2), keepdim=True)) / std).pow(2).mean()
    return f"R2 {1 - float(error / spread):.4f}"


def train(vae: torch.nn.Module, half: str, minutes: float, scale: tuple) -> None:
    """Train one half for a fixed time with a linear cool-down over its second half."""
    parameters = parameters_of(vae, DECODER_PARTS if half == "decoder" else ENCODER_PARTS)
    optimiser = torch.optim.AdamW(parameters, lr=2e-3, betas=(0.9, 0.95), weight_decay=0.0)
    pool, probes, rng = make_pool(31, POOL), make_pool(99, 8), random.Random(1)
    began = printed = time.monotonic()
    step = 0
    while (done := (time.monotonic() - began) / (60 * minutes)) < 1:
        rate = 2e-3 * min(1, (step + 1) / 30) * min(1.0, max(0.02, 2 * (1 - done)))
        optimiser.param_groups[0]["lr"] = rate
        loss = loss_of(vae, half, *draw(pool, half, rng), scale)
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, 5.0)
        optimiser.step()
        step += 1
        if time.monotonic() - printed > 30:
            printed = time.monotonic()
            measured = quality(vae, half, probes, scale)
            print(f"{half} step {step} done {done:.2f} loss {float(loss.detach()):.4f} {measured}", flush=True)
    print(f"{half} final step {step} {quality(vae, half, probes, scale)}", flush=True)


def resume(vae: torch.nn.Module, path: Path) -> None:
    """Load every stored tensor that still has the same shape; the halves do not depend on each other."""
    shapes = {name: tensor.shape for name, tensor in vae.state_dict().items()}
    stored = torch.load(path, weights_only=True)
    vae.load_state_dict({n: w for n, w in stored.items() if shapes.get(n) == w.shape}, strict=False)


def main() -> None:
    """`python -m dev.mini.train_audio --run FOLDER --data FOLDER --half decoder --minutes 8`."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--run", type=Path, required=True)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--half", choices=("decoder", "encoder"), required=True)
    parser.add_argument("--minutes", type=float, required=True)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(3)
    arguments.run.mkdir(parents=True, exist_ok=True)
    path = arguments.run / "audio.pt"
    vae = build_audio_vae()
    if path.exists():
        resume(vae, path)
    train(vae, arguments.half, arguments.minutes, audio_scale(arguments.data / "audio_scale.pt"))
    torch.save(vae.state_dict(), path)


if __name__ == "__main__":
    main()
