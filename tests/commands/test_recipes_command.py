"""The recipes command: what it lists, shows and checks."""

import os

import pytest

from nmt_cli.commands import recipes
from nmt_cli.errors import RecipeError
from nmt_cli.recipe.reader import read_recipe, shipped_recipes

RECIPE = """\
description: a test
data:
  source_language: en
  target_language: de
  train: [{source: train.en, target: train.de}]
  validation: {source: dev.en, target: dev.de}
tokenizer: {vocabulary_size: 500}
"""


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.yaml").write_text(RECIPE)
    for name in ("train.en", "train.de", "dev.en", "dev.de"):
        (tmp_path / name).write_text("a\n")
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


def test_check_says_ok_in_one_line_and_leaves_nothing(capsys, folder):
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
    assert str(caught.value).splitlines() == [
        "mine.yaml: data.train.0.source: train.en does not exist; "
        "paths are seen from the folder you are in",
        "mine.yaml: data.train.0.target: train.de is empty",
        "mine.yaml: data.validation.source: dev.en is a directory; name a file in it",
        "mine.yaml: data.validation.target: dev.de does not exist; "
        "paths are seen from the folder you are in",
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
