"""What is between the sentences of a translation: what its language writes there."""

import re

import pytest

from nmt_cli.translating.interface.options import Constraints
from nmt_cli.translating.interface.request import Request
from nmt_cli.translating.outputs.attended_words import WordLinks, joined_links
from nmt_cli.translating.segmentation.segments import Output, joined_for, sentences
from tests.fake_models import copying, tiny_recipe, untrained

ENGLISH = "The cat sleeps. It rains. We wait."
JAPANESE = "猫が寝ている。雨だ！待とう。"


def copied(monkeypatch, text, source, target, markup=None, **options):
    """Return the translation of a model that copies each sentence."""
    recipe = tiny_recipe(data={"source_language": source, "target_language": target})
    options = {"split_sentences": True, "beam_size": 2, **options}
    translator, _ = copying(monkeypatch, recipe=recipe, **options)
    (found,) = translator.translate([Request(text, markup=markup)])
    assert found.error is None
    return found


@pytest.mark.parametrize("target", ["ja", "zh", "yue", "lzh", "zh-Hant", "zh_CN", "jpn"])
def test_no_blanks_are_between_sentences_of_japanese_and_chinese(monkeypatch, target):
    found = copied(monkeypatch, f" {ENGLISH} ", "en", target)
    assert found.text == " The cat sleeps.It rains.We wait. "


@pytest.mark.parametrize("target", ["de", "th", "lo", "km", "my", "ko", "ja-Latn", "und"])
def test_other_languages_keep_their_blanks(monkeypatch, target):
    assert copied(monkeypatch, ENGLISH, "en", target).text == ENGLISH


@pytest.mark.parametrize("target", ["en", "th"])
def test_a_blank_is_between_sentences_of_a_translation_from_japanese(monkeypatch, target):
    expected = "猫が寝ている。 雨だ！ 待とう。"
    assert copied(monkeypatch, JAPANESE, "ja", target).text == expected
    spaced = JAPANESE.replace("！", "！\u3000")
    assert copied(monkeypatch, spaced, "ja", target).text == expected
    assert copied(monkeypatch, JAPANESE, "ja", "zh").text == JAPANESE


@pytest.mark.parametrize("gap", ["\n", "\n\n", "\t", "  ", "\u00a0"])
def test_other_gaps_stay(gap):
    segments = joined_for(sentences(f"It rains.{gap}We wait. So.", "en"), "en", "ja")
    assert segments.target_gaps == ["", gap, "", ""]


def test_gaps_around_list_marks_stay(monkeypatch):
    found = copied(monkeypatch, "1. The cat sleeps. It rains.", "en", "ja")
    assert found.text == "1. The cat sleeps.It rains."


def test_in_markup_sentences_are_joined_and_tags_stay(monkeypatch):
    text = "<p>The <b>cat</b> sleeps. It <i>rains</i>. &amp; We wait.</p> <p>So. Now.</p>"
    found = copied(monkeypatch, text, "en", "ja", markup="html").text
    assert sorted(re.findall("<[^>]*>", found)) == sorted(re.findall("<[^>]*>", text))
    block, others = found.split("</p>", 1)
    assert re.sub("<[^>]*>", "", block) == "The cat sleeps.It rains.&amp; We wait."
    assert others == " <p>So.Now.</p>"
    back = copied(monkeypatch, f"<p>{JAPANESE}</p>", "ja", "en", markup="xml").text
    assert back == "<p>猫が寝ている。 雨だ！ 待とう。</p>"


@pytest.mark.parametrize(
    ("source", "target", "text", "expected"),
    [
        ("en", "ja", "Ant 1. Bee 2.", ((0, 0), (1, 1), (2, 1), (3, 2))),
        ("ja", "en", "Ant 1。Bee 2。", ((0, 0), (1, 1), (1, 2), (2, 3))),
    ],
)
def test_alignments_count_the_words_of_the_joined_text(source, target, text, expected):
    segments = joined_for(sentences(text, source), source, target)
    separators = zip(segments.separators, segments.target_separators, strict=True)
    links = ((0, 0), (1, 1))
    every = [WordLinks(links, 2, 2, *each) for each in separators]
    assert joined_links(every).links == expected
    translated = segments.filled([Output(each) for each in segments.texts])
    assert len(translated.split()) == expected[-1][1] + 1


def test_a_translator_aligns_the_words_of_the_joined_text():
    recipe = tiny_recipe(data={"source_language": "en", "target_language": "ja"})
    words = ["ant", "bee", "cat.", "Dog", "eel", "fox."]
    options = {"alignments": True, "constraints": Constraints(min_length=4)}
    both = untrained(words, recipe, split_sentences=True, **options)
    (found,) = both.translate(["ant bee cat. Dog eel fox."])
    first, second = untrained(words, recipe, **options).translate(["ant bee cat.", "Dog eel fox."])
    assert found.text == first.text + second.text
    shift = len(first.text.split()) - 1
    shifted = tuple((s + 3, t + shift) for s, t in second.alignment)
    assert found.alignment == first.alignment + shifted
