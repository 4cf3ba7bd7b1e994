"""Token ids against transformers' Qwen2 tokenizer on the released files.

Tier: executed reference (golden ids everywhere; the released files themselves where `../shared` exists). Cannot catch
combining marks newer than Unicode 13: the released normaliser does not know them, Python's does.
"""

import base64
import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from core.errors import CheckpointError
from core.model.tokenizer import SPECIALS, TEXT_TAG, Tokenizer, parse_ranks
from core.weights.vocabulary import vocabulary_text

ROOT = Path(__file__).resolve().parents[3]
RELEASED = ROOT.parent / "shared" / "data" / "tokenizer"
GOLDEN = json.loads((ROOT / "tests" / "fixtures" / "tokenizer_golden.json").read_text())
needs_released = pytest.mark.skipif(not RELEASED.is_dir(), reason="needs the released tokenizer files in ../shared")

KNOWN_MARKS = [chr(code) for marks in ((0x300, 0x370), (0x64B, 0x656), (0x3099, 0x309B)) for code in range(*marks)]
CHARACTERS = st.characters(exclude_categories=["Cs", "Cn", "Mn"]) | st.sampled_from(KNOWN_MARKS)
EXTRA_PIECES = ["<d", "'s", "'LL", "\r\n", "  ", "\t", "你好", "é"]
PIECES = st.text(CHARACTERS, max_size=8) | st.sampled_from([*SPECIALS, *EXTRA_PIECES])
TEXTS = st.lists(PIECES, max_size=8).map("".join)


@pytest.fixture(scope="module")
def qwen():
    return Tokenizer.from_rank_text(vocabulary_text(None))


@pytest.fixture(scope="module")
def released():
    transformers = pytest.importorskip("transformers")
    return transformers.Qwen2Tokenizer.from_pretrained(RELEASED)


@pytest.mark.parametrize("row", GOLDEN, ids=lambda row: ascii(row["text"][:20]))
def test_ids_equal_the_golden_ids_of_the_released_tokenizer(qwen, row):
    assert qwen.encode(row["text"]) == row["ids"]


@needs_released
def test_golden_ids_are_what_the_released_files_give(released):
    assert [released.encode(row["text"], add_special_tokens=False) for row in GOLDEN] == [row["ids"] for row in GOLDEN]


@needs_released
def test_specials_have_the_released_ids(qwen, released):
    assert [released.convert_tokens_to_ids(token) for token in SPECIALS] == list(range(151643, 151676))
    assert [qwen.special_ids[token] for token in SPECIALS] == list(range(151643, 151676))
    assert qwen.vocabulary_size == len(released) == 151676


@needs_released
@given(text=TEXTS)
@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_ids_equal_the_released_tokenizer_on_generated_text(qwen, released, text):
    assert qwen.encode(text) == released.encode(text, add_special_tokens=False)


def test_a_combining_mark_after_a_special_does_not_melt_into_it(qwen):
    assert qwen.encode("<d>\u0338") == [151669, *qwen.encode("\u0338")]
    assert qwen.encode(">\u0338") == qwen.encode("\u226f")


def test_text_is_decoded_back_after_nfc(qwen):
    assert qwen.decode(qwen.encode("<d>cafe\u0301 你好</d> 👩‍👧")) == "<d>café 你好</d> 👩‍👧"


def test_a_prompt_is_all_text_rows(qwen):
    prompt = qwen.tokenize("a red circle")
    assert prompt.ids.dtype == prompt.tags.dtype == np.int32
    assert prompt.ids.tolist() == qwen.encode("a red circle")
    assert prompt.rows == 3 and prompt.tags.tolist() == [TEXT_TAG] * 3


def test_an_empty_prompt_is_one_endoftext(qwen):
    assert qwen.tokenize("").ids.tolist() == [151643]


def rank_text(tokens: list[bytes]) -> bytes:
    return b"\n".join(base64.b64encode(token) + b" %d" % rank for rank, token in enumerate(tokens))


def test_specials_follow_directly_after_a_small_vocabulary():
    tokens = [bytes((byte,)) for byte in range(256)] + [b"re", b"red"]
    small = Tokenizer.from_rank_text(rank_text(tokens))
    assert small.encode("red<d>re<|endoftext|>") == [257, 258 + 26, 256, 258]
    assert small.vocabulary_size == 258 + 33


def test_a_damaged_vocabulary_is_refused_with_the_line():
    good = rank_text([bytes((byte,)) for byte in range(256)])
    with pytest.raises(CheckpointError, match="line 3 is not `base64 rank`"):
        parse_ranks(b"IQ== 0\nIg== 1\n!!!\n")
    with pytest.raises(CheckpointError, match="not 0 to 255, each once"):
        parse_ranks(good.replace(b" 255", b" 300"))
    with pytest.raises(CheckpointError, match="lacks 255 single bytes, the first is 0x00"):
        parse_ranks(b"IQ== 0\n")


def test_a_missing_vocabulary_file_is_named(tmp_path):
    with pytest.raises(CheckpointError, match="none.tiktoken cannot be read: No such file"):
        vocabulary_text(tmp_path / "none.tiktoken")
