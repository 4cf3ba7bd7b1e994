"""Rough pictures of a clip that is still being sampled: a linear map from one latent cell to one RGB colour.

The map has 75 numbers (24 x 3 and a bias). It is refitted from every finished decode of the same VAE: the decoder's own
frames are averaged over each latent cell and regressed on the latent, with sums kept so that every clip counts.
Before the first decode the map shipped with the model is used, and without one the three leading directions of the
clip itself.

The trap: previews show the *estimated clean* latent x + sigma * v, never the noisy x; a map fitted on clean latents
turns noise into confetti. Cannot show shapes finer than 16 px.
"""

import json
import os
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from core import constants as c
from core.geometry import latent_index_of_frame

RIDGE = 1e-3  # relative to the mean power of a latent channel: keeps an unused channel's weights at zero
FIT_VERSION = 1


@dataclass(frozen=True, slots=True)
class LatentRgbMap:
    """rgb = latent @ matrix + bias in [-1, 1]. matrix [24, 3], bias [3], float32."""

    matrix: np.ndarray
    bias: np.ndarray

    def picture(self, latent: np.ndarray) -> np.ndarray:
        """RGB uint8 [h, w, 3] of one latent frame [24, h, w]."""
        rgb = np.moveaxis(latent, 0, -1) @ self.matrix + self.bias
        return np.rint((np.clip(rgb, -1.0, 1.0) * 0.5 + 0.5) * 255.0).astype(np.uint8)


def leading_directions(video_latent: np.ndarray) -> LatentRgbMap:
    """A map to the three strongest directions of [24, T, h, w]: no true colours, but where things are."""
    cells = video_latent.reshape(video_latent.shape[0], -1).T
    mean = cells.mean(axis=0)
    _, sizes, directions = np.linalg.svd(cells - mean, full_matrices=False)
    spread = np.maximum(sizes[:3] / np.sqrt(len(cells)), 1e-6)
    matrix = directions[:3].T / (2.0 * spread)
    return LatentRgbMap(matrix.astype(np.float32), (-mean @ matrix).astype(np.float32))


@dataclass(slots=True)
class RgbFit:
    """Least-squares sums over all decodes of one VAE: `gram` [25, 25], `cross` [25, 3], in float64."""

    gram: np.ndarray = field(default_factory=lambda: np.zeros((c.VIDEO_LATENT_CHANNELS + 1,) * 2))
    cross: np.ndarray = field(default_factory=lambda: np.zeros((c.VIDEO_LATENT_CHANNELS + 1, 3)))

    def add(self, video_latent: np.ndarray, cell_rgb: np.ndarray) -> None:
        """Count one clip: latent [24, T, h, w] and mean colours [T, h, w, 3] in [-1, 1] (NaN cells are skipped)."""
        cells = video_latent.reshape(video_latent.shape[0], -1).T.astype(np.float64)
        colours = cell_rgb.reshape(-1, 3).astype(np.float64)
        known = np.isfinite(colours).all(axis=1)
        inputs = np.concatenate([cells[known], np.ones((known.sum(), 1))], axis=1)
        self.gram += inputs.T @ inputs
        self.cross += inputs.T @ colours[known]

    def solve(self) -> LatentRgbMap | None:
        """The ridge solution, or None before any clip was counted."""
        count = self.gram[-1, -1]
        if not count:
            return None
        penalty = np.full(len(self.gram), RIDGE * np.trace(self.gram[:-1, :-1]) / (len(self.gram) - 1))
        penalty[-1] = 0.0
        solution = np.linalg.solve(self.gram + np.diag(penalty), self.cross)
        return LatentRgbMap(solution[:-1].astype(np.float32), solution[-1].astype(np.float32))

    def save(self, path: Path) -> None:
        """Write atomically."""
        path.parent.mkdir(parents=True, exist_ok=True)
        data = {"version": FIT_VERSION, "gram": self.gram.tolist(), "cross": self.cross.tolist()}
        partial = path.with_suffix(f".{os.getpid()}.partial")  # the window's worker and the command line's may meet
        partial.write_text(json.dumps(data), encoding="utf-8")
        os.replace(partial, path)

    @staticmethod
    def load(path: Path) -> "RgbFit":
        """Sums of earlier decodes; an empty fit when there is no readable file of this version."""
        try:
            data = json.loads(path.read_text(encoding="utf-8"))
            gram, cross = np.array(data["gram"], dtype=np.float64), np.array(data["cross"], dtype=np.float64)
        except (OSError, ValueError, KeyError, TypeError):
            return RgbFit()
        empty = RgbFit()
        same_shapes = gram.shape == empty.gram.shape and cross.shape == empty.cross.shape
        finite = np.isfinite(gram).all() and np.isfinite(cross).all()
        return RgbFit(gram, cross) if data.get("version") == FIT_VERSION and same_shapes and finite else empty


class CellColours:
    """Averages decoded frames over latent cells while they stream out of the decoder."""

    def __init__(self, latent_t: int, latent_h: int, latent_w: int):
        self.sums = np.zeros((latent_t, latent_h, latent_w, 3))
        self.counts = np.zeros(latent_t)
        self.next_frame = 0

    def add(self, frames: np.ndarray) -> None:
        """The next uint8 frames [n, H, W, 3] of the clip."""
        _, latent_h, latent_w, _ = self.sums.shape
        side = c.LATENT_STRIDE_PX
        for frame in frames:
            cells = frame.reshape(latent_h, side, latent_w, side, 3).mean(axis=(1, 3))
            index = latent_index_of_frame(self.next_frame)
            self.sums[index] += cells
            self.counts[index] += 1
            self.next_frame += 1

    def means(self) -> np.ndarray:
        """Mean colours [T, h, w, 3] in [-1, 1]; NaN where no frame was seen."""
        with np.errstate(invalid="ignore", divide="ignore"):
            return self.sums / self.counts[:, None, None, None] / 127.5 - 1.0


class Previewer:
    """Preview pictures for one VAE: the refitted map if there is one, else the shipped map, else leading directions."""

    def __init__(self, fit_path: Path, shipped: LatentRgbMap | None):
        self.fit_path = fit_path
        self.shipped = shipped
        self.fit = RgbFit.load(fit_path)
        self.map = self.fit.solve() or shipped

    def picture(self, video_latent: np.ndarray) -> np.ndarray:
        """RGB uint8 [h, w, 3] of the middle latent frame of an estimated clean latent [24, T, h, w]."""
        rgb_map = self.map or leading_directions(video_latent)
        return rgb_map.picture(video_latent[:, video_latent.shape[1] // 2])

    def learn(self, video_latent: np.ndarray, colours: CellColours) -> None:
        """Refit from a finished decode and keep the sums."""
        self.fit.add(video_latent, colours.means())
        self.fit.save(self.fit_path)
        self.map = self.fit.solve() or self.shipped
