"""Widgets <-> request.

Tier: closed form. Cannot catch what the browser does to a value on its way; tests/browser checks seeds there.
"""

import pytest

from core.request import MAX_SEED, GenerationRequest
from ui.form import LENGTHS, SIZES, STEPS, FormValues, fill, read


def keys(sentences):
    return [sentence.key for sentence in sentences]


def test_the_untouched_form_with_a_prompt_is_the_requests_own_default():
    request = read(FormValues(prompt=" a red circle ")).request
    assert request == GenerationRequest(prompt="a red circle").with_seed(request.seed)


@pytest.mark.parametrize("prompt", ["雨の夜、café — émigré 🎬", "x" * 5000, "a\nb"])
def test_prompts_pass_unchanged(prompt):
    assert read(FormValues(prompt=prompt)).request.prompt == prompt


@pytest.mark.parametrize("seed", ["0", "4294967296", "9007199254740993", str(2**63 - 1)])
def test_a_locked_seed_is_kept_digit_for_digit(seed):
    assert str(read(FormValues(prompt="p", seed=seed, seed_lock=True)).request.seed) == seed


@pytest.mark.parametrize("seed", ["1e9", "abc", "1.5", "-2", str(2**63), str(2**64 - 1), "１２"])
def test_an_impossible_seed_is_a_problem_that_names_it(seed):
    reading = read(FormValues(prompt="p", seed=seed, seed_lock=True))
    assert reading.request is None and keys(reading.problems) == ["problem.seed"]
    assert reading.problems[0].values == {"value": seed, "limit": MAX_SEED}


def test_an_unlocked_empty_or_minus_one_seed_draws_a_new_one():
    for values in (FormValues(prompt="p", seed="7"), FormValues(prompt="p", seed="", seed_lock=True)):
        assert len({read(values).request.seed for _ in range(8)}) > 1
    assert read(FormValues(prompt="p", seed="-1", seed_lock=True)).request.seed >= 0


@pytest.mark.parametrize(
    ("wish", "legal", "notices"),
    [
        ((720, 480, 49), (736, 480, 56), ["notice.size", "notice.frames"]),
        ((192, 112, 22), (192, 128, 22), ["notice.size"]),
        ((1280, 720, 24), (1280, 736, 39), ["notice.size", "notice.frames"]),
        ((31, 31, 10_000), (32, 32, 362), ["notice.size", "notice.frames"]),
        ((256, 256, 39), (256, 256, 39), []),
    ],
)
def test_illegal_sizes_become_legal_neighbours_and_say_so(wish, legal, notices):
    width, height, frames = wish
    reading = read(FormValues(prompt="p", exact_width=str(width), exact_height=str(height), exact_frames=str(frames)))
    assert (reading.request.width, reading.request.height, reading.request.frame_count) == legal
    assert keys(reading.notices) == notices


def test_one_exact_side_keeps_the_other_choices():
    request = read(FormValues(prompt="p", size="192x128", length=39, exact_height="64")).request
    assert (request.width, request.height, request.frame_count) == (192, 64, 39)


def test_all_problems_are_reported_together():
    values = FormValues(prompt="  ", seed="abc", seed_lock=True, exact_width="-32", exact_frames="0", exact_steps="500")
    assert keys(read(values).problems) == [
        "problem.prompt", "problem.seed", "problem.steps", "problem.size", "problem.frames",
    ]  # fmt: skip


@pytest.mark.parametrize("text", ["100.5", "1e3", "wide", "128px"])
def test_an_exact_value_that_is_no_whole_number_is_a_problem_that_names_it(text):
    problems = read(FormValues(prompt="p", exact_width=text)).problems
    assert keys(problems) == ["problem.number"] and problems[0].values == {"value": text}


def test_no_steps_choice_means_the_models_own():
    assert read(FormValues(prompt="p", steps=0)).request.steps is None
    assert read(FormValues(prompt="p", steps=8, exact_steps=" 5 ")).request.steps == 5


def test_a_request_fills_the_form_that_reads_back_as_it():
    for request in (
        GenerationRequest(prompt="known choices", width=256, height=256, frame_count=39, steps=16, seed=2**63 - 1),
        GenerationRequest(prompt="exact values", width=96, height=320, frame_count=107, steps=11, seed=5),
        GenerationRequest(prompt="defaults"),
    ):
        assert read(fill(request)).request == request


def test_every_choice_is_legal_as_it_stands():
    for width, height in SIZES:
        for length in LENGTHS:
            for steps in STEPS:
                reading = read(FormValues(prompt="p", size=f"{width}x{height}", length=length, steps=steps))
                assert reading.request and not reading.notices
