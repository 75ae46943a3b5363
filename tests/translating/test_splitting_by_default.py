"""Models of single sentences get the sentences of a line one by one, unless they are told not to.

What is translated is its own copy, so the sentences that the model gets are counted.
"""

import sys

import pytest

from nmt_cli.corpus.text.sentences import has_several
from nmt_cli.messages.errors import UserError
from nmt_cli.recipe.model_settings import MANY_SINGLE, least_share, settings_of
from nmt_cli.translating.interface.options import Constraints
from nmt_cli.translating.interface.request import Request
from nmt_cli.translating.translator import Translator
from tests import fake_models
from tests.fake_models import ByteTokenizer, tiny_recipe

TEXT = {"type": "sentencepiece", "vocabulary_size": 300}
TWO = "Two dogs run. A man sits."
SEVERAL = [
    ("en", TWO, 2),
    ("en", "Stop! Who is it? It is me.", 3),
    ("en", 'He says "No." Then he goes.', 2),
    ("de", "Er isst mit ihm. Sie geht.", 2),
    ("de", "Das war 1984. Sie lacht.", 2),
    ("fr", "Il dort ! Elle part.", 2),
    ("ja", "犬が走る。男が座る。", 2),
    ("zh", "两只狗在跑。一个人坐着！谁？", 3),
    ("ar", "الكلب يجري. من هناك؟ الرجل يجلس.", 3),
    ("hi", "कुत्ता दौड़ता है। आदमी बैठा है।", 2),
    ("en", "A dog.\nA cat.", 2),
    ("en", "two dogs run . a man sits .", 2),
]
SINGLE = [
    ("en", "Two dogs run."),
    ("en", "  Two dogs run, and Mr. Smith (who is 3.5 m tall) sits.  "),
    ("en", "two dogs"),
    ("en", "Wait... and see."),
    ("en", "It costs approx. three euros."),
    ("en", "she says: we go . &quot;"),
    ("en", "He leaves. – –"),
    ("de", "Am 7. Mai kommt Hr. Braun."),
    ("de", "Im 12. Stock sitzt z. B. Anna."),
    ("fr", "Je pense que M. Noir et J. R. dorment."),
    ("fr", "Le Dr. Blanc lit."),
    ("ja", "犬が走る。"),
    ("zh", "两只狗在跑。"),
    ("th", "สุนัขวิ่ง ผู้ชายนั่ง"),
    ("ar", "الكلب يجري."),
]


@pytest.fixture
def copying(monkeypatch):
    """Return a function that makes a translator, and the model that copies its sentences."""

    def make(share=1.0, language="en", *, recipe=None, **options):
        monkeypatch.setattr(
            fake_models,
            "settings_of",
            lambda recipe, size: settings_of(recipe, size, single_sentences=share),
        )
        languages = {"source_language": language, "target_language": language}
        recipe = recipe or tiny_recipe(data=languages, tokenizer=TEXT)
        return fake_models.copying(monkeypatch, recipe=recipe, **options)

    return make


def translated(translator_and_model, *lines):
    """Return the number of sentences that the model got of each line, and their translations."""
    translator, model = translator_and_model
    numbers, found = [], []
    for line in lines:
        before = model.num_sentences
        found += translator.translate([line])
        numbers.append(model.num_sentences - before)
    return numbers, found


@pytest.mark.parametrize(("language", "line", "number"), SEVERAL)
def test_a_line_of_several_sentences_is_cut(copying, language, line, number):
    numbers, (found,) = translated(copying(language=language), line)
    assert (numbers, found.text, found.error) == ([number], line, None)
    assert found.splits_by_default
    assert has_several(line, language)


@pytest.mark.parametrize(("language", "line"), SINGLE)
def test_a_line_of_one_is_what_it_was_and_needs_no_rules_of_languages(
    copying, language, line, monkeypatch
):
    if "." not in line.strip()[:-1]:  # nothing within it may end a sentence
        monkeypatch.setitem(sys.modules, "sentencex", None)  # importing it fails
    numbers, found = translated(copying(language=language), line)
    assert (numbers, found) == translated(copying(None, language=language), line)
    assert numbers == [1]
    assert not found[0].splits_by_default
    assert not has_several(line, language)


@pytest.mark.parametrize("share", [None, 0.0, MANY_SINGLE - 0.001])
def test_other_models_get_the_whole_line(copying, share):
    numbers, (found,) = translated(copying(share), TWO)
    assert numbers == [1]
    assert not found.splits_by_default


def test_text_in_pieces_stays_whole(copying):
    recipe = tiny_recipe(tokenizer={"type": "whitespace"})
    assert translated(copying(recipe=recipe), "a n@@ .@@ Y@@ . store")[0] == [1]
    assert translated(copying(recipe=recipe), TWO)[0] == [1]


def test_an_unknown_language_has_no_rules(copying):
    numbers, (found,) = translated(copying(language="und"), TWO)
    assert (numbers, found.error) == ([1], None)
    assert translated(copying(language="und", source_language="en"), TWO)[0] == [2]
    with pytest.raises(UserError, match=r"--split-sentences: the rules .* depend on the language"):
        copying(language="und", split_sentences=True)


def test_what_is_asked_for_decides(copying):
    lines = TWO, Request(TWO, split=False), Request(TWO, split=True)
    for options, expected in (
        ({}, [2, 1, 2]),
        ({"split_sentences": False}, [1, 1, 2]),
        ({"split_sentences": True}, [2, 1, 2]),
    ):
        numbers, found = translated(copying(**options), *lines)
        assert numbers == expected
        assert [each.splits_by_default for each in found] == [not options, False, False]
    # What is asked for has all cuts of the rules, also those that may be wrong.
    line = "Je pense que M. Noir dort."
    assert translated(copying(language="fr", split_sentences=True), line)[0] == [2]


@pytest.mark.parametrize(
    "constraints",
    [
        {"prefix": "Two"},
        {"required": ["dogs"]},
        {"min_length": 2},
        {"max_length": 100},
    ],
)
def test_what_is_wanted_of_the_whole_line_keeps_it_whole(copying, constraints):
    numbers, (found,) = translated(copying(constraints=Constraints(**constraints)), TWO)
    assert (numbers, found.error, found.splits_by_default) == ([1], None, False)


def test_a_line_with_a_tag_in_its_text_keeps_it_for_all(copying):
    lines = f"<2de> {TWO}", f"2de {TWO}"
    assert translated(copying(), *lines)[0] == [1, 2]
    tagged = {"source": "none.en", "target": "none.de", "tag": "2de"}
    plain = {"source": "none.gl", "target": "none.de"}
    recipe = tiny_recipe(data={"train": [tagged, plain]}, tokenizer=TEXT)
    assert translated(copying(recipe=recipe), *lines)[0] == [1, 1]


def test_protected_text_and_list_marks_stay_whole(copying):
    protecting = Constraints(protect=[r"run\. A"])
    numbers, found = translated(copying(constraints=protecting), f"  {TWO} ")
    assert (numbers, found) == translated(copying(None, constraints=protecting), f"  {TWO} ")
    assert numbers == [1]
    numbers, (found,) = translated(copying(), f"1. {TWO}")
    assert (numbers, found.text, found.splits_by_default) == ([2], f"1. {TWO}", True)
    numbers, (found,) = translated(copying(), "1. Two dogs run.")
    assert (numbers, found.splits_by_default) == ([1], False)


def test_texts_in_markup_are_cut_too(copying):
    line = f"<p>{TWO}</p> <p>A cat.</p>"
    for share, number in ((1.0, 3), (None, 2)):
        numbers, (found,) = translated(copying(share, markup="html"), line)
        assert (numbers, found.text) == ([number], line)
        assert found.splits_by_default == (number == 3)


def test_an_ensemble_is_as_its_least_model(monkeypatch, copying):
    assert least_share(0.9, 1.0) == 0.9
    assert least_share(None, 1.0) is None
    translator, _ = copying()
    recipe = tiny_recipe(tokenizer=TEXT)
    for other, number in ((1.0, 2), (None, 1)):
        of_other = settings_of(recipe, ByteTokenizer.size, single_sentences=other)
        member = type("Member", (), {"settings": of_other, "model": translator._engine.model})()
        settings = settings_of(recipe, ByteTokenizer.size, single_sentences=1.0)
        both = Translator(
            settings,
            ByteTokenizer(),
            translator._engine.model,
            ensemble=[member],
            precision="fp32",
        )
        assert len(list(both._processor.prepare(Request(TWO)).parts)) == number
