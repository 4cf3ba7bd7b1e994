"""Tier: executed reference. Cannot catch an error in the latents themselves (test_latents.py)."""

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("diffusers")

from dev.mini import video_vae  # noqa: E402
from dev.mini.latents import CHANNELS, COMPONENTS, Basis  # noqa: E402


def _basis():
    generator = torch.Generator().manual_seed(1)
    components = torch.linalg.qr(torch.randn(3072, COMPONENTS, generator=generator)).Q
    return Basis(
        torch.randn(3072, generator=generator), components, torch.linspace(9, 1, COMPONENTS),
        torch.linspace(-0.2, 0.3, CHANNELS), torch.linspace(0.8, 2.0, CHANNELS),
    )  # fmt: skip


def test_window_features_give_the_pixels_of_the_class_decoder():
    torch.manual_seed(0)
    basis = _basis()
    vae = video_vae.build_video_vae(basis).eval()
    video_vae.start_decoder(vae, basis)
    latent = torch.randn(2, 24, 7, 4, 6)
    with torch.no_grad():
        blocks = vae.decoder.proj_out(video_vae.window_features(vae, latent, basis))
        pixels = video_vae.decode_window(vae, latent, basis)
        whole = vae.decode(latent * basis.std.view(1, -1, 1, 1, 1) + basis.mean.view(1, -1, 1, 1, 1)).sample
    planes = blocks.view(2, 7, 4, 6, 3, 4, 16, 16).permute(0, 4, 1, 5, 2, 6, 3, 7).reshape(2, 3, 28, 64, 96)
    assert torch.allclose(planes[:, :, video_vae.WINDOW_FRAMES], pixels, atol=1e-4)
    assert torch.allclose(whole, pixels, atol=1e-4)


def test_decoder_starts_near_the_linear_inverse_when_blocks_are_silent():
    basis = _basis()
    vae = video_vae.build_video_vae(basis).eval()
    video_vae.start_decoder(vae, basis)
    with torch.no_grad():
        for block in vae.decoder.transformer_blocks:
            block.scale1.zero_()
            block.scale2.zero_()
        latent = 0.3 * torch.randn(1, 24, 7, 2, 2)
        blocks = vae.decoder.proj_out(video_vae.window_features(vae, latent, basis))[0]
        raw = latent[0].flatten(1).T * basis.std + basis.mean
        expected = (raw[:, :COMPONENTS] * basis.deviation) @ basis.components.T + basis.centre
    pair = torch.stack([(blocks - basis.centre).flatten(), (expected - basis.centre).flatten()])
    assert float(torch.corrcoef(pair)[0, 1]) > 0.9
