"""Markup through translators: tags follow attention, the text is that of a line without tags."""

import random
import re
from collections import Counter
from pathlib import Path

import pytest

from nmt_cli.corpus.tokenizers.piece_words import units_of_pieces
from nmt_cli.messages.errors import UserError, WrongUsageError
from nmt_cli.recipe.model_settings import TextSettings
from nmt_cli.recipe.model_values import TextNormalization
from nmt_cli.search.sentences import Attended, Hypothesis, Sampling
from nmt_cli.translating.interface.request import Request
from nmt_cli.translating.outputs.attended_words import unit_spans
from nmt_cli.translating.translator import Translator

FORMATS = Path(__file__).parents[1] / "formats"
MODELS = ["format_2/whitespace", "format_2/sentencepiece", "format_4/imported_separate"]
TAG = re.compile(r"<[^>]*>")


def load(name, **options):
    path = FORMATS / name / "run/average"
    path = path if path.exists() else FORMATS / name
    return Translator.load(path, device="cpu", precision="fp32", **options)


def lines(number, longest=99):
    found = sorted(set((FORMATS / "text/train.en").read_text().splitlines()))
    return [line for line in found if 1 < len(line.split()) <= longest][:number]


def tagged(rng, line):
    """Return ``line`` with inline elements around some of its words."""
    words = line.split(" ")
    for number in range(rng.randrange(1, 4)):
        first = rng.randrange(len(words))
        last = rng.randrange(first, len(words))
        if all(word.count("<") == word.count("</") * 2 for word in words[first : last + 1]):
            words[first] = f"<i n={number}>{words[first]}"
            words[last] = f"{words[last]}</i>"
    return " ".join(words)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize(
    "options",
    [
        {"beam_size": 4, "n_best": 3},
        {"sampling": Sampling(seed=2), "n_best": 2},
        {"beam_size": 1},
    ],
)
def test_the_text_is_that_of_the_line_without_tags(name, options):
    rng = random.Random(5)
    texts = lines(12, longest=12)
    fragments = [tagged(rng, line) for line in texts]
    plain = load(name, **options).translate(texts)
    found = load(name, markup="html", **options).translate(fragments)
    for fragment, one, other in zip(fragments, found, plain, strict=True):
        assert len(one.ranked) == len(other.ranked)
        for rank, expected in zip(one.ranked, other.ranked, strict=True):
            text = TAG.sub("", rank.text)
            assert text.replace("&lt;", "<").replace("&gt;", ">") == expected.text
            assert rank.tokens == expected.tokens
            assert Counter(TAG.findall(rank.text)) == Counter(TAG.findall(fragment))
            assert rank.score == pytest.approx(expected.score)


def test_tags_follow_the_words_of_a_model_that_reverses_them():
    translator = load("format_2/whitespace")
    texts = [line for line in lines(80) if len(set(line.split())) == len(line.split())][:25]
    num_right = num_all = 0
    for line, plain in zip(texts, translator.translate(texts), strict=True):
        words = line.split()
        if plain.text.split() != words[::-1]:
            continue
        place = len(words) // 2
        marked = [*words[:place], f"<b>{words[place]}</b>", *words[place + 1 :]]
        (found,) = translator.translate([Request(" ".join(marked), markup="xml")])
        num_all += 1
        num_right += found.text.split() == marked[::-1]
    assert num_all > 15
    assert num_right / num_all > 0.9


def test_a_line_in_parts_keeps_its_tags():
    words = " ".join(lines(30)).split()
    source = f"{' '.join(words[:80])} <b>{' '.join(words[80:160])}</b>"
    (found,) = load("format_2/whitespace", markup="xml").translate([source])
    (plain,) = load("format_2/whitespace").translate([TAG.sub("", source)])
    assert found.num_parts == plain.num_parts > 1
    assert TAG.sub("", found.text) == plain.text
    assert TAG.findall(found.text) == ["<b>", "</b>"]


def test_each_line_may_be_of_its_own_kind():
    line, other = lines(2)
    source = f"<p>{line}</p><p>{other} <br> {line}</p>"
    requests = [
        Request(line),
        Request(source, markup="html"),
        Request(f"<x>{line}", markup="xml"),
        Request(" <br> ", markup="html"),
        Request(f"{line}. {other}.", split=True),
    ]
    with load("format_2/sentencepiece") as translator:
        plain, page, bad, empty, paragraph = translator.translate(requests)
        (second,) = translator.translate([other])
        assert page.text == f"<p>{plain.text}</p><p>{second.text} <br> {plain.text}</p>"
        assert (bad.text, bad.error and bad.error[:28]) == ("", "it is not XML: mismatched ta")
        assert (empty.text, empty.score, empty.error) == (" <br> ", None, None)
        futures = [translator.submit(request) for request in requests]
        submitted = [future.result() for future in futures]
        assert [each.text for each in submitted] == [
            each.text for each in (plain, page, bad, empty, paragraph)
        ]
    marked = load("format_2/sentencepiece", markup="html")
    found = list(marked.translate([source, Request("a < b", markup="none")]))
    assert found[0].text == page.text
    assert "&lt;" not in found[1].text


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"keep_pieces": True}, "--markup: tags are placed in text, but --keep-pieces asks for"),
        ({"alignments": True}, "--markup: --alignments count the words of a text without tags"),
    ],
)
def test_options_that_markup_cannot_have_are_refused(options, message):
    with pytest.raises(WrongUsageError, match=message):
        load("format_2/sentencepiece", markup="html", **options)
    (found,) = load("format_2/sentencepiece", **options).translate([Request("a", markup="html")])
    assert f"--markup: {found.error}".startswith(message)


def test_models_that_parse_take_no_markup():
    with pytest.raises(UserError, match="--markup: this model parses"):
        load("format_3/treebank", markup="html")


def settings(kind, joiner=None):
    return TextSettings("en", "de", kind, joiner, TextNormalization())


def test_units_are_words_without_punctuation_and_pieces_of_scripts_without_spaces():
    spaced = ["▁Don", "'", "t", "▁stop", ",", "▁Ha", "us", "!", "!", "▁", "x", "<0xC3>", "<0xA9>"]
    found = units_of_pieces(spaced, settings("sentencepiece"))
    assert [number for (number,) in found] == [0, 0, 0, 1, 2, 3, 3, 4, 5, 6, 6, 6, 6]
    found = units_of_pieces(["▁漢字", "は", "▁(", "ab", ")"], settings("sentencepiece"))
    assert [number for (number,) in found] == [0, 1, 2, 3, 4]
    found = units_of_pieces(["a@@", "b", "c", ".@@", "d"], settings("whitespace", "@@"))
    assert [number for (number,) in found] == [0, 0, 1, 2, 3]


def test_spans_are_found_where_normalization_has_changed_the_source():
    source = "ﬁne  caf\u00e9, naïve"  # a ligature and two spaces
    pieces = ["▁fi", "ne", "▁café", ",", "▁nai", "ve"]
    target = ["▁eins", "▁zw", "ei", "."]
    attended = Attended((), (), 0, units=(3, 1, 2), attending=(0, 1, 2, 0))
    hypothesis = Hypothesis((0, 1, 2, 3), 0.0, 0.0, attended=attended)

    def text_of(hypothesis):
        return "".join(target[: len(hypothesis.tokens)]).replace("▁", " ").strip()

    spans = unit_spans(hypothesis, target, pieces, settings("sentencepiece"), source, text_of)
    assert [text_of(hypothesis)[each.begin : each.end] for each in spans] == ["eins", "zwei", "."]
    found = [source[each.source_begin : each.source_end].strip() for each in spans]
    assert found == ["naïve", "café", ","]
