"""What a person can ask for.

Tier: closed form (legal and illegal values, JSON there and back). Cannot catch a rule that the model has and we lack.
"""

import json

import pytest

from core.errors import RequestError
from core.request import MAX_SEED, GenerationRequest, Keyframe, Reference, parse_seed, snap_size


def test_a_request_survives_json_with_every_digit_of_its_seed():
    request = GenerationRequest(
        prompt="ein roter Kreis, 红色圆", width=256, height=128, frame_count=39, steps=8, seed=2**53 + 1,
        model_path="/a b/ü", keyframes=(Keyframe(path="a.png", position="first"),),
    )  # fmt: skip
    data = json.loads(json.dumps(request.to_json()))
    assert data["seed"] == str(2**53 + 1)
    assert GenerationRequest.from_json(data) == request
    references = GenerationRequest(prompt="x", references=(Reference(path="b.wav", kind="audio"),))
    assert GenerationRequest.from_json(json.loads(json.dumps(references.to_json()))) == references


@pytest.mark.parametrize(("values", "message"), [
    ({"prompt": ""}, "prompt is empty"),
    ({"prompt": " \n"}, "prompt is empty"),
    ({"steps": 0}, "0 steps"),
    ({"steps": 201}, "201 steps"),
    ({"seed": -1}, "out of range"),
    ({"seed": MAX_SEED + 1}, "out of range"),
    ({"width": 100}, "multiple of 32"),
    ({"frame_count": 24}, "cannot be decoded"),
    ({"width": 1376, "height": 768}, "at most 1,032,192 px"),
    ({"frame_count": 379}, "at most 362"),
])  # fmt: skip
def test_impossible_values_are_refused_with_a_remedy(values, message):
    with pytest.raises(RequestError, match=message) as error:
        GenerationRequest(**({"prompt": "a red circle"} | values))
    assert error.value.hint


@pytest.mark.parametrize("position", ["middle", "First", ""])
def test_a_keyframe_is_first_or_last(position):
    with pytest.raises(RequestError, match="first.*last"):
        Keyframe(path="a.png", position=position)


@pytest.mark.parametrize("kind", ["text", "Image", ""])
def test_a_reference_is_an_image_a_video_or_a_sound(kind):
    with pytest.raises(RequestError, match="image.*video.*audio"):
        Reference(path="a.bin", kind=kind)


def test_limits_themselves_are_allowed():
    for values in ({"steps": 1}, {"steps": 200}, {"seed": 0}, {"seed": MAX_SEED}, {"frame_count": 362},
                   {"width": 1344, "height": 768}):  # fmt: skip
        GenerationRequest(prompt="x", **values)
    assert GenerationRequest(prompt="x").with_seed(9).seed == 9


@pytest.mark.parametrize(("text", "seed"), [("7", 7), (" 42 ", 42), (0, 0), ("007", 7), (str(MAX_SEED), MAX_SEED)])
def test_a_typed_seed_is_taken_digit_for_digit(text, seed):
    assert parse_seed(text) == seed


@pytest.mark.parametrize("text", ["", " ", None, "-1", -1])
def test_no_seed_draws_a_fresh_one(text):
    seeds = {parse_seed(text) for _ in range(8)}
    assert len(seeds) > 1 and all(0 <= seed < 2**32 for seed in seeds)


@pytest.mark.parametrize("text", ["-2", "1.5", "1e3", "seven", "1_000", "²", "٣", str(MAX_SEED + 1)])
def test_other_seeds_are_refused(text):
    with pytest.raises(RequestError, match="not a whole number"):
        parse_seed(text)


@pytest.mark.parametrize(("wish", "legal", "notices"), [
    ((720, 480, 49), (736, 480, 56), 2), ((192, 112, 24), (192, 128, 39), 2), ((1280, 720, 22), (1280, 736, 22), 1),
    ((256, 256, 22), (256, 256, 22), 0), ((1, 1, 1), (32, 32, 22), 2), ((128, 128, 400), (128, 128, 362), 1),
])  # fmt: skip
def test_popular_illegal_sizes_map_to_named_neighbours(wish, legal, notices):
    *sizes, sentences = snap_size(*wish)
    assert (*sizes,) == legal
    assert len(sentences) == notices
    GenerationRequest(prompt="x", width=sizes[0], height=sizes[1], frame_count=sizes[2])
    for sentence in sentences:
        assert str(legal[2]) in sentence or f"{legal[0]}x{legal[1]}" in sentence


@pytest.mark.parametrize(("wish", "legal"), [
    ((1920, 1080), (1344, 768)), ((1080, 1920), (768, 1344)), ((3840, 2160), (1344, 768)), ((1024, 1024), (992, 992)),
    ((10**9, 10**9), (992, 992)), ((100_000, 1), (32_256, 32)),
])  # fmt: skip
def test_a_canvas_above_the_models_area_is_made_smaller_and_says_so(wish, legal):
    width, height, _, (sentence,) = snap_size(*wish, 22)
    assert (width, height) == legal and "1,032,192 px in all at most" in sentence
    GenerationRequest(prompt="x", width=width, height=height)


@pytest.mark.parametrize("wish", [(0, 128, 22), (128, -5, 22), (128, 128, 0), (128, 128, -1)])
def test_sizes_that_are_not_positive_are_refused(wish):
    with pytest.raises(RequestError, match="not possible"):
        snap_size(*wish)
