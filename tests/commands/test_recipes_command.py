"""The recipes command: what it lists, shows and checks."""

import json
import os

import pytest
from click.testing import CliRunner

from nmt_cli import cli
from nmt_cli.commands import recipes
from nmt_cli.messages.errors import RecipeError
from nmt_cli.recipe.documentation import recipe_schema
from nmt_cli.recipe.reading.reader import read_recipe
from nmt_cli.recipe.reading.shipped import shipped_recipes
from nmt_cli.recipe.sections.data import Filters

RECIPE = """\
description: a test
data:
  source_language: en
  target_language: de
  train: [{source: train.en, target: train.de}]
  validation: {source: dev.en, target: dev.de}
tokenizer: {vocabulary_size: 500}
"""
NOT_READ = "What the texts hold was not checked: add --text.\n"


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.yaml").write_text(RECIPE)
    for name in ("train.en", "train.de", "dev.en", "dev.de"):
        (tmp_path / name).write_text("".join(f"sentence{number}\n" for number in range(20)))
    return tmp_path


def test_list_names_and_describes_every_recipe(capsys):
    recipes.list_recipes()
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == shipped_recipes()
    assert any(
        line.endswith("The base model of the paper, WMT 2014 English-German.") for line in lines
    )


def test_what_show_writes_is_the_same_recipe(capsys, folder):
    recipes.show("big", ["training.seed=7"])
    (folder / "shown.yaml").write_text(capsys.readouterr().out)
    shown = read_recipe("shown.yaml").recipe
    assert shown == read_recipe("big", ["training.seed=7"]).recipe
    assert shown.training.seed == 7


def test_check_prints_ok_in_one_line_and_leaves_nothing(capsys, folder):
    before = sorted(folder.iterdir())
    recipes.check("mine.yaml")
    assert capsys.readouterr().out == "recipe ok\n"
    assert sorted(folder.iterdir()) == before


def test_check_names_every_file_that_cannot_be_read(capsys, folder):
    (folder / "train.en").unlink()
    (folder / "train.de").write_text("")
    (folder / "dev.en").unlink()
    (folder / "dev.en").mkdir()
    (folder / "dev.de").unlink()
    (folder / "dev.de").symlink_to("nowhere")
    with pytest.raises(RecipeError) as caught:
        recipes.check("mine.yaml")
    assert str(caught.value).replace(str(folder), "FOLDER").splitlines() == [
        "mine.yaml: data.train.0.source: train.en does not exist; the path is relative to FOLDER",
        "mine.yaml: data.train.0.target: train.de is empty",
        "mine.yaml: data.validation.source: dev.en is a directory; name a file in it",
        "mine.yaml: data.validation.target: dev.de does not exist; the path is relative to FOLDER",
    ]
    assert capsys.readouterr().out == ""


def test_check_finds_folders_that_cannot_be_written(folder):
    (folder / "runs").write_text("a file")
    with pytest.raises(RecipeError, match=r"train: would write to runs/mine, but .*/runs is not a"):
        recipes.check("mine.yaml")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read and write everything")
def test_check_respects_permissions(folder):
    (folder / "train.en").chmod(0)
    (folder / "prepared").mkdir(mode=0o500)
    with pytest.raises(RecipeError) as caught:
        recipes.check("mine.yaml")
    assert "train.en cannot be read: Permission denied" in str(caught.value)
    assert "preprocess: would write to prepared/mine, but" in str(caught.value)


def test_check_takes_overrides():
    recipes.check("mine.yaml", ["tokenizer.model=dev.en"])
    with pytest.raises(RecipeError, match=r"tokenizer\.model: none\.model does not exist"):
        recipes.check("mine.yaml", ["tokenizer.model=none.model"])
    with pytest.raises(RecipeError, match=r"data\.train\.0\.scores\.file: no\.s does not exist"):
        recipes.check("mine.yaml", ["data.train.0.scores={file: no.s}"])
    symbols = "tokenizer.user_defined_symbols=['<t>', '</t>']"
    with pytest.raises(RecipeError, match=r"0\.augment\.glossary: no\.tsv does not exist"):
        recipes.check("mine.yaml", [symbols, "data.train.0.augment={terms: 0.1, glossary: no.tsv}"])


def test_check_warns_where_too_few_checkpoints_come_for_the_average(capsys):
    result = CliRunner().invoke(cli.main, ["recipes", "check", "mine.yaml"])
    assert (result.exit_code, result.stdout) == (0, "recipe ok\n")
    cost, not_read = result.stderr.splitlines(keepends=True)
    assert cost.startswith("The training has 100,000 steps, 2,500.0 million target tokens; about ")
    assert "on this machine (estimated: products run at" in cost
    assert "To shorten it, lower training.max_steps, extend a smaller recipe" in cost
    assert not_read == NOT_READ
    short = ["recipes", "check", "mine.yaml", "--set=training.max_steps=3000"]
    result = CliRunner().invoke(cli.main, short)
    assert (result.exit_code, result.stdout) == (0, "recipe ok\n")
    assert "mine.yaml: checkpoints.keep_for_average is 5, but training.max_steps 3,000 and" in (
        capsys.readouterr().err + result.stderr
    )


def test_a_shown_recipe_is_the_beginning_of_ones_own(folder):
    for options in ([], ["--comments"]):
        result = CliRunner().invoke(cli.main, ["recipes", "show", "multi30k-en-de", *options])
        (folder / "own.yaml").write_text(result.stdout)
        own, shipped = read_recipe("own.yaml"), read_recipe("multi30k-en-de")
        assert (own.name, str(own.prepared)) == ("own", "prepared/own")
        assert own.recipe == shipped.recipe  # also its paths, seen from the folder one is in


def test_keys_are_listed_for_a_section_or_for_one_key():
    every = CliRunner().invoke(cli.main, ["recipes", "keys"]).stdout
    filters = CliRunner().invoke(cli.main, ["recipes", "keys", "data.filters"]).stdout
    one = CliRunner().invoke(cli.main, ["recipes", "keys", "decoding.length_penalty"]).stdout
    assert filters in every
    assert [line.split(":")[0] for line in filters.splitlines()[::2]] == [
        "data.filters",
        *(f"data.filters.{key}" for key in Filters.model_fields),
    ]
    assert one == (
        "decoding.length_penalty: Alpha of the length penalty ((5 + length) / 6) ^ alpha.\n"
        "    number, at least 0 and at most 10; default 0.6\n"
    )


def test_keys_of_no_section_get_a_proposal():
    result = CliRunner().invoke(cli.main, ["recipes", "keys", "lenpen"])
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == (
        "Error: lenpen is not a section or key of a recipe; did you mean decoding.length_penalty?\n"
    )


def test_the_schema_is_json_on_stdout():
    result = CliRunner().invoke(cli.main, ["recipes", "schema"])
    assert json.loads(result.stdout) == recipe_schema()


def test_check_finds_a_vocabulary_that_the_text_cannot_fill():
    problem = (
        r"^mine\.yaml: tokenizer\.vocabulary_size: is 8,000, but this training text allows at most "
        r"[\d,]+ pieces, and probably fewer; lower it$"
    )
    with pytest.raises(RecipeError, match=problem):
        recipes.check("mine.yaml", ["tokenizer.vocabulary_size=8000"])
    recipes.check("mine.yaml", ["tokenizer.vocabulary_size=8000", "tokenizer.type=whitespace"])


def test_check_finds_unequal_files_where_it_reads_them_to_the_end(folder):
    (folder / "train.en").write_text("one\ntwo\n")
    with pytest.raises(RecipeError, match=r"train\.en has 2 lines but train\.de has 20"):
        recipes.check("mine.yaml", ["tokenizer.vocabulary_size=8000"])
