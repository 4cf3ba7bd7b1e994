"""Tier: executed reference (tiktoken reads the shipped ranks). Cannot catch a change of Qwen's own split rule."""

from pathlib import Path

import pytest

pytest.importorskip("tiktoken")
pytest.importorskip("tokenizers")

from dev.mini import tokenizer

RANKS = Path(__file__).parents[3] / "assets" / "mini" / "vocabulary.tiktoken"


@pytest.fixture(scope="module")
def shipped():
    if not RANKS.exists():
        pytest.skip(f"{RANKS} is missing")
    return tokenizer.CaptionTokenizer(RANKS)


def test_specials_follow_the_base_ranks_in_checkpoint_order(shipped):
    assert [shipped.encode(token) for token in tokenizer.SPECIALS] == [[512 + i] for i in range(33)]
    assert tokenizer.SPECIALS[26:28] == ("<d>", "</d>")


def test_any_text_is_encodable_and_composed_first(shipped):
    assert shipped.encode("e\u0301") == shipped.encode("\u00e9")
    assert max(shipped.encode("zebra \u4f60\u597d \U0001f600")) < 512


def test_trained_bpe_and_tiktoken_agree(tmp_path):
    bpe = tokenizer.train_bpe(1, 3000)
    tokenizer.write_ranks(bpe, tmp_path / "ranks")
    again = tokenizer.CaptionTokenizer(tmp_path / "ranks")
    for text in ("a red circle moves right on a navy background, low tone", "红色的圆形向右移动。", "x 12\n\n y"):
        assert bpe.encode(text).ids == again.encode(text)
