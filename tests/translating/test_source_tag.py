"""A tag in front of every source is what the same words in the text are."""

import pytest

from nmt_cli.messages.errors import UserError
from nmt_cli.translating.interface.options import Constraints
from nmt_cli.translating.interface.request import Request
from tests.fake_models import copying, tiny_recipe
from tests.translating.test_translator import texts, untrained

LINES = ["bee cat", "", "dog eel dog eel", "cat"]


def test_a_tag_is_as_if_it_were_in_the_text():
    plain, tagged = untrained(n_best=3), untrained(n_best=3, tag="ant")
    with_tag = list(plain.translate([f"ant {line}" if line else line for line in LINES]))
    found = list(tagged.translate(LINES))
    for one, other in zip(found, with_tag, strict=True):
        assert texts(one.ranked) == texts(other.ranked)
        assert one.score == pytest.approx(other.score, abs=1e-5)
    assert texts(found) != texts(plain.translate(LINES))
    with tagged:
        assert tagged.submit(LINES[0]).result().text == found[0].text


def test_every_part_of_a_long_line_has_the_tag(monkeypatch):
    recipe = tiny_recipe(data={"max_length": 10})
    translator, _ = copying(monkeypatch, recipe=recipe, tag="x")
    (found,) = translator.translate(["one two three four"])
    parts = found.text.split()
    assert found.num_parts > 1
    assert "".join(parts).replace("x", "") == "onetwothreefour"
    assert found.text.count("x") == found.num_parts


def test_the_longest_line_is_one_piece_shorter_with_a_tag():
    longest = untrained()._settings.max_length
    for options, num_words in (({}, longest), ({"tag": "ant"}, longest - 1)):
        translator = untrained(too_long="error", constraints=Constraints(max_length=1), **options)
        fits, is_longer = translator.translate(
            [" ".join(["bee"] * n) for n in (num_words, num_words + 1)]
        )
        assert fits.error is None
        assert is_longer.error is not None


def test_words_of_the_source_are_counted_without_the_tag():
    translator = untrained(tag="ant", alignments=True)
    for line, found in zip(LINES, translator.translate(LINES), strict=True):
        assert all(0 <= source < len(line.split()) for source, _ in found.alignment)
    assert len(next(translator.translate(["cat"])).alignment) > 0


def test_a_line_may_have_a_tag_of_its_own():
    longest = ["bee " * (untrained()._settings.max_length - 1), "bee " * 99]
    requests = [*LINES, *longest]
    for options in ({"alignments": True}, {"too_long": "truncate"}, {"too_long": "error"}):
        expected = list(untrained(tag="ant", **options).translate(requests))
        for of_all in (None, "dog"):
            own = untrained(tag=of_all, **options)
            assert list(own.translate([Request(line, tag="ant") for line in requests])) == expected
    untagged, unknown = own.translate([Request("bee", tag=""), Request("bee", tag="zebra")])
    assert untagged == next(untrained(**options).translate(["bee"]))
    assert unknown.error == "the tag 'zebra' is not one piece in the vocabulary of the source"


@pytest.mark.parametrize("tag", ["zebra", "", " ", "ant bee"])
def test_a_tag_that_the_model_does_not_have_is_refused(tag):
    with pytest.raises(
        UserError, match="is not one piece in the vocabulary of this model's source"
    ):
        untrained(tag=tag)
