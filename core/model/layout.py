"""The packed sequence: which row means what, where it lies on the rotary clock, which noise level it has.

    t2va, fl2va   [text | keyframes | target audio | target video]
    ref2va        [text | reference blocks in request order | target audio | target video]

Everything before the target audio stays the same over all steps of a clip and is called the prefix.

The trap: one clock serves text, sound and picture. Text row i sits at time i, so a longer prompt moves all media, and a
reference moves everything behind it. Times are summed in float64 and rounded once; float32 sums drift within a clip.
Proof: tests/core/model/test_layout.py compares every row with the diffusers MiniMax-H3 layout functions.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum, IntEnum

import numpy as np

from core import constants as c
from core.errors import RequestError
from core.geometry import LatentGrid

TIME_PER_FRAME = 5.0 / 3.0  # rotary units per video frame: 40 per second, the audio latent rate
FRAMES_PER_LATENT = (1, 4, 4, 4, 4)  # video frames behind latent frame k mod 5
SPATIAL_SPAN = 32.0  # rotary units along the side of a square canvas


class Tag(IntEnum):
    """Modality of a row: selects its AdaLN weights, so the values are part of the checkpoint."""

    VIDEO = 0
    TEXT = 1
    AUDIO = 2


class TimestepClass(IntEnum):
    """Which timestep a row has. The first two move with the schedule, the others stand (almost) still."""

    VIDEO = 0  # target video and all text rows: 1 - sigma of the video schedule
    AUDIO = 1  # target audio: 1 - sigma of the audio schedule
    CONDITION = 2  # keyframes, reference pictures: max(video timestep, 0.999)
    REFERENCE_AUDIO = 3  # reference sound: 1.0, clean


class SegmentKind(Enum):
    """What a run of consecutive rows carries: (name, tag, timestep class). Text rows bring their own tags."""

    TEXT = ("text", Tag.TEXT, TimestepClass.VIDEO)
    KEYFRAME = ("keyframe", Tag.VIDEO, TimestepClass.CONDITION)
    REFERENCE_VIDEO = ("reference_video", Tag.VIDEO, TimestepClass.CONDITION)
    REFERENCE_AUDIO = ("reference_audio", Tag.AUDIO, TimestepClass.REFERENCE_AUDIO)
    TARGET_AUDIO = ("target_audio", Tag.AUDIO, TimestepClass.AUDIO)
    TARGET_VIDEO = ("target_video", Tag.VIDEO, TimestepClass.VIDEO)

    @property
    def tag(self) -> Tag:
        return self.value[1]

    @property
    def timestep_class(self) -> TimestepClass:
        return self.value[2]


class KeyframePosition(Enum):
    """Which frame of the clip a keyframe fixes."""

    FIRST = "first"
    LAST = "last"


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageReference:
    """A reference picture, as latent cells of its own canvas."""

    latent_h: int
    latent_w: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AudioReference:
    """Reference sound, in latents per channel."""

    audio_latents: int


@dataclass(frozen=True, slots=True, kw_only=True)
class VideoReference:
    """A reference clip on its own canvas; `audio_latents` per channel, 0 when it is silent."""

    latent_t: int
    latent_h: int
    latent_w: int
    audio_latents: int = 0


Reference = ImageReference | AudioReference | VideoReference


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """Rows start..stop of one kind. `source` counts keyframes or references from 0; it is 0 for text and targets."""

    kind: SegmentKind
    start: int
    stop: int
    source: int = 0


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PackedLayout:
    """One clip's sequence of `seq_len` rows.

    segments:          in packed order, without gaps
    positions:         [seq_len, 3] float32 rotary coordinates (t, h, w)
    tags:              [seq_len] int32, values of `Tag`
    timestep_classes:  [seq_len] int32, values of `TimestepClass`
    """

    segments: tuple[Segment, ...]
    positions: np.ndarray
    tags: np.ndarray
    timestep_classes: np.ndarray

    @property
    def seq_len(self) -> int:
        return self.segments[-1].stop

    @property
    def text(self) -> Segment:
        return self.segments[0]

    @property
    def conditions(self) -> tuple[Segment, ...]:
        """Keyframe and reference rows, in packed order."""
        return self.segments[1:-2]

    @property
    def target_audio(self) -> Segment:
        return self.segments[-2]

    @property
    def target_video(self) -> Segment:
        return self.segments[-1]

    @property
    def prefix_len(self) -> int:
        return self.target_audio.start


@dataclass(frozen=True, slots=True, eq=False)
class LatentRows:
    """Target rows of one clip, float32: latents, velocities or estimates. video [T*P, 96], audio [2*A, 32]."""

    video: np.ndarray
    audio: np.ndarray


# ---- packing
def pack(
    text_tags: Sequence[int],
    grid: LatentGrid,
    *,
    keyframes: Iterable[KeyframePosition] = (),
    references: Iterable[Reference] = (),
) -> PackedLayout:
    """Layout of a clip with latent sizes `grid`.

    text_tags: `Tag` per text row; rows of a picture inside the prompt carry Tag.VIDEO
    raises:    RequestError when keyframes and references are combined: no released weights take both
    """
    keyframes, references = tuple(keyframes), tuple(references)
    if keyframes and references:
        raise RequestError(
            f"{len(keyframes)} keyframes and {len(references)} references were asked for; a clip takes one kind.",
            hint="Remove the keyframes or the references.",
        )
    text_len = len(text_tags)
    canvas = _Plane.of(grid.latent_h, grid.latent_w)
    parts = [_Part(SegmentKind.TEXT, 0, _text_positions(text_len))]
    parts += _keyframe_parts(keyframes, float(text_len), grid, canvas)
    reference_parts, origin = _reference_parts(references, float(text_len), canvas)
    parts += reference_parts
    parts.append(_Part(SegmentKind.TARGET_AUDIO, 0, _audio_positions(grid.audio_latents, origin, canvas)))
    parts.append(_Part(SegmentKind.TARGET_VIDEO, 0, _video_positions(_frame_times(grid.latent_t, origin), canvas)))
    return _join(parts, text_tags)


@dataclass(frozen=True, slots=True)
class _Part:
    """A segment before its place is known. positions: [rows, 3] float64."""

    kind: SegmentKind
    source: int
    positions: np.ndarray


def _join(parts: list[_Part], text_tags: Sequence[int]) -> PackedLayout:
    counts = [len(part.positions) for part in parts]
    stops = np.cumsum(counts).tolist()
    tags = np.repeat([part.kind.tag for part in parts], counts)
    tags[: len(text_tags)] = text_tags
    return PackedLayout(
        segments=tuple(
            Segment(kind=part.kind, start=stop - count, stop=stop, source=part.source)
            for part, count, stop in zip(parts, counts, stops, strict=True)
        ),
        positions=np.concatenate([part.positions for part in parts]).astype(np.float32),
        tags=tags.astype(np.int32),
        timestep_classes=np.repeat([part.kind.timestep_class for part in parts], counts).astype(np.int32),
    )


def _keyframe_parts(
    keyframes: tuple[KeyframePosition, ...], origin: float, grid: LatentGrid, canvas: "_Plane"
) -> list[_Part]:
    times = {
        KeyframePosition.FIRST: origin,
        KeyframePosition.LAST: origin + _time_span(grid.latent_t) - TIME_PER_FRAME,  # start of the last video frame
    }
    return [
        _Part(SegmentKind.KEYFRAME, source, _video_positions(np.array([times[keyframe]]), canvas))
        for source, keyframe in enumerate(keyframes)
    ]


def _reference_parts(
    references: tuple[Reference, ...], cursor: float, canvas: "_Plane"
) -> tuple[list[_Part], float]:
    """Reference segments, and the time at which the target starts."""
    parts = []
    for source, reference in enumerate(references):
        if isinstance(reference, ImageReference):
            plane = _Plane.of(reference.latent_h, reference.latent_w)
            parts.append(_Part(SegmentKind.REFERENCE_VIDEO, source, _video_positions(np.array([cursor]), plane)))
            cursor += 1.0  # a picture takes one unit, not the 5/3 of a video frame
        elif isinstance(reference, AudioReference):
            audio = _audio_positions(reference.audio_latents, cursor, canvas)
            parts.append(_Part(SegmentKind.REFERENCE_AUDIO, source, audio))
            cursor += reference.audio_latents
        else:
            plane = _Plane.of(reference.latent_h, reference.latent_w)
            if reference.audio_latents:
                audio = _audio_positions(reference.audio_latents, cursor, plane)
                parts.append(_Part(SegmentKind.REFERENCE_AUDIO, source, audio))
            video = _video_positions(_frame_times(reference.latent_t, cursor), plane)
            parts.append(_Part(SegmentKind.REFERENCE_VIDEO, source, video))
            cursor += max(float(reference.audio_latents), _time_span(reference.latent_t))
    return parts, cursor


# ---- coordinates, all float64
@dataclass(frozen=True, slots=True)
class _Plane:
    """Rotary coordinates of one latent frame: cells [P, 2] of (h, w), row by row, and its left and right edge."""

    cells: np.ndarray
    left: float
    right: float

    @staticmethod
    def of(latent_h: int, latent_w: int) -> "_Plane":
        diagonal = math.sqrt(latent_h * latent_w)
        h, w = _axis(latent_h, diagonal), _axis(latent_w, diagonal)
        cells = np.stack([axis.reshape(-1) for axis in np.meshgrid(h, w, indexing="ij")], axis=-1)
        return _Plane(cells, float(w[0]), float(w[-1]))


def _axis(cells: int, diagonal: float) -> np.ndarray:
    """Coordinates of the rows along one side: centred on 16, in steps of 64 / sqrt(latent_h * latent_w)."""
    rows, ratio = cells // c.PATCH_SPATIAL, cells / diagonal
    return SPATIAL_SPAN * ((1.0 - ratio) / 2.0 + np.arange(rows) * (ratio / rows))


def _spans(latent_t: int) -> np.ndarray:
    return TIME_PER_FRAME * np.resize(np.array(FRAMES_PER_LATENT, dtype=np.float64), latent_t)


def _time_span(latent_t: int) -> float:
    return float(np.cumsum(_spans(latent_t))[-1])


def _frame_times(latent_t: int, origin: float) -> np.ndarray:
    return origin + np.concatenate([[0.0], np.cumsum(_spans(latent_t)[:-1])])


def _text_positions(rows: int) -> np.ndarray:
    positions = np.zeros((rows, 3))
    positions[:, 0] = np.arange(rows)
    return positions


def _video_positions(times: np.ndarray, plane: _Plane) -> np.ndarray:
    per_frame = len(plane.cells)
    return np.column_stack([np.repeat(times, per_frame), np.tile(plane.cells, (len(times), 1))])


def _audio_positions(audio_latents: int, origin: float, plane: _Plane) -> np.ndarray:
    """Left channel, then right channel: the same times at the left and the right edge of the picture."""
    positions = np.zeros((c.AUDIO_CHANNELS, audio_latents, 3))
    positions[:, :, 0] = origin + np.arange(audio_latents)
    positions[:, :, 2] = np.array([[plane.left], [plane.right]])
    return positions.reshape(-1, 3)


# ---- latents <-> rows
def patchify(video_latent: np.ndarray) -> np.ndarray:
    """Rows [T*P, 96] of a video latent [24, T, latent_h, latent_w].

    Rows run over (t, h, w); a row holds channel * 4 + dy * 2 + dx of its 2x2 cells.
    """
    channels, t, latent_h, latent_w = video_latent.shape
    p = c.PATCH_SPATIAL
    cells = video_latent.reshape(channels, t, latent_h // p, p, latent_w // p, p)
    return np.ascontiguousarray(cells.transpose(1, 2, 4, 0, 3, 5)).reshape(-1, channels * p * p)


def unpatchify(rows: np.ndarray, grid: LatentGrid) -> np.ndarray:
    """Video latent [24, T, latent_h, latent_w] of rows [T*P, 96]; the inverse of `patchify`."""
    p, channels = c.PATCH_SPATIAL, c.VIDEO_LATENT_CHANNELS
    cells = rows.reshape(grid.latent_t, grid.latent_h // p, grid.latent_w // p, channels, p, p)
    latent = np.ascontiguousarray(cells.transpose(3, 0, 1, 4, 2, 5))
    return latent.reshape(channels, grid.latent_t, grid.latent_h, grid.latent_w)


def pack_audio(audio_latent: np.ndarray) -> np.ndarray:
    """Rows [2*A, 32] of an audio latent [2, 32, A]: all latents of the left channel, then all of the right."""
    return np.ascontiguousarray(audio_latent.transpose(0, 2, 1)).reshape(-1, audio_latent.shape[1])


def unpack_audio(rows: np.ndarray) -> np.ndarray:
    """Audio latent [2, 32, A] of rows [2*A, 32]; the inverse of `pack_audio`."""
    channels = rows.reshape(c.AUDIO_CHANNELS, -1, rows.shape[1])
    return np.ascontiguousarray(channels.transpose(0, 2, 1))
