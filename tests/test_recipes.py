"""The shipped recipes: each one loads, and the paper's numbers stand in the paper's recipes."""

from pathlib import Path
from typing import NamedTuple

import pytest

from nmt_cli.commands.experiments.comparison_table import row_of
from nmt_cli.costs.parameters import count_parameters
from nmt_cli.recipe.keys import changed_keys
from nmt_cli.recipe.reading.reader import read_recipe
from nmt_cli.recipe.reading.recipe_files import dump_recipe
from nmt_cli.recipe.reading.shipped import shipped_recipes

FOLDER = Path(__file__).parent.parent / "recipes"
FILES = sorted(FOLDER.rglob("*.yaml"))
# The columns of Table 3, with those that a row leaves open filled in from base.
TABLE_3 = """\
                          N  d_model  d_ff  h  d_k  d_v  P_drop  e_ls  PPL   BLEU  params
a-1-head                  6      512  2048   1  512  512     0.1   0.1  5.29  24.9      65
a-4-heads                 6      512  2048   4  128  128     0.1   0.1  5.00  25.5      65
a-16-heads                6      512  2048  16   32   32     0.1   0.1  4.91  25.8      65
a-32-heads                6      512  2048  32   16   16     0.1   0.1  5.01  25.4      65
b-dk-16                   6      512  2048   8   16   64     0.1   0.1  5.16  25.1      58
b-dk-32                   6      512  2048   8   32   64     0.1   0.1  5.01  25.4      60
c-2-layers                2      512  2048   8   64   64     0.1   0.1  6.11  23.7      36
c-4-layers                4      512  2048   8   64   64     0.1   0.1  5.19  25.3      50
c-8-layers                8      512  2048   8   64   64     0.1   0.1  4.88  25.5      80
c-d-model-256             6      256  2048   8   32   32     0.1   0.1  5.75  24.5      28
c-d-model-1024            6     1024  2048   8  128  128     0.1   0.1  4.66  26.0     168
c-d-ff-1024               6      512  1024   8   64   64     0.1   0.1  5.12  25.4      53
c-d-ff-4096               6      512  4096   8   64   64     0.1   0.1  4.75  26.2      90
d-dropout-0.0             6      512  2048   8   64   64     0.0   0.1  5.77  24.6      65
d-dropout-0.2             6      512  2048   8   64   64     0.2   0.1  4.95  25.5      65
d-label-smoothing-0.0     6      512  2048   8   64   64     0.1   0.0  4.67  25.3      65
d-label-smoothing-0.2     6      512  2048   8   64   64     0.1   0.2  5.47  25.7      65
e-learned-positions       6      512  2048   8   64   64     0.1   0.1  4.92  25.7      65
"""


class Row(NamedTuple):
    """A row of Table 3."""

    name: str
    widths: list[int]  # N, d_model, d_ff, h, d_k, d_v
    dropout: float
    label_smoothing: float
    perplexity: str
    bleu: str
    millions: int


def rows_of_table_3():
    for line in TABLE_3.splitlines()[1:]:
        name, *cells = line.split()
        widths, (dropout, smoothing, perplexity, bleu, millions) = cells[:6], cells[6:]
        row = Row(
            f"table3/{name}",
            [int(width) for width in widths],
            float(dropout),
            float(smoothing),
            perplexity,
            bleu,
            int(millions),
        )
        yield pytest.param(row, id=name)


def test_the_shipped_recipes_are_those_of_the_folder():
    names = [path.relative_to(FOLDER).as_posix().removesuffix(".yaml") for path in FILES]
    assert shipped_recipes() == sorted(names)
    assert {"quickstart", "base", "big", "parsing", "multi30k-en-de"} <= set(shipped_recipes())


@pytest.mark.parametrize("name", shipped_recipes())
def test_every_recipe_loads_and_has_a_description(name, tmp_path):
    file = read_recipe(name)
    recipe = file.recipe
    assert file.name == name
    assert read_recipe(str(FOLDER / f"{name}.yaml")).recipe == recipe
    assert "\n" not in recipe.description
    assert recipe.data.test is not None
    resolved = tmp_path / "resolved.yaml"
    resolved.write_text(dump_recipe(recipe), encoding="utf-8")
    assert read_recipe(str(resolved)).recipe == recipe


def test_every_recipe_has_a_description_of_its_own():
    descriptions = [read_recipe(name).recipe.description for name in shipped_recipes()]
    assert len(set(descriptions)) == len(descriptions)


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


def test_english_french_differs_from_english_german_only_in_text_and_dropout():
    for name, dropout in (("base", 0.1), ("big", 0.1)):
        french, german = read_recipe(f"{name}-en-fr"), read_recipe(name)
        of_text = {"description", "model.dropout"}
        changes = {change.key: change.new for change in changed_keys(german.recipe, french.recipe)}
        assert {key for key in changes if not key.startswith(("data.", "tokenizer."))} <= of_text
        assert french.recipe.model.dropout == dropout  # section 6.1
        assert french.recipe.tokenizer.vocabulary_size == 32_000  # section 5.1
        assert french.recipe.tokenizer.algorithm == german.recipe.tokenizer.algorithm
        assert french.prepared == Path("prepared/base-en-fr")
    assert read_recipe("base-en-fr").recipe.data == read_recipe("big-en-fr").recipe.data


@pytest.mark.parametrize(
    ("french", "german"), [("base-en-fr", "base"), ("multi30k-en-fr", "multi30k-en-de")]
)
def test_english_french_text_lies_like_english_german_text(french, german):
    recipe, other = read_recipe(french).recipe, read_recipe(german).recipe
    folder = {"base-en-fr": ("wmt14-en-de", "wmt14-en-fr")}.get(french, ("", ""))
    text, expected = (str(data.model_dump(mode="json")) for data in (recipe.data, other.data))
    assert (recipe.data.source_language, recipe.data.target_language) == ("en", "fr")
    expected = expected.replace(*folder).replace(".de'", ".fr'").replace("'de'", "'fr'")
    assert text == expected


@pytest.mark.parametrize("row", list(rows_of_table_3()))
def test_a_row_of_table_3_is_base_with_the_papers_values(row):
    file, base = read_recipe(row.name), read_recipe("base")
    model, training = file.recipe.model, file.recipe.training
    heads = (model.num_heads, model.encoder_shape.key_width, model.encoder_shape.value_width)
    assert [model.num_layers, model.d_model, model.d_ff, *heads] == row.widths
    assert (model.dropout, training.label_smoothing) == (row.dropout, row.label_smoothing)
    changed = {change.key for change in changed_keys(base.recipe, file.recipe)} - {"description"}
    assert len(changed) == 1
    assert (changed == {"model.positions"}) is (model.positions == "learned")
    assert file.prepared == base.prepared
    assert file.path.read_text(encoding="utf-8").count("\n") <= 8
    vocabulary = file.recipe.tokenizer.vocabulary_size
    assert vocabulary is not None
    counted = count_parameters(model, vocabulary).total
    assert counted == pytest.approx(row.millions * 1e6, rel=0.07)


@pytest.mark.parametrize("row", list(rows_of_table_3()))
def test_a_row_of_table_3_states_what_the_paper_reached(row):
    comment, _, _ = (FOLDER / f"{row.name}.yaml").read_text(encoding="utf-8").partition("extends")
    assert f"perplexity {row.perplexity}, BLEU {row.bleu}" in comment
    assert (f"{row.millions} million parameters" in comment) is (row.millions != 65)
    in_table = f"| `{row.name}` |"
    (line,) = [
        line
        for line in (FOLDER / "README.md").read_text(encoding="utf-8").splitlines()
        if line.startswith(in_table)
    ]
    assert f"| {row.perplexity} | {row.bleu} |" in line


def test_every_row_of_table_3_is_shipped():
    rows = {parameter.values[0].name for parameter in rows_of_table_3()}
    assert rows == {name for name in shipped_recipes() if name.startswith("table3/")}


@pytest.mark.parametrize(("name", "millions"), [("base", 65), ("big", 213)])
def test_parameters_agree_with_table_3(name, millions):
    recipe = read_recipe(name).recipe
    vocabulary = recipe.tokenizer.vocabulary_size
    assert vocabulary is not None
    counted = count_parameters(recipe.model, vocabulary).total
    assert counted == pytest.approx(millions * 1e6, rel=0.05)


def test_parsing_has_the_papers_numbers():
    recipe = read_recipe("parsing").recipe
    model, decoding, base = recipe.model, recipe.decoding, read_recipe("base").recipe
    assert recipe.tokenizer.vocabulary_size == 16_000
    assert (model.num_layers, model.d_model, model.d_ff, model.num_heads) == (4, 1024, 4096, 16)
    assert (decoding.beam_size, decoding.length_penalty) == (21, 0.3)
    assert decoding.max_extra_length == 300
    assert recipe.training == base.training
    assert model.dropout == base.model.dropout


def test_semi_supervised_parsing_differs_in_vocabulary_and_text():
    parsing, semi = read_recipe("parsing"), read_recipe("parsing-semi")
    changes = {change.key: change.new for change in changed_keys(parsing.recipe, semi.recipe)}
    assert changes.pop("tokenizer.vocabulary_size") == 32_000
    assert changes.pop("description") == semi.recipe.description
    assert all(key.startswith("data.train.") for key in changes)
    assert [corpus.weight for corpus in semi.recipe.data.train] == [40, 1]


@pytest.mark.parametrize("name", ["parsing", "parsing-semi", "parsing-small"])
def test_recipes_of_parsers_need_no_list_of_symbols_and_choose_by_f1(name):
    recipe = read_recipe(name).recipe
    assert recipe.data.treebank is not None
    assert recipe.tokenizer.user_defined_symbols == ()
    assert recipe.validation.best_by == "parseval"


def test_no_recipe_names_a_file_outside_the_folder_one_is_in():
    for name in shipped_recipes():
        data = read_recipe(name).recipe.data
        files = [*data.train, *data.validation_sets, *data.test_sets]
        for pair in files:
            for path in pair.paths.values():
                assert path.parts[0] == "data"
                assert ".." not in path.parts


@pytest.mark.parametrize("name", [n for n in shipped_recipes() if n.startswith("table3-small/")])
def test_small_recipes_are_rows_of_table_3_on_the_same_text(name):
    base, file = read_recipe("table3-small/base"), read_recipe(name)
    row = row_of(name)
    assert row is not None
    assert (row == row_of("base")) == (name == "table3-small/base")
    changes = {change.key for change in changed_keys(base.recipe, file.recipe)} - {"description"}
    assert len(changes) == (name != "table3-small/base")
    assert file.prepared == read_recipe("multi30k-en-de").prepared
