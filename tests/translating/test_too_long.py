import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nmt_cli.corpus.text.sentences import SENTENCE_END
from nmt_cli.translating.segmentation.too_long import halve, lacks_sentences, parts_within


def encode(text):
    return list(text.encode())


def without_white_space(text):
    return "".join(text.split())


def rejoined(parts):
    return "".join(part.separator + bytes(part.tokens).decode() for part in parts)


@pytest.mark.parametrize(
    ("text", "left", "separator", "right"),
    [
        ("One two. Three four five", "One two.", " ", "Three four five"),
        ("Is it 3.5 or not, then?  Yes, it is so", "Is it 3.5 or not, then?", " ", "Yes, it is so"),
        ("no full stop here at all", "no full stop", " ", "here at all"),
        ("我是学生。他是老师", "我是学生。", "", "他是老师"),
        ("abcdefgh", "abcd", "", "efgh"),
        ("e\u0301e\u0301e\u0301e\u0301e\u0301", "e\u0301e\u0301e\u0301", "", "e\u0301e\u0301"),
        ("Mr. abcdefghijklmnopqrstuvwxyz", "Mr. abcdefghijk", "", "lmnopqrstuvwxyz"),
    ],
)
def test_cuts_at_the_best_border_near_the_middle(text, left, separator, right):
    assert halve(text) == (left, separator, right)


@settings(derandomize=True)
@given(
    st.text(st.sampled_from("abc .。!?\n\u2028\u00e9\u0301\u200d😀"), min_size=1),
    st.integers(1, 20),
)
def test_parts_fit_and_nothing_but_white_space_is_lost(text, limit):
    parts = parts_within(text, encode(text), limit, encode)
    assert all(0 < len(part.tokens) <= limit for part in parts)
    joined = b"".join(bytes(part.tokens) for part in parts).decode()
    assert without_white_space(joined) == without_white_space(text)


@given(st.text(".!?\"')a \n。」"))
def test_sentences_end_behind_the_last_of_several_marks(text):
    ends = re.finditer(r"""[.!?…]+["'»”’)\]]*(?=\s)|[。！？]+[」』”]*""", text)
    assert [each.end() for each in SENTENCE_END.finditer(text)] == [each.end() for each in ends]


def test_words_stay_apart_and_long_words_together():
    text = "word " * 50 + "x" * 300 + " end"
    parts = parts_within(text, encode(text), 40, encode)
    assert rejoined(parts).split() == text.split()


def test_a_space_before_a_character_in_several_parts_is_kept():
    parts = parts_within("a 😀", encode("a 😀"), 3, encode)
    assert [(len(part.tokens), part.separator) for part in parts] == [(1, ""), (3, " "), (1, "")]


@pytest.mark.parametrize("unit", ["x", "!", "。", '!"', "!'''"])
def test_a_long_text_is_cut_in_reasonable_time(unit):
    text = unit * (1_000_000 // len(unit))
    assert rejoined(parts_within(text, encode(text), 1000, encode)) == text


FOUR = "One dog runs. Two dogs run! Do three run? Four dogs run."


@pytest.mark.parametrize(
    ("source", "translation", "lacks"),
    [
        (FOUR, "Ein Hund rennt.", True),
        (FOUR, "", True),
        (FOUR, "Ein Hund rennt. Zwei Hunde rennen.", False),
        (FOUR, "一只狗在跑。两只狗在跑！三只在跑吗？四只狗在跑。", False),
        (FOUR, "一只狗在跑。", True),
        (FOUR, "एक कुत्ता दौड़ता है। दो कुत्ते दौड़ते हैं। तीन? चार।", False),
        (FOUR, "สุนัขตัวหนึ่งวิ่ง สองตัววิ่ง สามตัววิ่งไหม", False),  # Thai does not mark the end
        ("一只狗在跑。两只狗在跑！三只在跑吗？四只狗在跑。", "One dog runs.", True),
        ("एक दौड़ता है। दो दौड़ते हैं। तीन दौड़ते हैं? चार हैं।", "One. Two. Three? Four.", False),
        ("One dog runs. Two dogs run! Do three run?", "Ein Hund.", False),
        ("One dog, which is old, runs over the grass to another dog", "Ein Hund.", False),
        ("", "", False),
    ],
)
def test_most_sentences_are_lacking(source, translation, lacks):
    assert lacks_sentences(source, translation) == lacks
