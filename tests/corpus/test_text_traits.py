"""What lines show of a text: its language, and what was done to it."""

import html
import random
from collections import Counter

import pytest

from nmt_cli.corpus.text.text_traits import TextTraits, traits_of
from tests.plain_sentences import sentences, tokenized
from tests.real_text import real_lines

JAPANESE = ["私の先生は新しい車を買いました。", "今日は天気がとてもいいです。"] * 20
THAI = ["วันนี้อากาศดีมาก เราจะไปเที่ยวทะเล", "ครูของฉันซื้อรถคันใหม่เมื่อวานนี้"] * 20


@pytest.mark.parametrize("language", ["en", "de", "fr"])
def test_the_language_of_sentences_is_certain(language):
    found = traits_of(sentences(language))
    assert (found.certain_language, found.num_lines) == (language, 64)
    for other in ("en", "de", "fr"):
        assert found.is_certainly(other) == (other == language)
        assert found.is_certainly_not(other) == (other != language)
    assert not found.is_certainly_not("ckb")  # py3langid does not know it
    assert traits_of(sentences(language)[:2]).certain_language is None


def test_lines_of_one_word_show_a_language_together():
    words = {language: " ".join(sentences(language)).split() for language in ("en", "de", "fr")}
    for language, of_language in words.items():
        assert traits_of(of_language).certain_language == language
        assert traits_of(["Yes."] * 100 + of_language[:9]).certain_language is None


def test_words_of_no_language_are_in_none():
    words = ["".join(random.Random(seed).choices("abcdefgh", k=4)) for seed in range(60)]
    draw = random.Random(1)
    for lines in (
        [" ".join(draw.choices(words, k=6)) for _ in range(100)],
        [f"sentence{number}" for number in range(100)],
        [f"{number} {number * number}" for number in range(100)],
        [each for pair in zip(sentences("en"), sentences("de"), strict=True) for each in pair],
    ):
        assert traits_of(lines).certain_language is None


@pytest.mark.parametrize(
    ("found", "given"),
    [
        ("no", "nb"),
        ("no", "da"),
        ("hr", "sr-Latn"),
        ("bs", "hr"),
        ("ms", "id-ID"),
        ("pt", "gl"),
        ("zh", "zh-Hant"),
        ("zh", "yue"),
        ("es", "ckb"),
        ("de", "nds"),
    ],
)
def test_relatives_and_unknown_languages_are_never_another_language(found, given):
    traits = TextTraits(200, found, 1.0, Counter(), None, None, 0, "")
    assert not traits.is_certainly_not(given)
    assert traits.is_certainly_not("fi")


@pytest.mark.parametrize(("language", "ends"), [("en", ".,?!"), ("de", ".,?!"), ("fr", ".,")])
def test_a_space_before_a_full_stop_is_that_of_a_tokenizer(language, ends):
    for end in ends:
        plain = sentences(language, end)
        assert traits_of(plain, language).is_tokenized is False
        assert traits_of(list(map(tokenized, plain)), language).is_tokenized is True
    assert traits_of([f"well @-@ known {each}" for each in plain], language).is_tokenized is True


def test_french_has_spaces_before_marks_of_two_parts():
    asked = [f"{each} ?" for each in sentences("fr", "")] + sentences("fr")
    assert traits_of(asked, "fr-CA").tokenized == 0
    assert traits_of(asked, "en").tokenized == 0.5


@pytest.mark.parametrize(("language", "lines"), [("ja", JAPANESE), ("th", THAI)])
def test_spaces_between_all_words_are_those_of_a_tokenizer(language, lines):
    assert traits_of(lines, language).is_tokenized is False
    cut = [" ".join(line[start : start + 4] for start in range(0, len(line), 4)) for line in lines]
    assert traits_of(cut, language).is_tokenized is True
    assert traits_of(cut, "ko").is_tokenized is None  # it writes spaces


def test_text_without_capitals_is_in_lower_case():
    lines = sentences("de")
    assert traits_of(lines).lower_case == 0
    assert traits_of([line.lower() for line in lines]).is_lower_case is True
    assert traits_of(lines[:20] + [line.lower() for line in lines[20:]]).is_lower_case is None
    for caseless in (JAPANESE, ["მე მიყვარს ჩემი სახლი."] * 40, [*["אני גר כאן: a"] * 40]):
        assert traits_of(caseless).lower_case is None


def test_entities_are_counted_by_lines():
    lines = [html.escape(f"\"{line}\" & 'x'") for line in sentences("en")]
    found = traits_of(lines)
    assert (found.entities, found.entity, found.has_entities) == (64, "&quot;", True)
    few = [*sentences("en") * 3, "AT&amp;T &#39;", "R&D; &c; & more;"]
    assert (traits_of(few).entities, traits_of(few).has_entities) == (1, False)
    assert traits_of([*few, "&lt;", "&#x27;"]).has_entities is False  # 3 of 196
    assert traits_of([*few[-30:], "&#x27;"]).has_entities is False  # 2 of 31
    assert traits_of([*few[-80:], "&lt;", "&#x27;"]).has_entities is True


@pytest.mark.parametrize(
    ("name", "language", "is_tokenized", "is_lower_case"),
    [
        ("multi30k/val.fr", "fr", False, False),
        ("newstest/newstest2013.en-de.de", "de", False, False),
        ("multi30k-bpe/valid.en", "en", True, True),
        ("dirty/opennmt-toy.train.de", "de", True, False),
    ],
)
def test_real_text(name, language, is_tokenized, is_lower_case):
    lines = [line for line in real_lines(name)[:1000] if line.strip()][::5]
    found = traits_of(lines, language)
    assert found.certain_language == language
    assert found.certainty > 0.9
    assert (found.is_tokenized, found.is_lower_case) == (is_tokenized, is_lower_case)
