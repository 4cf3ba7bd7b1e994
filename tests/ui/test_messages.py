"""The sentences of the window.

Tier: self-consistency of the two languages, closed form for the small functions. Cannot judge a translation.
"""

import inspect
import string

import pytest

from core import errors
from core.worker.events import Phase
from ui import messages


def fields_of(sentence: str) -> set[str]:
    return {name for _, name, _, _ in string.Formatter().parse(sentence) if name}


def test_both_languages_have_the_same_sentences_with_the_same_fields():
    assert messages.ENGLISH.keys() == messages.CHINESE.keys()
    assert not [key for key in messages.ENGLISH if fields_of(messages.ENGLISH[key]) != fields_of(messages.CHINESE[key])]


def test_every_sentence_says_something():
    empty = {key for words in messages.LANGUAGES.values() for key, sentence in words.items() if not sentence.strip()}
    assert empty <= {"hint.form"}


def test_chinese_is_chinese():
    neutral = {"status.part"}
    assert not [
        key
        for key, sentence in messages.CHINESE.items()
        if sentence and key not in neutral and not any("\u4e00" <= sign <= "\u9fff" for sign in sentence)
    ]


def test_every_phase_has_words():
    for phase in Phase:
        assert f"phase.{phase.value}" in messages.ENGLISH and f"rail.{phase.value}" in messages.ENGLISH


def test_every_error_class_and_a_crash_have_a_sentence_and_a_hint():
    classes = [c for _, c in inspect.getmembers(errors, inspect.isclass) if issubclass(c, errors.VignetteError)]
    for kind in [*(c.kind for c in classes), "crash"]:
        assert f"error.{kind}" in messages.ENGLISH and messages.ENGLISH[f"hint.{kind}"]


@pytest.mark.parametrize(
    ("header", "language"),
    [
        (None, "en"),
        ("", "en"),
        ("zh-CN,zh;q=0.9,en;q=0.8", "zh"),
        ("en-US,en;q=0.9,zh;q=0.5", "en"),
        ("fr-FR,zh-TW;q=0.4", "zh"),
        ("en;q=0.2,zh;q=0.9", "zh"),
        ("de,fr", "en"),
        ("zh;q=broken,en", "en"),
    ],
)
def test_the_browsers_first_wish_among_ours_decides(header, language):
    assert messages.choose_language(header) == language


def test_an_error_keeps_its_own_words_and_hint_in_english():
    box = messages.error_text("en", "media", message="Disk is full.", hint="Free 20 MB.")
    assert (box.details, box.hint) == (("Disk is full.",), "Free 20 MB.")


def test_a_chinese_error_box_has_a_chinese_title_and_hint():
    box = messages.error_text("zh", "media", message="Disk is full.", hint="Free 20 MB.")
    assert (box.title, box.details, box.hint) == (
        messages.CHINESE["error.media"],
        ("Disk is full.",),
        messages.CHINESE["hint.media"],
    )


def test_an_unknown_kind_reads_as_a_general_error():
    assert messages.error_text("en", "never heard of").title == messages.ENGLISH["error.error"]


@pytest.mark.parametrize(
    ("seconds", "words"), [(-1, "0 s"), (0.4, "0 s"), (59.4, "59 s"), (59.6, "1 min 00 s"), (3725, "1 h 02 min")]
)
def test_durations_are_whole_and_never_negative(seconds, words):
    assert messages.duration("en", seconds) == words


def test_every_chinese_locale_gets_chinese_labels():
    labels = messages.page_translations()
    assert labels["zh-TW"] == labels["zh"] and labels["zh"]["app.generate"] == "生成"
    assert all(key.startswith("app.") for words in labels.values() for key in words)
