"""The shipped recipes: each one loads, and the paper's numbers stand in the paper's recipes."""

from pathlib import Path

import pytest

from nmt_cli.recipe.changes import changed_keys
from nmt_cli.recipe.reader import dump_recipe, read_recipe, shipped_recipes

FOLDER = Path(__file__).parent.parent / "recipes"
FILES = sorted(FOLDER.rglob("*.yaml"))


def test_the_shipped_recipes_are_those_of_the_folder():
    assert shipped_recipes() == sorted(path.stem for path in FILES)
    assert {"quickstart", "base", "big", "parsing", "multi30k-en-de"} <= set(shipped_recipes())


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_recipe_loads_and_has_a_description(path, tmp_path):
    recipe = read_recipe(str(path)).recipe
    assert recipe == read_recipe(path.stem).recipe
    assert "\n" not in recipe.description
    assert recipe.data.test is not None
    resolved = tmp_path / "resolved.yaml"
    resolved.write_text(dump_recipe(recipe), encoding="utf-8")
    assert read_recipe(str(resolved)).recipe == recipe


def test_base_has_the_papers_numbers():
    recipe = read_recipe("base").recipe
    assert recipe.tokenizer.vocabulary_size == 37_000
    model, training, decoding = recipe.model, recipe.training, recipe.decoding
    assert (model.num_layers, model.d_model, model.d_ff, model.num_heads) == (6, 512, 2048, 8)
    assert (model.dropout, model.attention_dropout, model.relu_dropout) == (0.1, 0, 0)
    assert (model.positions, model.norm, model.tied_embeddings) == ("sinusoidal", "post", "all")
    assert (training.tokens_per_step, training.max_steps) == (25_000, 100_000)
    assert (training.warmup_steps, training.learning_rate_factor) == (4000, 1)
    assert training.peak_learning_rate is None
    assert (training.adam_betas, training.adam_epsilon) == ((0.9, 0.98), 1e-9)
    assert (training.label_smoothing, training.clip_norm) == (0.1, None)
    assert (recipe.checkpoints.every_steps, recipe.checkpoints.keep_for_average) == (1500, 5)
    assert (decoding.beam_size, decoding.length_penalty, decoding.max_extra_length) == (4, 0.6, 50)


def test_big_differs_from_base_only_in_what_the_paper_names():
    base, big = read_recipe("base"), read_recipe("big")
    assert {change.key: change.new for change in changed_keys(base.recipe, big.recipe)} == {
        "description": big.recipe.description,
        "model.d_model": 1024,
        "model.d_ff": 4096,
        "model.num_heads": 16,
        "model.dropout": 0.3,
        "training.max_steps": 300_000,
        "validation.every_steps": 600,
        "checkpoints.every_steps": 600,
        "checkpoints.keep_for_average": 20,
    }
    assert big.prepared == base.prepared == Path("prepared/base")


@pytest.mark.parametrize(("name", "millions"), [("base", 65), ("big", 213)])
def test_parameters_agree_with_table_3(name, millions):
    recipe = read_recipe(name).recipe
    model, vocabulary = recipe.model, recipe.tokenizer.vocabulary_size
    attention = 4 * model.d_model**2
    feed_forward = 2 * model.d_model * model.d_ff
    assert vocabulary is not None
    weights = vocabulary * model.d_model + model.num_layers * (3 * attention + 2 * feed_forward)
    assert weights == pytest.approx(millions * 1e6, rel=0.05)


def test_parsing_has_the_papers_numbers_and_a_piece_for_each_bracket_and_tag():
    recipe = read_recipe("parsing").recipe
    model, decoding, base = recipe.model, recipe.decoding, read_recipe("base").recipe
    assert recipe.tokenizer.vocabulary_size == 16_000
    assert (model.num_layers, model.d_model, model.d_ff, model.num_heads) == (4, 1024, 4096, 16)
    assert (decoding.beam_size, decoding.length_penalty) == (21, 0.3)
    assert decoding.max_extra_length == 300
    assert recipe.training == base.training
    assert model.dropout == base.model.dropout
    symbols = recipe.tokenizer.user_defined_symbols
    opening = {symbol[1:] for symbol in symbols if symbol[0] == "("}
    assert opening == {symbol[1:] for symbol in symbols if symbol[0] == ")"}
    assert {"S", "NP", "VP", "PP", "SBAR", "WHNP", "X"} <= opening
    tags = {symbol[1:-1] for symbol in symbols if symbol[0] == "<"}
    assert len(tags) == 45  # the Penn Treebank's 36 word tags and 9 of punctuation
    assert len(symbols) == 2 * len(opening) + len(tags)


def test_no_recipe_names_a_file_outside_the_folder_one_is_in():
    for name in shipped_recipes():
        data = read_recipe(name).recipe.data
        files = [*data.train, data.validation, *([data.test] if data.test else [])]
        for pair in files:
            assert pair.source.parts[0] == pair.target.parts[0] == "data"
            assert ".." not in pair.source.parts + pair.target.parts
