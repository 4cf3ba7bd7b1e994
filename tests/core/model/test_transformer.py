"""The denoiser's forward pass.

Tier: executed reference (diffusers MiniMax-H3, tiny model with portable weights) on all three layouts; published
numbers of that model as an anchor. Cannot catch what only real weights show, and says nothing about speed.
"""

from dataclasses import dataclass

import numpy as np
import pytest
import torch
from diffusers.loaders.single_file_utils import convert_minimax_h3_transformer_checkpoint_to_diffusers

from core.errors import KernelError
from core.geometry import LatentGrid
from core.kernels.provider import DictSource, Weights
from core.model.adaln import build_tables, plan_tables
from core.model.config import DenoiserConfig
from core.model.layout import (
    AudioReference,
    ImageReference,
    KeyframePosition,
    LatentRows,
    PackedLayout,
    Tag,
    VideoReference,
    pack,
)
from core.model.scratch import Scratch, scratch_bytes
from core.model.transformer import Denoiser
from tests.oracles import backends, denoiser
from tests.oracles.portable import normal_like

GRID = LatentGrid(latent_t=7, latent_h=4, latent_w=6, audio_latents=37)
TIMES = (0.25, 0.625)
PICTURE_IN_TEXT = [1, 1, 0, 0, 0, 0, 1, 1, 1]
KEYFRAMES = (KeyframePosition.FIRST, KeyframePosition.LAST)
REFERENCES = (
    ImageReference(latent_h=6, latent_w=4),
    VideoReference(latent_t=7, latent_h=4, latent_w=4, audio_latents=30),
    AudioReference(audio_latents=11),
)
LAYOUTS = {  # name -> (text tags, keyframes, references)
    "t2va": ([1] * 9, (), ()),
    "fl2va": (PICTURE_IN_TEXT, KEYFRAMES, ()),
    "ref2va": (PICTURE_IN_TEXT, (), REFERENCES),
}


@pytest.fixture(params=backends.NAMES)
def backend(request):
    return backends.make(request.param)


@dataclass(frozen=True)
class Case:
    """One input in both forms. video, audio: all rows, conditions first, as diffusers takes them."""

    layout: PackedLayout
    theirs: object
    text: np.ndarray
    video: np.ndarray
    audio: np.ndarray

    @staticmethod
    def make(name: str) -> "Case":
        tags, keyframes, references = LAYOUTS[name]
        theirs = denoiser.packed_layout(
            tags, GRID, keyframes=[keyframe.value for keyframe in keyframes], references=references
        )
        return Case(
            layout=pack(tags, GRID, keyframes=keyframes, references=references),
            theirs=theirs,
            text=normal_like(f"{name}.text", 9, 80),
            video=normal_like(f"{name}.video", theirs.video_indices.numel(), 96),
            audio=normal_like(f"{name}.audio", theirs.audio_indices.numel(), 32),
        )

    @property
    def conditions(self) -> list[np.ndarray]:
        streams = {Tag.VIDEO: self.video, Tag.AUDIO: self.audio}
        at, rows = {Tag.VIDEO: 0, Tag.AUDIO: 0}, []
        for segment in self.layout.conditions:
            tag, count = segment.kind.tag, segment.stop - segment.start
            rows.append(streams[tag][at[tag] : at[tag] + count])
            at[tag] += count
        return rows

    @property
    def latents(self) -> LatentRows:
        return LatentRows(
            self.video[self.theirs.condition_video_rows :], self.audio[self.theirs.condition_audio_rows :]
        )

    def expected(self, net) -> tuple[np.ndarray, np.ndarray]:
        return denoiser.velocity(net, self.theirs, TIMES, self.video, self.audio, self.text)


def build(backend, net, case: Case, times=TIMES):
    """Our model over the weights of `net`, and the prepared clip."""
    weights = Weights(denoiser.source(net), backend)
    plan = plan_tables(case.layout, np.float32([times[0]]), np.float32([times[1]]))
    ours = Denoiser(weights, denoiser.CONFIG)
    text = backend.from_numpy(case.text)
    return ours, ours.prepare(
        case.layout, build_tables(weights, denoiser.CONFIG, plan), text, conditions=case.conditions
    )


def relative(got: LatentRows, expected: tuple[np.ndarray, np.ndarray]) -> float:
    """L2 distance over both modalities, relative to the expected norm."""
    a = np.concatenate([got.video.ravel(), got.audio.ravel()]).astype(np.float64)
    b = np.concatenate([part.ravel() for part in expected]).astype(np.float64)
    return float(np.linalg.norm(a - b) / np.linalg.norm(b))


def test_canonical_names_are_those_of_the_published_repacks():
    """The official converter, told that q, k, v lie in thirds, must find every diffusers tensor again."""
    state = denoiser.model().state_dict()
    original = {name: value.clone() for name, value in denoiser.canonical(state).items()}
    back = convert_minimax_h3_transformer_checkpoint_to_diffusers(original, denoiser.TINY, qkv_layout="stacked")
    assert back.keys() == state.keys()
    assert all(torch.equal(back[name], value) for name, value in state.items())


@pytest.mark.parametrize("name", LAYOUTS)
def test_velocity_equals_diffusers_in_float32(backend, name):
    case = Case.make(name)
    ours, clip = build(backend, denoiser.model(), case)
    velocity = ours.forward(clip, 0, case.latents)
    video, audio = case.expected(denoiser.model())
    assert velocity.video.shape == (42, 96) and velocity.audio.shape == (74, 32)
    assert np.abs(velocity.video - video).max() <= 2e-5
    assert np.abs(velocity.audio - audio).max() <= 2e-5


@pytest.mark.parametrize("name", LAYOUTS)
def test_bfloat16_weights_stay_as_close_to_float32_as_diffusers_does(backend, name):
    case = Case.make(name)
    ours, clip = build(backend, denoiser.mixed_model(), case)
    exact = case.expected(denoiser.model())
    error = relative(ours.forward(clip, 0, case.latents), exact)
    reference_error = relative(LatentRows(*case.expected(denoiser.mixed_model())), exact)
    assert 1e-4 < error <= 1.2e-2
    assert error <= 2 * reference_error


@pytest.mark.parametrize(("name", "video_rms", "first_video", "audio_rms", "first_audio"), [
    ("t2va", 1.040388, [1.781880, 0.544956, -0.546443], 1.069870, [-0.629556, 0.599557, -2.581138]),
])  # fmt: skip
def test_published_values_of_the_tiny_model(backend, name, video_rms, first_video, audio_rms, first_audio):
    case = Case.make(name)
    ours, clip = build(backend, denoiser.model(), case)
    velocity = ours.forward(clip, 0, case.latents)
    for rows, rms, first in ((velocity.video, video_rms, first_video), (velocity.audio, audio_rms, first_audio)):
        assert np.sqrt(np.mean(np.square(rows, dtype=np.float64))) == pytest.approx(rms, abs=2e-6)
        assert rows[0, :3] == pytest.approx(first, abs=5e-6)


def test_a_second_forward_with_the_same_buffers_gives_the_same_numbers(backend):
    case = Case.make("fl2va")
    ours, clip = build(backend, denoiser.model(), case)
    first = ours.forward(clip, 0, case.latents)
    ours.forward(clip, 0, LatentRows(case.latents.video * 2, case.latents.audio * 2))
    again = ours.forward(clip, 0, case.latents)
    assert np.array_equal(first.video, again.video) and np.array_equal(first.audio, again.audio)


def test_stored_rotary_frequencies_are_used(backend):
    case = Case.make("t2va")
    ours, clip = build(backend, denoiser.model(), case)
    tensors = denoiser.source(denoiser.model(), stored_frequencies=True).tensors
    stored = Denoiser(Weights(DictSource(tensors), backend), denoiser.CONFIG)
    same = stored.prepare(case.layout, clip.tables, backend.from_numpy(case.text))
    tensors["rope.inv_freq"] = tensors["rope.inv_freq"] * np.float32(0.5)
    slower = stored.prepare(case.layout, clip.tables, backend.from_numpy(case.text))
    expected = ours.forward(clip, 0, case.latents).video
    assert np.array_equal(stored.forward(same, 0, case.latents).video, expected)
    assert np.abs(stored.forward(slower, 0, case.latents).video - expected).max() > 1e-3


def test_on_block_sees_every_block_in_order_and_may_stop(backend):
    case = Case.make("t2va")
    ours, clip = build(backend, denoiser.model(), case)
    seen = []
    ours.forward(clip, 0, case.latents, seen.append)
    assert seen == [0, 1, 2]

    def stop(block):
        raise KeyboardInterrupt(block)

    with pytest.raises(KeyboardInterrupt, match="0"):
        ours.forward(clip, 0, case.latents, stop)


def test_blocks_are_read_ahead_and_released_without_their_adaln_projection(backend):
    class Recorder(DictSource):
        calls = []

        def prefetch(self, prefix):
            self.calls.append(("prefetch", prefix))

        def release(self, prefix):
            self.calls.append(("release", prefix))

    case = Case.make("t2va")
    _, clip = build(backend, denoiser.model(), case)
    recorder = Recorder(denoiser.source(denoiser.model()).tensors)
    Denoiser(Weights(recorder, backend), denoiser.CONFIG).forward(clip, 0, case.latents)
    units = [f"blocks.{i}.{half}." for i in range(3) for half in ("attn", "mlp")]
    expected = []
    for unit, following in zip(units, [*units[1:], units[0]], strict=True):
        expected += [("prefetch", following), ("release", unit)]
    assert recorder.calls == expected


def test_prefix_rows_must_match_the_layout(backend):
    case = Case.make("fl2va")
    ours, clip = build(backend, denoiser.model(), case)
    text = backend.from_numpy(case.text)
    with pytest.raises(KernelError, match=r"\[9, 6, 6\] rows, got \[9, 6\]"):
        ours.prepare(case.layout, clip.tables, text, conditions=case.conditions[:1])
    with pytest.raises(KernelError, match=r"got \[9, 6, 5\]"):
        ours.prepare(case.layout, clip.tables, text, conditions=[case.conditions[0], case.conditions[1][:5]])


@pytest.mark.parametrize(
    "config", [denoiser.CONFIG, DenoiserConfig(hidden_size=64, num_heads=2, head_dim=32, ffn_dim=480)]
)
def test_scratch_bytes_are_those_of_the_arrays(backend, config):
    scratch = Scratch.make(backend, config, 11)
    widths = {name: getattr(scratch, name).shape for name in ("branch", "qkv", "mixed", "gated")}
    assert widths == {
        "branch": (11, config.hidden_size), "qkv": (11, 3 * config.inner_dim), "mixed": (11, config.inner_dim),
        "gated": (11, config.ffn_dim),
    }  # fmt: skip
    shared = max(scratch.qkv.shape[1], scratch.gated.shape[1])
    assert scratch_bytes(config, 11) == 4 * 11 * (scratch.branch.shape[1] + scratch.mixed.shape[1] + shared)
