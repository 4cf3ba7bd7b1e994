"""The reference backend gives the very bits of the diffusers MiniMax-H3 classes, operation by operation.

Tier: executed reference. Holds for this machine's torch and equal product shapes; says nothing about whole models.
"""

import pytest
import torch
from diffusers.models.autoencoders import autoencoder_kl_minimax_h3 as video
from diffusers.models.autoencoders import autoencoder_kl_minimax_h3_audio as audio
from diffusers.models.transformers import transformer_minimax_h3 as denoiser

from core.kernels.backend import Activation, Conv1d, Conv3d, HeadLayout, Modulation
from core.kernels.matrix import Matrix
from core.kernels.reference import ReferenceBackend

B = ReferenceBackend()


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(11)
    with torch.inference_mode():
        yield


def randomised(module: torch.nn.Module) -> torch.nn.Module:
    for parameter in module.parameters():
        parameter.data.normal_(0, 0.5)
    return module.eval()


def file_order(weight: torch.Tensor) -> torch.Tensor:
    return B.conv_weight(weight.detach().numpy())


def same(channels_last: torch.Tensor, channels_first: torch.Tensor) -> bool:
    return torch.equal(channels_last, channels_first.squeeze(0).movedim(0, -1))


@pytest.mark.parametrize(("frames", "padding", "kernel"), [(1, 1, 3), (5, 1, 3), (3, 0, 1)])
def test_causal_convolution(frames, padding, kernel):
    conv = randomised(
        video.MiniMaxH3VideoCausalConv3d(8, 12, kernel, 1, padding, kernel - 1, spatial_padding_mode="reflect")
    )
    x = torch.randn(1, 8, frames, 10, 6)
    spec = Conv3d(kernel_t=kernel, kernel=kernel, pad_before=padding, pad_after=padding, history=kernel - 1)
    got = B.conv3d(x[0].movedim(0, -1), file_order(conv.weight), conv.bias, spec)
    assert same(got, conv(x))


@pytest.mark.parametrize("temporal_stride", [1, 2])
def test_downsampling_convolution(temporal_stride):
    down = randomised(video.MiniMaxH3VideoDownsample3d(8, 8, temporal_stride, 2))
    x = torch.randn(1, 8, 5, 10, 6)
    spec = Conv3d(stride_t=temporal_stride, stride=2, pad_before=0)
    assert same(B.conv3d(x[0].movedim(0, -1), file_order(down.conv.weight), down.conv.bias, spec), down(x))


def test_group_norm_then_silu():
    norm = randomised(video.MiniMaxH3VideoGroupNorm(4, 12, eps=1e-6))
    x = 3 * torch.randn(1, 12, 3, 7, 5)
    got = B.group_norm_silu(x[0].movedim(0, -1), norm.weight, norm.bias, groups=4, eps=1e-6)
    assert same(got, torch.nn.functional.silu(norm(x)))


@pytest.mark.parametrize("length", [1, 37, 800])
def test_anti_aliased_activation(length):
    activation = randomised(audio.MiniMaxH3AudioActivation1d(audio.MiniMaxH3AudioSnakeBeta(6)))
    x, snake, taps = torch.randn(1, 6, length), activation.act, activation.upsample.filter.reshape(12)
    assert same(B.anti_aliased_snake(x[0].T, snake.alpha, snake.beta, taps), activation(x))


def test_snake_activation():
    snake = randomised(audio.MiniMaxH3AudioSnake1d(6))
    x = torch.randn(1, 6, 41)
    assert same(B.snake(x[0].T, snake.alpha.reshape(6)), snake(x))


@pytest.mark.parametrize(("kernel", "dilation", "stride"), [(7, 9, 1), (1, 1, 1), (10, 1, 5)])
def test_sound_convolution(kernel, dilation, stride):
    padding = 3 if stride == 5 else (kernel - 1) * dilation // 2
    conv = randomised(torch.nn.Conv1d(6, 8, kernel, stride, padding, dilation))
    x = torch.randn(1, 6, 80)
    spec = Conv1d(kernel=kernel, stride=stride, dilation=dilation, pad_left=padding, pad_right=padding)
    assert same(B.conv1d(x[0].T, file_order(conv.weight), conv.bias, spec), conv(x))


def test_sound_upsampling():
    conv = randomised(torch.nn.ConvTranspose1d(6, 8, 9, 5, 2))
    x = torch.randn(1, 6, 17)
    weight = B.conv_weight(conv.weight.detach().numpy(), transposed=True)
    assert same(B.conv_transpose1d(x[0].T, weight, conv.bias, stride=5, padding=2), conv(x))


def as_matrix(weight: torch.Tensor) -> Matrix:
    return Matrix.from_float32("w", weight.detach().numpy())


def test_denoiser_block():
    """Norm, modulation, QKV, Q/K norm, rotation, attention, SwiGLU and gated residuals make up the class's block.

    The products run on stacked weights here and on separate ones there, so the last bits may differ.
    """
    hidden, layout = 24, HeadLayout(heads=4, kv_heads=4, head_dim=20)
    block = randomised(denoiser.MiniMaxH3TransformerBlock(hidden, 4, 20, 36, 16, 1e-6, 1e-5))
    x, temb = torch.randn(9, hidden), torch.randn(2, 16)
    index = torch.tensor([0, 1, 2, 3, 4, 5, 5, 0, 3])
    rotary = denoiser.MiniMaxH3RotaryPosEmbed(rope_freq_dim=3)(torch.randn(9, 3))
    modulation = Modulation(torch.stack(block.adaln_proj(temb), dim=1), index.to(torch.int32))

    attention, (fc1, _, fc2), h = block.attn, block.ff.net, x.clone()
    normed = B.norm_modulate(h, block.norm1.weight, 1e-6, modulation, shift_slot=0, scale_slot=1)
    qkv = B.linear(normed, as_matrix(torch.cat([p.weight for p in (attention.to_q, attention.to_k, attention.to_v)])))
    B.qk_norm_rope(
        qkv, layout, q_weight=attention.norm_q.weight, k_weight=attention.norm_k.weight, eps=1e-5,
        cos=rotary[0][:, :9], sin=rotary[1][:, :9],
    )  # fmt: skip
    y = B.linear(B.attention(qkv, layout), as_matrix(attention.to_out[0].weight))
    B.gated_residual(h, y, modulation, gate_slot=2)
    normed = B.norm_modulate(h, block.norm2.weight, 1e-6, modulation, shift_slot=3, scale_slot=4)
    value, gate = fc1.proj.weight.chunk(2)
    y = B.linear(normed, as_matrix(torch.cat((gate, value))), activation=Activation.SWIGLU)
    B.gated_residual(h, B.linear(y, as_matrix(fc2.weight)), modulation, gate_slot=5)

    expected = block(x[None], temb, index, rotary)[0]
    assert expected.abs().max() > 10
    torch.testing.assert_close(h, expected, rtol=1e-6, atol=1e-6 * expected.abs().max().item())
