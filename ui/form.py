"""Widgets <-> GenerationRequest, by name: the only place that maps them. Pure; knows no Gradio.

The trap: the seed stays a string from the text box to the request, because JavaScript rounds integers above 2^53.
Proof: tests/ui/test_form.py.
"""

from dataclasses import dataclass, field, fields

from core import constants as c
from core.errors import RequestError
from core.request import MAX_SEED, GenerationRequest, parse_seed, snap_size

SIZES = ((128, 128), (192, 128), (128, 192), (256, 256))
LENGTHS = (22, 39, 56, 73, 90, 124)
STEPS = (0, 8, 16, 32)  # 0: the model's own choice
MAX_STEPS = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class FormValues:
    """What the widgets hold, by their names. `size` is "WIDTHxHEIGHT"; an empty exact field counts as not given."""

    prompt: str = ""
    size: str = f"{SIZES[0][0]}x{SIZES[0][1]}"
    length: int = LENGTHS[0]
    steps: int = STEPS[0]
    seed: str = ""
    seed_lock: bool = False
    exact_width: str = ""
    exact_height: str = ""
    exact_frames: str = ""
    exact_steps: str = ""


FIELD_NAMES = tuple(item.name for item in fields(FormValues))


@dataclass(frozen=True, slots=True, kw_only=True)
class Sentence:
    """A message key and its fields, put into words by `ui/messages.py`."""

    key: str
    values: dict = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """Either a legal request with the changes that made it legal, or the problems that prevent one (all of them)."""

    request: GenerationRequest | None = None
    notices: tuple[Sentence, ...] = ()
    problems: tuple[Sentence, ...] = ()


def read(values: FormValues) -> Reading:
    """Request of the form. An unlocked or empty seed draws a new one; exact fields win over the choices."""
    problems: list[Sentence] = []
    if not (values.prompt or "").strip():
        problems.append(Sentence(key="problem.prompt"))
    seed = _seed(values, problems)
    steps = _steps(values, problems)
    size = _size(values, problems)
    if problems:
        return Reading(problems=tuple(problems))
    (width, height, frame_count), notices = size
    try:
        request = GenerationRequest(
            prompt=values.prompt.strip(), width=width, height=height, frame_count=frame_count, steps=steps, seed=seed
        )
    except RequestError as error:
        return Reading(problems=(Sentence(key="problem.request", values={"detail": error.message}),))
    return Reading(request=request, notices=notices)


def fill(request: GenerationRequest) -> FormValues:
    """Form that reads back as `request`, with its seed locked."""
    size = f"{request.width}x{request.height}"
    known_size = size in {f"{w}x{h}" for w, h in SIZES}
    known_length, known_steps = request.frame_count in LENGTHS, (request.steps or 0) in STEPS
    return FormValues(
        prompt=request.prompt,
        size=size if known_size else FormValues().size,
        length=request.frame_count if known_length else LENGTHS[0],
        steps=(request.steps or 0) if known_steps else STEPS[0],
        seed=str(request.seed),
        seed_lock=True,
        exact_width="" if known_size else str(request.width),
        exact_height="" if known_size else str(request.height),
        exact_frames="" if known_length else str(request.frame_count),
        exact_steps="" if known_steps else str(request.steps),
    )


def new_seed() -> str:
    """A random seed as digits."""
    return str(parse_seed(""))


def _seed(values: FormValues, problems: list[Sentence]) -> int:
    try:
        return parse_seed(values.seed if values.seed_lock else "")
    except RequestError:
        problems.append(Sentence(key="problem.seed", values={"value": values.seed, "limit": MAX_SEED}))
        return 0


def _steps(values: FormValues, problems: list[Sentence]) -> int | None:
    steps = _whole(values.exact_steps, problems)
    if steps is None:
        return values.steps or None
    if not 1 <= steps <= MAX_STEPS:
        problems.append(Sentence(key="problem.steps", values={"steps": steps}))
    return steps


def _size(values: FormValues, problems: list[Sentence]) -> tuple[tuple[int, int, int], tuple[Sentence, ...]]:
    """Legal (width, height, frame_count) and the notices of what was rounded."""
    chosen_width, chosen_height = (int(part) for part in values.size.split("x"))
    given = [_whole(v, problems) for v in (values.exact_width, values.exact_height, values.exact_frames)]
    fallback = (chosen_width, chosen_height, int(values.length))
    width, height, frames = (f if g is None else g for g, f in zip(given, fallback, strict=True))
    if min(width, height) <= 0:
        problems.append(Sentence(key="problem.size", values={"width": width, "height": height}))
    if frames <= 0:
        problems.append(Sentence(key="problem.frames", values={"frames": frames}))
    if problems:
        return (width, height, frames), ()
    legal_width, legal_height, legal_frames, _ = snap_size(width, height, frames)
    notices = []
    if (legal_width, legal_height) != (width, height):
        sides = {"width": width, "height": height, "legal_width": legal_width, "legal_height": legal_height}
        notices.append(Sentence(key="notice.size", values=sides))
    if legal_frames != frames:
        notices.append(Sentence(key="notice.frames", values={"frames": frames, "legal_frames": legal_frames}))
    return (legal_width, legal_height, legal_frames), tuple(notices)


def _whole(text: str, problems: list[Sentence]) -> int | None:
    """Whole number of an exact field; empty gives None."""
    if not text.strip():
        return None
    try:
        return int(text)
    except ValueError:
        problems.append(Sentence(key="problem.number", values={"value": text}))
        return None


def seconds_of(frame_count: int) -> str:
    """Length of `frame_count` frames in seconds, one decimal."""
    return f"{frame_count / c.FPS:.1f}"
