"""What check finds by variants of a text, and by single words."""

import re
import shutil
import unicodedata
from pathlib import Path

import pytest

from nmt_cli.commands import lexicon
from nmt_cli.commands.check import LIMITS
from nmt_cli.commands.model_checks.shares import row_of
from nmt_cli.commands.model_checks.texts import Case
from nmt_cli.commands.model_checks.variants import VARIANTS, invariance, variants_of
from nmt_cli.commands.model_checks.words import frequent_words, single_words
from nmt_cli.saved.model_directory import find_model

FORMATS = Path(__file__).parents[1] / "formats"
CASES = [
    Case(
        f'The café with number {n} in the old street is "open" today.',
        None,
        ("en", "de"),
        f"t:{n}",
    )
    for n in range(1, 31)
]
NO_LIMITS = LIMITS["single_words"]
WRONG = "Xyz."
# Whether a text is a variant of its kind, found by other means than how it is made.
SHOWS: dict[str, re.Pattern[str]] = {
    "upper_case": re.compile("THE CAFÉ WITH NUMBER"),
    "title_case": re.compile('In The Old Street Is "open"'),
    "no_end_punctuation": re.compile('is "open" today$'),
    "doubled_blanks": re.compile("with  number"),
    "typographic_quotes": re.compile("is “open” today"),
    "decomposed_letters": re.compile("cafe\u0301"),
    "joined_sentences": re.compile(r"today\. The"),
}


def robust(source):
    """Return a translation that depends on nothing but the numbers, in the form of the source."""
    found = re.findall(r"\d+", source)
    text = " ".join(f'Das Café mit der Nummer {n} in der alten Straße ist "offen".' for n in found)
    return text.upper() if source.isupper() else text


def rows(model, **limits):
    checks = list(invariance(CASES, {**LIMITS["invariance"], "min_chrf": 50, **limits}))
    cases = [*CASES, *(case for check in checks for case in check.cases)]
    translations = {case.text: model(case.source) for case in cases}
    return {each.name: row_of(each, [translations], may_be_worse=False) for each in checks}


def test_every_variant_has_a_witness():
    assert {*SHOWS, "typing_errors"} == {*VARIANTS}


def test_a_model_that_does_not_mind_passes():
    found = rows(robust, **dict.fromkeys(VARIANTS, 0), min_chrf=99)
    assert {name: (row.lines, row.value, row.problems) for name, row in found.items()} == {
        **dict.fromkeys(VARIANTS, (30, 0, [])),
        "joined_sentences": (15, 0, []),
    }


@pytest.mark.parametrize("name", SHOWS)
def test_a_model_that_minds_one_variant_fails_there_alone(name):
    found = rows(
        lambda source: WRONG if SHOWS[name].search(source) else robust(source), **{name: 0.5}
    )
    assert [each for each, row in found.items() if row.value] == [name]
    assert found[name].value == 100
    assert [row.name for row in found.values() if row.problems] == [name]
    example = found[name].examples[0]
    assert SHOWS[name].search(example["source"])
    assert example["translation"] == WRONG
    assert f"Nummer {example['line'].removeprefix('t:')} " in example["of the unchanged"]


def test_typing_errors_are_found_and_the_same_each_time():
    variant = VARIANTS["typing_errors"]
    sources = [each.source for each in variants_of(CASES, variant)]
    assert sources == [each.source for each in variants_of(CASES, variant)]
    for case, source in zip(CASES, sources, strict=True):
        words = zip(case.source.split(), source.split(), strict=True)
        assert 1 <= sum(one != other for one, other in words) <= 5
    texts = {case.source for case in CASES} | {unicodedata.normalize("NFC", s) for s in sources}
    model = rows(lambda source: WRONG if source in sources else robust(source))
    assert model["typing_errors"].value == 100
    assert len(texts) == 60


def test_the_worst_drop_comes_first_and_the_limit_of_chrf_counts():
    def model(source):
        if source.isupper():
            return WRONG if "NUMBER 9 " in source else robust(source)[:50]
        return robust(source)

    assert rows(model)["upper_case"].value == pytest.approx(100 / 30)
    found = rows(model, min_chrf=95)["upper_case"]
    assert found.value == 100
    assert found.examples[0]["line"] == "t:9"
    scores = [float(each["chrF2"]) for each in found.examples]
    assert scores == sorted(scores)


def test_variants_of_long_sets_are_taken_from_all_of_it():
    many = [CASES[0]._replace(place=str(n)) for n in range(1000)]
    chosen = [each.place for each in variants_of(many, VARIANTS["upper_case"])]
    assert chosen == [str(n) for n in range(0, 1000, 10)]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A real model, with a lexicon."""
    path = tmp_path_factory.mktemp("words") / "model"
    shutil.copytree(FORMATS / "format_2/sentencepiece/run/average", path)
    texts = (FORMATS / f"text/train.{language}" for language in ("en", "de"))
    lexicon.run(path, *texts, num_frequent=2, num_targets=4)
    return find_model(path)


def test_words_are_the_most_frequent_ones_in_their_most_frequent_forms():
    sources = ["The dog, the cat and the dog's 2 a.m. walk in Ulm_x.", "Ulm: a dog in the sun"]
    cases = [Case(source, "<2de>", ("en", "de")) for source in sources]
    words = frequent_words(cases)
    assert {word.source for word in words[:2]} == {"the", "dog"}
    assert words[2].source == "in"
    assert {word.source for word in words[3:]} == {"cat", "and", "walk", "Ulm", "sun"}
    assert {word.tag for word in words} == {"<2de>"}
    many = [Case(f"{chr(97 + n % 26)}{chr(97 + n // 26)}", None, ("en", "de")) for n in range(300)]
    assert len(frequent_words(many)) == 200


def test_single_words_that_grow_or_are_guessed_are_found(model):
    words = [Case(word, None, ("en", "de")) for word in ("eel", "mole", "lark", "jay", "ibis")]
    pieces = [
        [
            piece
            for each in model.tokenizer.encode(word.source)
            for piece in model.lexicon.targets_of(each)
        ]
        for word in words
    ]
    known = [model.tokenizer.decode([int(piece) for piece in each]) for each in pieces]

    def values(translations, limits=NO_LIMITS):
        texts = dict(zip((word.text for word in words), translations, strict=True))
        checks = single_words(words, model, limits)
        found = [row_of(check, [texts], may_be_worse=False) for check in checks]
        return [(row.name, row.value) for row in found], [row.problems for row in found]

    first = [" ".join(each.split()[:2]) for each in known]
    assert values(first)[0] == [("long", 0), ("not_in_lexicon", 0)]
    long = [f"{each} a b c" for each in first]
    assert values(long)[0][0] == ("long", 100)
    other = {**NO_LIMITS, "not_in_lexicon": 0.1}
    figures, problems = values(["☃"] * len(words), other)
    assert figures == [("long", 0), ("not_in_lexicon", 100)]
    assert len(problems[1]) == 1


def test_without_a_lexicon_only_the_length_counts():
    model = find_model(FORMATS / "format_2/whitespace/run/average")
    words = [Case("eel", None, ("en", "de"))]
    checks = single_words(words, model, NO_LIMITS)
    rows = [row_of(each, [{words[0].text: "a b c d"}], may_be_worse=False) for each in checks]
    assert [(row.name, row.lines, row.value) for row in rows] == [("long", 1, 100)]
    assert set(NO_LIMITS) == {"long", "not_in_lexicon"}
