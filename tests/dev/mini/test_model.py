"""Tier: executed reference. Cannot catch an error shared with the diffusers class itself."""

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("diffusers")
pytest.importorskip("transformers")

from dev.mini import model  # noqa: E402


def test_velocity_equals_class_forward_for_equal_timesteps():
    torch.manual_seed(0)
    denoiser, text = model.build_denoiser().eval(), model.build_text().eval()
    with torch.no_grad():
        for parameter in denoiser.parameters():
            parameter.add_(0.05 * torch.randn_like(parameter))
        words = text(torch.randint(0, 545, (1, 9))).last_hidden_state
        place = model.layout(9, 37, 7, 8, 12)
        video, audio = torch.randn(1, 168, 96), torch.randn(1, 74, 32)
        ours = model.velocity(denoiser, words, video, audio, (torch.full((1,), 0.3), torch.full((1,), 0.6)), place)
        tags = torch.tensor([1] * 9 + [2] * 74 + [0] * 168)
        rows = torch.arange(len(tags))
        theirs = denoiser(
            video, audio, words, torch.tensor([0.3, 0.6]), (tags == 2).long(), tags, place.positions,
            rows[tags == 0], rows[tags == 2], rows[tags == 1],
        )  # fmt: skip
    assert torch.equal(ours[0], theirs.sample)
    assert torch.equal(ours[1], theirs.audio_sample)


def test_patchify_and_audio_packing_invert():
    latent, sound = torch.randn(2, 24, 7, 4, 6), torch.randn(2, 2, 32, 37)
    assert torch.equal(model.unpatchify(model.patchify(latent), 7, 4, 6), latent)
    assert torch.equal(model.unpack_audio(model.pack_audio(sound)), sound)


def test_text_stack_ends_before_the_final_norm():
    text = model.build_text()
    assert isinstance(text.norm, torch.nn.Identity)
    assert text.rotary_emb.mrope_section == [12, 10, 10]
