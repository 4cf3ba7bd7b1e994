"""The comparison of accuracy modes: which variants there are, what is compared, what counts as a miss, what is kept.

Tier: closed form; one clip of the embedded model is made for real. Measures no mode itself.
"""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from core import paths
from core.kernels.matrix import WeightFormat
from core.model.modes import FLOAT_MODEL, MODEL_MODES
from core.weights.components import ComponentKind
from dev.mini import eval_modes
from dev.mini.eval_mini import ATTRIBUTES, make_cases
from dev.mini.eval_modes import Clips, Variant, all_variants, cases_of, chosen, compare, keep, kept, shortfalls

needs_model = pytest.mark.skipif(not paths.mini_model_path().is_dir(), reason="the embedded model is missing")


def clips(latents, **changed) -> Clips:
    """Two clips that read alike but for `changed` attributes of the second."""
    reads = [dict.fromkeys(ATTRIBUTES, "as asked") for _ in latents]
    reads[1] |= changed
    return Clips(np.float32(latents), reads)


def test_one_flipped_attribute_spoils_its_clip_and_distances_are_relative():
    baseline = clips([[3, 4], [0, 10]])
    figures = compare(clips([[3, 4.5], [1, 10]], colour="another"), baseline)
    assert figures["no_flip"] == 0.5 and figures["same"] == dict.fromkeys(ATTRIBUTES, 1.0) | {"colour": 0.5}
    assert (figures["l2_median"], figures["l2_max"]) == (0.1, 0.1) and not figures["identical"]


def test_a_missing_reading_on_both_sides_is_no_flip():
    assert compare(clips([[1], [2]], shape=None), clips([[1], [2]], shape=None))["no_flip"] == 1.0


def test_a_miss_and_a_mode_that_does_nothing_are_shortfalls():
    def result(no_flip, identical, target):
        return {"no_flip": no_flip, "identical": identical, "target": target, "against": "q8_0 float"}

    results = {
        "q8_0 near": result(0.98, False, 0.97),
        "q8_0 exact": result(0.96, False, 0.97),
        "q4_k exact": result(1.0, True, 0.97),
        "f32 exact": result(1.0, True, 0.97),
        "q8_0 fast": result(0.5, True, None),
    }
    assert [fault.partition(":")[0] for fault in shortfalls(results)] == ["q8_0 exact", "q4_k exact"]


def test_every_variant_has_a_name_of_its_own_and_a_baseline_that_differs_in_one_respect():
    variants = {v.name: v for v in all_variants()}
    assert len(variants) == len(all_variants())
    for variant in variants.values():
        if variant.baseline:
            baseline = variants[variant.baseline]
            differing = [name for name in ("weights", "text_weights", "modes", "size")
                         if getattr(variant, name) != getattr(baseline, name)]  # fmt: skip
            assert len(differing) == 1, variant.name


def test_every_weight_format_and_every_mode_is_there_and_near_and_exact_have_targets():
    variants = all_variants()
    formats = set(WeightFormat)
    assert formats <= {v.weights for v in variants if v.modes == FLOAT_MODEL}
    targets = Counter(v.modes.describe()["qkv"] for v in variants if v.target)
    assert targets == {"near": 3, "exact": 3}
    assert all(any(v.modes == modes for v in variants) for modes in MODEL_MODES.values())


def test_a_choice_brings_the_baselines_of_its_baselines():
    names = [v.name for v in chosen(all_variants(), ["text q8_0 near"])]
    assert names == ["f32 float", "text q8_0 float", "text q8_0 near"]
    assert len(chosen(all_variants(), [])) == len(all_variants())


def test_fewer_cases_are_the_first_ones_and_are_compared_with_those():
    everything, half = Variant(name="all"), Variant(name="half", share=2)
    assert cases_of(half, 4) == cases_of(everything, 4)[:2] and len(cases_of(half, 1)) == 1
    baseline = Clips(np.float32([[1, 0], [1, 0], [1, 0]]), [{name: str(n) for name in ATTRIBUTES} for n in range(3)])
    fewer = Clips(np.float32([[1, 0], [1, 1]]), [{name: str(n) for name in ATTRIBUTES} for n in range(2)])
    figures = compare(fewer, baseline)
    assert (figures["clips"], figures["no_flip"], figures["l2_max"]) == (2, 1.0, 1.0)


def test_a_variant_is_judged_against_its_baseline_and_against_float32_weights():
    made = {
        "f32 float": clips([[1], [2]]),
        "q8_0 float": clips([[1], [2]], shape="another"),
        "q8_0 exact": clips([[1], [2]], shape="another"),
    }
    figures = eval_modes.judge(Variant(name="q8_0 exact", baseline="q8_0 float", target=0.97), made)
    assert (figures["no_flip"], figures["no_flip_f32"], figures["target"]) == (1.0, 0.5, 0.97)


def test_clips_are_kept_for_the_same_conditions_only(tmp_path):
    variant, made = Variant(name="q8_0 near"), clips([[1, 2], [3, 4]], shape=None)
    assert kept(tmp_path, variant, "mark") is None
    keep(tmp_path, variant, "mark", made)
    again = kept(tmp_path, variant, "mark")
    assert np.array_equal(again.latents, made.latents) and again.reads == made.reads
    assert kept(tmp_path, variant, "other kernels") is None


@needs_model
def test_fingerprints_tell_weights_modes_and_counts_apart():
    variants = [v for v in all_variants() if v.size == eval_modes.SHORT]
    marks = {eval_modes.fingerprint(v, 64) for v in variants}
    assert len(marks) == len(variants)
    assert eval_modes.fingerprint(variants[0], 32) not in marks


@needs_model
def test_the_variant_decides_the_weights_of_the_parts():
    variant = Variant(name="v", weights=WeightFormat.Q4_K, text_weights=WeightFormat.Q8_0)
    files = eval_modes.recoded(paths.mini_model_path(), variant)

    def stored(kind, name):
        return files.components[kind].source.matrix(name).spans[0].format

    assert stored(ComponentKind.DENOISER, "blocks.0.mlp.fc1.weight") is WeightFormat.Q4_K
    assert stored(ComponentKind.TEXT_ENCODER, "layers.0.mlp.up_proj.weight") is WeightFormat.Q8_0


@needs_model
@pytest.mark.native
def test_a_clip_made_twice_is_the_same_and_reads_as_asked(monkeypatch, tmp_path):
    monkeypatch.setenv("VIGNETTE_HOME", str(tmp_path))
    cases, variant = make_cases(1, eval_modes.SEED), Variant(name="f32 float")
    first = eval_modes.make_variant(variant, cases)
    again = eval_modes.make_variant(replace(variant, weights=WeightFormat.BF16), cases)
    figures = compare(again, first)
    assert figures["no_flip"] == 1.0 and figures["l2_max"] < 1e-5  # the file's own weights are bfloat16
    assert first.reads[0]["colour"] == cases[0].composition.colour
