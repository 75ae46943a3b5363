"""How long outputs may be, and outputs that are restricted to trees: a real model that parses."""

from functools import cache
from pathlib import Path

import pytest
import torch

from nmt_cli.commands import preprocess, translate
from nmt_cli.corpus.prepared import open_prepared
from nmt_cli.messages import logs
from nmt_cli.messages.errors import UserError
from nmt_cli.model.transformer import Transformer
from nmt_cli.parsing.linearization import Tag
from nmt_cli.parsing.tree import Close, Open, read_trees, words_of
from nmt_cli.recipe.model_settings import settings_of
from nmt_cli.recipe.reading.reader import read_recipe
from nmt_cli.saved.model_directory import load_model
from nmt_cli.search.rules.tree_pieces import TreePieces
from nmt_cli.search.rules.well_formed_trees import WellFormedTrees
from nmt_cli.translating.encoding.output_limits import OutputLimits
from nmt_cli.translating.translator import Translator
from tests.fake_models import ByteTokenizer, tiny_recipe, translator_of
from tests.tiny_treebank import write_treebank

FORMATS = Path(__file__).parents[1] / "formats"
PARSER = FORMATS / "format_3" / "treebank" / "run" / "average"
LINES = [
    "The old man reads a book .",
    '( Hello ) , " world " !',
    "",
    "rain",
    ",",
    "one , two , three ; four - five ( six ) % !",
    "word " * 9,
    "\u200b \ufeff x\u00a0y \U0001f600",
]
RULE = WellFormedTrees(TreePieces({3: Open("S"), 4: Tag("t"), 5: Close("S")}), 6, 2, {"t"})
NAME = WellFormedTrees.name


def limits_of(extra_length, longest, **others):
    return OutputLimits(extra_length, longest, n_best=1, beam_size=4, longest_prefix=9, **others)


@cache
def loaded():
    return load_model(PARSER)


def untrained(seed=1, **architecture):
    """Return the settings and the tokenizer of the parser, and random weights."""
    settings, tokenizer, *_ = loaded()
    settings = settings._replace(architecture=settings.architecture.changed(**architecture))
    torch.manual_seed(seed)
    return settings, tokenizer, Transformer(settings.architecture, tokenizer.size)


def untrained_and_brief():
    """Return an untrained model whose outputs, which do not end by themselves, are cut early."""
    settings, *rest = untrained()
    decoding = settings.decoding.changed(max_extra_length=10)
    return settings._replace(decoding=decoding), *rest


def parsed(translator, lines):
    """Return the parses, of which each is a tree of the line's words."""
    parses = list(translator.translate(lines))
    for line, parse in zip(lines, parses, strict=True):
        for text in [parse.text, *(other.text for other in parse.alternatives)]:
            trees = list(read_trees([text], "parse"))
            assert [tree.words for tree in trees] == ([words_of(line)] if line else [])
    return parses


def num_repairs(parses):
    return [
        candidate.repairs.total()
        for parse in parses
        for candidate in (parse, *parse.alternatives)
        if candidate.repairs is not None
    ]


@pytest.mark.parametrize("beam_size", [1, 4])
@pytest.mark.parametrize("model", [lambda: loaded()[:3], untrained_and_brief])
def test_trees_need_no_repair_and_are_the_same_alone(model, beam_size):
    options = {"beam_size": beam_size, "n_best": beam_size, "precision": "fp32"}
    free = parsed(Translator(*model(), **options), LINES)
    assert sum(num_repairs(free)) > 0
    bound = Translator(*model(), **options, well_formed_trees=True)
    parses = parsed(bound, LINES)
    assert num_repairs(parses) == [0] * beam_size * (len(LINES) - 1)
    for line, parse in zip(LINES, parses, strict=True):
        (alone,) = bound.translate([line])
        assert alone.text == parse.text
    few = Translator(*model(), **options, well_formed_trees=True, max_tokens_per_device=150)
    assert [parse.text for parse in few.translate(LINES)] == [parse.text for parse in parses]


@pytest.mark.parametrize(
    ("notation", "tokenizer"),
    [
        ("angles", "{vocabulary_size: 300}"),
        ("angles, closing: plain", "{vocabulary_size: 300}"),
        ("slashes", "{vocabulary_size: 300}"),
        ("brackets", "{vocabulary_size: 300}"),
        ("brackets, tags: XX, closing: plain", "{vocabulary_size: 300}"),
        ("angles, words: kept", "{vocabulary_size: 300}"),
        ("brackets, words: kept", "{vocabulary_size: 300}"),
        ("slashes, tags: XX, words: kept", "{type: whitespace, vocabulary_size: null}"),
        ("angles", "{type: whitespace, vocabulary_size: null}"),
    ],
)
def test_every_notation_of_prepared_treebanks_can_be_restricted(
    notation, tokenizer, tmp_path, monkeypatch
):
    write_treebank(tmp_path)
    monkeypatch.chdir(tmp_path)
    overrides = [f"data.treebank={{notation: {notation}}}", f"tokenizer={tokenizer}"]
    preprocess.run(recipe="tiny.yaml", overrides=overrides, workers=1)
    recipe = read_recipe("tiny.yaml", overrides).recipe
    corpus = open_prepared(Path("prepared/tiny"), recipe, "preprocess")
    settings = settings_of(recipe, corpus.tokenizer.size, corpus.labels)
    model = Transformer(settings.architecture, corpus.tokenizer.size)
    translator = Translator(settings, corpus.tokenizer, model, well_formed_trees=True)
    lines = ["the dog sees a cat .", "rain", ". .", "\u00bd <NN> NN (NP S XX \u2581 \ufb01n"]
    assert num_repairs(parsed(translator, lines)) == [0, 0, 0, 0]


def test_the_recipe_can_restrict_the_search_and_the_option_decides():
    settings, *rest = untrained()
    decoding = settings.decoding.changed(well_formed_trees=True)
    settings = settings._replace(decoding=decoding)
    assert sum(num_repairs(parsed(Translator(settings, *rest), LINES))) == 0
    free = Translator(settings, *rest, well_formed_trees=False)
    assert sum(num_repairs(parsed(free, LINES))) > 0


def test_the_shortest_outputs_are_flat_trees_also_if_the_recipe_allows_less():
    settings, tokenizer, model = untrained()
    decoding = settings.decoding.changed(max_extra_length=0)
    settings = settings._replace(decoding=decoding)
    translator = Translator(settings, tokenizer, model, well_formed_trees=True)
    assert num_repairs(parsed(translator, ["a b c", "a"])) == [0, 0]


@pytest.mark.parametrize("too_long", ["split", "truncate"])
def test_lines_too_long_for_the_model_are_repaired_and_positions_are_not_exceeded(too_long):
    settings, tokenizer, model = untrained(positions="learned", max_positions=8)
    translator = Translator(
        settings, tokenizer, model, too_long=too_long, well_formed_trees=True, precision="fp32"
    )
    lines = ["the cat " * 6, "the " * 5, "the " * 4]  # at most 7 pieces; 5 leaves need 8
    parses = parsed(translator, lines)
    assert num_repairs(parses)[2] == 0
    assert all(len(parse.tokens) <= 7 for parse in parses[1:])


@pytest.mark.parametrize("too_long", ["split", "truncate"])
def test_the_outputs_for_lines_too_long_for_the_model_are_not_restricted(too_long):
    settings, tokenizer, model = untrained()
    translator = Translator(
        settings._replace(max_length=4), tokenizer, model, too_long=too_long, well_formed_trees=True
    )
    whole, too_many = parsed(translator, ["the " * 4, "the " * 6])
    assert num_repairs([whole]) == [0]
    assert too_many.repairs.no_symbols > 0


def test_only_words_that_fit_restrict_the_output():
    limits = limits_of(3, None, trees=RULE)
    assert limits.of_source(3, ()) == (6, {})
    assert limits.of_source(3, ["a"] * 7) == (6, {})
    for num_words, longest in [(1, 6), (4, 6), (5, 7), (6, 8)]:
        longest_output, rule_data = limits.of_source(3, ["a"] * num_words)
        assert (longest_output, len(rule_data[NAME].kinds)) == (longest, num_words)
    capped = limits_of(3, 6, trees=RULE)
    assert NAME in capped.of_source(3, ["a"] * 4)[1]
    assert capped.of_source(3, ["a"] * 5) == (6, {})


def test_without_the_rule_nothing_is_restricted():
    limits = limits_of(3, 5)
    assert limits.of_source(2, ["a", "b", "c", "d"]) == (5, {})
    assert limits.of_source(1, ["a"]) == (4, {})


def test_a_model_that_does_not_parse_is_refused():
    recipe = tiny_recipe()
    model = Transformer(recipe.model, ByteTokenizer.size)
    with pytest.raises(UserError, match=r"does not parse, so .* omit --well-formed-trees"):
        translator_of(recipe, ByteTokenizer(), model, well_formed_trees=True)


def test_the_command_counts_no_repairs(tmp_path, capsys):
    logs.configure(quiet=False)
    text, trees = tmp_path / "text", tmp_path / "trees"
    text.write_text("\n".join(LINES) + "\n")
    options = {"input_path": text, "output_path": trees, "device": "cpu"}
    assert translate.run(PARSER, **options, well_formed_trees=True) == 0
    assert "Repaired 0 of 7 trees." in capsys.readouterr().err
    assert trees.read_text().count("(TOP (S ") == 7
