"""What a person asks for: frozen and validated. Nothing here loads weights or touches a file.

`snap_size` turns any plausible wish into legal sizes plus sentences that say what changed.
"""

import secrets
from dataclasses import asdict, dataclass, field, replace

from core import constants as c
from core.errors import RequestError
from core.geometry import Canvas, LatentGrid, latent_grid, snap_canvas, snap_frame_count, snap_side

MAX_SEED = 2**63 - 1
KEYFRAME_POSITIONS = ("first", "last")
REFERENCE_KINDS = ("image", "video", "audio")


@dataclass(frozen=True, slots=True, kw_only=True)
class Keyframe:
    """An image that fixes the first or the last frame (fl2va). `position` is "first" or "last"."""

    path: str
    position: str

    def __post_init__(self):
        _check_choice("keyframe position", self.position, KEYFRAME_POSITIONS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """An ordered reference medium (ref2va). `kind` is "image", "video" or "audio"."""

    path: str
    kind: str

    def __post_init__(self):
        _check_choice("reference kind", self.kind, REFERENCE_KINDS)


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationRequest:
    """One clip to make. `steps` counts model evaluations; None means the model's own default."""

    prompt: str
    width: int = 128
    height: int = 128
    frame_count: int = c.MIN_FRAME_COUNT
    steps: int | None = None
    seed: int = 0
    model_path: str = ""  # empty: the embedded model
    keyframes: tuple[Keyframe, ...] = field(default=())
    references: tuple[Reference, ...] = field(default=())

    def __post_init__(self):
        if not self.prompt.strip():
            raise RequestError("The prompt is empty.", hint="Describe the clip in a few words.")
        if self.steps is not None and not 1 <= self.steps <= 200:
            raise RequestError(f"{self.steps} steps were asked for; 1 to 200 are possible.", hint="Use 8 to 50 steps.")
        if not 0 <= self.seed <= MAX_SEED:
            raise RequestError(f"Seed {self.seed} is out of range 0 .. {MAX_SEED}.", hint="Use -1 for a random seed.")
        if self.frame_count > c.MAX_FRAME_COUNT:
            raise RequestError(
                f"{self.frame_count} frames were asked for; the model makes at most {c.MAX_FRAME_COUNT}.",
                hint=f"Use {c.MAX_FRAME_COUNT} frames or fewer.",
            )
        self.grid()
        if self.width * self.height > c.CANVAS_MAX_AREA_PX:
            width, height = snap_canvas(self.width, self.height)
            raise RequestError(
                f"A canvas of {self.width}x{self.height} px was asked for; the model makes at most "
                f"{c.CANVAS_MAX_AREA_PX:,} px, such as 1344x768.",
                hint=f"Use {width}x{height} px.",
            )

    def canvas(self) -> Canvas:
        return Canvas(width=self.width, height=self.height)

    def grid(self) -> LatentGrid:
        return latent_grid(self.canvas(), self.frame_count)

    def to_json(self) -> dict:
        """Plain JSON types; the seed is a string because JavaScript rounds integers above 2^53."""
        return asdict(self) | {"seed": str(self.seed)}

    @staticmethod
    def from_json(data: dict) -> "GenerationRequest":
        values = dict(data)
        values["seed"] = int(values.get("seed", 0))
        values["keyframes"] = tuple(Keyframe(**item) for item in values.get("keyframes", ()))
        values["references"] = tuple(Reference(**item) for item in values.get("references", ()))
        return GenerationRequest(**values)

    def with_seed(self, seed: int) -> "GenerationRequest":
        return replace(self, seed=seed)


def _check_choice(name: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise RequestError(f"The {name} is {value!r}; it can be {', '.join(choices)}.", hint=f"Use {choices[0]!r}.")


def parse_seed(text: str | int | None) -> int:
    """Seed from what a person typed: empty or -1 draws a random one; digits are taken exactly, digit for digit."""
    value = "" if text is None else str(text).strip()
    if value in ("", "-1"):
        return secrets.randbelow(2**32)
    if not (value.isascii() and value.isdigit()) or int(value) > MAX_SEED:
        raise RequestError(f"Seed {value!r} is not a whole number in 0 .. {MAX_SEED}.", hint="Use -1 for a random one.")
    return int(value)


def snap_size(width: int, height: int, frame_count: int) -> tuple[int, int, int, list[str]]:
    """Legal (width, height, frame_count) next to the wished ones, and a sentence for each change."""
    if width <= 0 or height <= 0:
        raise RequestError(f"A canvas of {width}x{height} px is not possible.", hint="Use for example 256x256.")
    if frame_count <= 0:
        raise RequestError(f"{frame_count} frames are not possible.", hint="Use 22 frames or more.")
    legal_w, legal_h = snap_canvas(width, height)
    legal_f = snap_frame_count(frame_count)
    notices = []
    if (legal_w, legal_h) != (width, height):
        too_large = snap_side(width) * snap_side(height) > c.CANVAS_MAX_AREA_PX
        limit = f", {c.CANVAS_MAX_AREA_PX:,} px in all at most" if too_large else ""
        notices.append(f"Size {width}x{height} became {legal_w}x{legal_h}: sides are multiples of 32 px{limit}.")
    if legal_f != frame_count:
        notices.append(f"{frame_count} frames became {legal_f}: the model makes 22, 39, 56, ... 362 frames.")
    return legal_w, legal_h, legal_f, notices
