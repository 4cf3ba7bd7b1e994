"""The text stack against transformers' Qwen3-VL text model, float32.

Tier: executed reference with random weights. Cannot catch a wrong layer count or rounding of half-precision weights in
a released file; positions of real pictures come with the vision encoder.
"""

import numpy as np
import pytest
import torch

from core.errors import Cancelled, RequestError
from core.kernels.native import NativeBackend
from core.kernels.provider import DictSource, Weights
from core.kernels.reference import ReferenceBackend
from core.model.config import TextEncoderConfig
from core.model.text_encoder import TextEncoder, mrope_axes, mrope_tables, text_positions

CONFIG = TextEncoderConfig(
    hidden_size=48, num_layers=3, num_heads=6, num_kv_heads=2, head_dim=16, ffn_dim=80, rms_norm_eps=1e-6,
    rope_theta=5_000_000.0, mrope_section=(4, 2, 2), vocab_size=71,
)  # fmt: skip  # heads * head_dim = 96 is not hidden_size; the last two frequencies fall to the time axis
TOLERANCE = 1e-4


def transformers_model():
    transformers = pytest.importorskip("transformers")
    config = transformers.models.qwen3_vl.configuration_qwen3_vl.Qwen3VLTextConfig(
        hidden_size=CONFIG.hidden_size, num_hidden_layers=CONFIG.num_layers, num_attention_heads=CONFIG.num_heads,
        num_key_value_heads=CONFIG.num_kv_heads, head_dim=CONFIG.head_dim, intermediate_size=CONFIG.ffn_dim,
        rms_norm_eps=CONFIG.rms_norm_eps, vocab_size=CONFIG.vocab_size,
        rope_parameters={
            "rope_type": "default", "rope_theta": CONFIG.rope_theta, "mrope_section": list(CONFIG.mrope_section),
            "mrope_interleaved": True,
        },
    )  # fmt: skip
    return transformers.models.qwen3_vl.modeling_qwen3_vl.Qwen3VLTextModel(config).eval()


@pytest.fixture(scope="module")
def oracle():
    torch.manual_seed(5)
    model = transformers_model()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            scale = 0.3 if parameter.ndim == 2 else 0.2
            parameter.copy_(torch.randn_like(parameter) * scale + (1.0 if "norm" in name else 0.0))
    return model


def tensors_of(model) -> dict[str, np.ndarray]:
    return {name: value.numpy() for name, value in model.state_dict().items()}


def unnormed_output(model, ids: np.ndarray, positions: np.ndarray) -> np.ndarray:
    """The residual stream after the last layer, caught in front of the final norm."""
    seen = []
    handle = model.norm.register_forward_pre_hook(lambda module, args: seen.append(args[0]))
    with torch.no_grad():
        model(input_ids=torch.tensor(ids)[None].long(), position_ids=torch.tensor(positions)[:, None].long())
    handle.remove()
    return seen[0][0].numpy()


BACKENDS = [ReferenceBackend, pytest.param(NativeBackend, marks=pytest.mark.native)]
IDS = np.random.default_rng(3).integers(0, CONFIG.vocab_size, 19).astype(np.int32)
PICTURE = np.stack([
    np.r_[0:4, [4] * 6, 7:16],
    np.r_[0:4, [4, 4, 4, 5, 5, 5], 7:16],
    np.r_[0:4, [4, 5, 6, 4, 5, 6], 7:16],
]).astype(np.int32)  # four text rows, a 2 x 3 picture, nine text rows


@pytest.mark.parametrize("make_backend", BACKENDS)
@pytest.mark.parametrize("positions", [text_positions(19), PICTURE, PICTURE[::-1]], ids=["text", "picture", "swapped"])
def test_residual_stream_equals_transformers(oracle, make_backend, positions):
    backend = make_backend()
    encoder = TextEncoder(CONFIG, Weights(DictSource(tensors_of(oracle)), backend))
    got = backend.to_numpy(encoder.encode(IDS, positions=np.ascontiguousarray(positions)))
    expected = unnormed_output(oracle, IDS, np.ascontiguousarray(positions))
    assert got.shape == expected.shape == (19, 48)
    assert np.abs(expected).max() > 1
    assert np.abs(got - expected).max() <= TOLERANCE


def test_the_output_is_not_the_final_norm(oracle):
    backend = ReferenceBackend()
    encoder = TextEncoder(CONFIG, Weights(DictSource(tensors_of(oracle)), backend))
    with torch.no_grad():
        normed = oracle(input_ids=torch.tensor(IDS)[None].long()).last_hidden_state[0].numpy()
    assert np.abs(backend.to_numpy(encoder.encode(IDS)) - normed).max() > 0.1


def test_picture_positions_change_the_result(oracle):
    backend = ReferenceBackend()
    encoder = TextEncoder(CONFIG, Weights(DictSource(tensors_of(oracle)), backend))
    plain, picture = (backend.to_numpy(encoder.encode(IDS, positions=p)) for p in (text_positions(19), PICTURE))
    assert np.abs(plain[4:] - picture[4:]).max() > 0.01


def test_released_frequencies_interleave_the_axes():
    axes = mrope_axes(TextEncoderConfig())
    assert axes[:7].tolist() == [0, 1, 2, 0, 1, 2, 0]
    assert axes[57:].tolist() == [0, 1, 2, 0, 0, 0, 0]
    assert [int((axes == axis).sum()) for axis in range(3)] == [24, 20, 20]


def test_tables_are_the_closed_form():
    cos, sin = mrope_tables(CONFIG, PICTURE)
    inverse = CONFIG.rope_theta ** (-np.arange(8) / 8)
    angle = PICTURE[mrope_axes(CONFIG)].T * inverse
    assert cos.dtype == sin.dtype == np.float32 and cos.shape == (19, 8)
    np.testing.assert_allclose(cos, np.cos(angle), atol=2e-6)
    np.testing.assert_allclose(sin, np.sin(angle), atol=2e-6)


class RecordingSource(DictSource):
    def __init__(self, tensors):
        super().__init__(tensors)
        self.calls = []

    def prefetch(self, prefix):
        self.calls.append(("prefetch", prefix))

    def release(self, prefix):
        self.calls.append(("release", prefix))


def test_layers_are_read_ahead_and_released_in_order(oracle):
    source, done = RecordingSource(tensors_of(oracle)), []
    TextEncoder(CONFIG, Weights(source, ReferenceBackend())).encode(IDS, on_layer=lambda *seen: done.append(seen))
    assert source.calls == [
        ("prefetch", "layers.1."), ("release", "layers.0."), ("prefetch", "layers.2."), ("release", "layers.1."),
        ("release", "layers.2."),
    ]  # fmt: skip
    assert done == [(1, 3), (2, 3), (3, 3)]


def test_stopping_between_layers_releases_the_layer(oracle):
    backend = ReferenceBackend()
    source = RecordingSource(tensors_of(oracle))
    encoder = TextEncoder(CONFIG, Weights(source, backend))
    with pytest.raises(Cancelled):
        encoder.encode(IDS, on_layer=lambda done, total: backend.cancel.set())
    assert source.calls[-1] == ("release", "layers.1.")


@pytest.mark.parametrize("ids", [[0, 71], [-1, 3], []])
def test_ids_outside_the_vocabulary_are_refused(oracle, ids):
    encoder = TextEncoder(CONFIG, Weights(DictSource(tensors_of(oracle)), ReferenceBackend()))
    with pytest.raises(RequestError, match=r"numbers in 0 \.\. 70") as caught:
        encoder.encode(np.array(ids, dtype=np.int32))
    assert "different models" in caught.value.hint


def test_positions_of_another_length_are_refused(oracle):
    encoder = TextEncoder(CONFIG, Weights(DictSource(tensors_of(oracle)), ReferenceBackend()))
    with pytest.raises(RequestError, match=r"shape \(3, 5\), expected \(3, 19\)"):
        encoder.encode(IDS, positions=text_positions(5))
