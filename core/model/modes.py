"""Which accuracy serves which kind of layer: the one table, chosen by the error measured on the embedded model.

Patch projections, heads and AdaLN projections are float32 in every choice: together they are about a thousandth of the
work, and their error reaches every row. The text refiner runs once per clip over the prompt alone, so it never gets
less than NEAR. No kind of layer stands out in the measurement (on Q4_K weights in EXACT, relative L2 of the latents:
qkv 0.0015, out 0.0012, fc1 0.0044, fc2 0.0039, attention 0.006, where the weights themselves cost 0.041), so each of
the faster choices is uniform.

The trap: the refiner attends within the text, so neither the window nor the storage of the main sequence may reach it.
Proof: tests/core/model/test_modes.py follows every product to its accuracy; `make eval-modes` measures the choices.
"""

from dataclasses import dataclass, replace

import numpy as np

from core.kernels.backend import FLOAT_ATTENTION, Accuracy, AttentionMode, KvFormat, Window
from core.model.layout import PackedLayout


@dataclass(frozen=True, slots=True, kw_only=True)
class DenoiserModes:
    """Accuracy of each kind of product of the denoiser; the storage of keys and values is part of `attention`.

    window_radius: latent frames a video row sees on either side; None: all of them, which is exact
    """

    qkv: Accuracy = Accuracy.FLOAT
    out: Accuracy = Accuracy.FLOAT
    fc1: Accuracy = Accuracy.FLOAT
    fc2: Accuracy = Accuracy.FLOAT
    refiner: Accuracy = Accuracy.FLOAT
    attention: AttentionMode = FLOAT_ATTENTION
    window_radius: int | None = None

    def over(self, layout: PackedLayout) -> "DenoiserModes":
        """The modes for the sequence of one clip: attention knows the window's place."""
        if self.window_radius is None:
            return self
        video = layout.target_video
        times = layout.positions[video.start : video.stop, 0]
        rows_per_frame = int(np.count_nonzero(times == times[0]))
        window = Window(start=video.start, rows_per_frame=rows_per_frame, radius=self.window_radius)
        return replace(self, attention=replace(self.attention, window=window))

    def in_refiner(self) -> "DenoiserModes":
        """The modes of the refiner's own blocks, whose attention stays float32."""
        r = self.refiner
        return DenoiserModes(qkv=r, out=r, fc1=r, fc2=r, refiner=r)

    def with_kv(self, kv: KvFormat) -> "DenoiserModes":
        """The same with another storage of keys and values."""
        return replace(self, attention=replace(self.attention, kv=kv))


def _uniform(accuracy: Accuracy, attention: AttentionMode) -> DenoiserModes:
    return DenoiserModes(
        qkv=accuracy, out=accuracy, fc1=accuracy, fc2=accuracy, refiner=Accuracy.NEAR, attention=attention
    )


FLOAT = DenoiserModes()
NEAR = _uniform(Accuracy.NEAR, AttentionMode(accuracy=Accuracy.NEAR))
EXACT = _uniform(Accuracy.EXACT, AttentionMode(accuracy=Accuracy.EXACT))
FAST = _uniform(Accuracy.FAST, AttentionMode(accuracy=Accuracy.FAST))


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelModes:
    """Accuracy of every part of a model that has a choice. The audio decoder is convolutions, which have none."""

    denoiser: DenoiserModes = FLOAT
    text_encoder: Accuracy = Accuracy.FLOAT
    video_decoder: Accuracy = Accuracy.FLOAT

    def describe(self) -> dict:
        """As JSON types, for the record of a clip."""
        d = self.denoiser
        products = {"qkv": d.qkv, "out": d.out, "fc1": d.fc1, "fc2": d.fc2, "refiner": d.refiner}
        products |= {"attention": d.attention.accuracy, "text_encoder": self.text_encoder}
        named = {name: accuracy.value for name, accuracy in (products | {"video_decoder": self.video_decoder}).items()}
        return {**named, "kv": d.attention.kv.value, "window_radius": d.window_radius}


FLOAT_MODEL = ModelModes()
MODEL_MODES = {
    "float": FLOAT_MODEL,
    "near": ModelModes(denoiser=NEAR),
    "exact": ModelModes(denoiser=EXACT),
    "fast": ModelModes(denoiser=FAST),
}
