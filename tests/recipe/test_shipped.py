"""Names of shipped recipes, also of those in a folder, and the folders that names decide."""

from pathlib import Path

import pytest

from nmt_cli.recipe.reading.reader import read_recipe
from nmt_cli.recipe.reading.shipped import (
    is_near_shipped,
    shipped_file,
    shipped_name,
    shipped_recipes,
)
from tests.recipe.conftest import problems_of


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_recipe_in_a_folder_has_the_folder_in_its_name(write):
    file = read_recipe("table3/c-2-layers")
    assert (file.name, file.prepared) == ("table3/c-2-layers", Path("prepared/base"))
    assert read_recipe(str(file.path)).name == file.name
    own = read_recipe("table3/c-2-layers", ["data.max_length=99"])
    assert own.prepared == Path("prepared/table3/c-2-layers")
    child = read_recipe(write("extends: table3/c-2-layers\nmodel: {dropout: 0.2}\n"))
    assert child.recipe.model.num_layers == 2
    assert (child.name, child.prepared) == ("r", Path("prepared/base"))


def test_every_name_finds_its_file_and_every_file_its_name():
    for name in shipped_recipes():
        path = shipped_file(name)
        assert path is not None
        assert path.read_text(encoding="utf-8")
        assert shipped_name(path) == name
    assert shipped_file("table3") is None
    assert shipped_file("table3/../base") is None


def test_a_file_beside_the_shipped_ones_is_not_shipped(write):
    write("extends: base\n", "base.yaml")
    assert read_recipe("base.yaml").path == Path("base.yaml")
    assert shipped_name(Path("base.yaml")) is None
    shipped = shipped_file("base")
    assert shipped is not None
    assert shipped_name(shipped.with_suffix(".md")) is None


def test_a_link_to_a_shipped_recipe_keeps_its_own_name(folder):
    Path("mine.yaml").symlink_to(shipped_file("table3/c-2-layers") or "")
    assert read_recipe("mine.yaml").name == "mine"


def test_a_folder_of_the_user_may_have_the_name_of_a_shipped_one(folder, write):
    (folder / "table3").mkdir()
    write("extends: base\nmodel: {num_layers: 3}\n", "table3/mine.yaml")
    write("extends: base\nmodel: {num_layers: 3}\n", "table3/plain")
    assert read_recipe("table3/mine.yaml").name == "mine"
    assert read_recipe("table3/plain").recipe.model.num_layers == 3
    assert problems_of("table3/mine") == [
        "'table3/mine' is not a shipped recipe; for the file of this name write table3/mine.yaml."
    ]


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("table3/a-1-hed", "table3/a-1-head"),
        ("a-1-head", "table3/a-1-head"),
        ("Base", "base"),
        ("base-en-rf", "base-en-fr"),
    ],
)
def test_a_name_that_is_nearly_right_gets_the_right_one(written, meant):
    (problem,) = problems_of(written)
    assert problem.endswith(f"; did you mean {meant}?")


@pytest.mark.parametrize("written", ["table3", "table3/"])
def test_a_folder_is_no_recipe(written):
    assert problems_of(written) == [
        f"{written if written == 'table3' else repr(written)} is a folder of shipped recipes; "
        "name one of them: table3/a-1-head, table3/a-16-heads, table3/a-32-heads, ..."
    ]


def test_a_path_is_only_near_a_shipped_recipe_in_its_folder():
    assert is_near_shipped("table3/x")
    assert not is_near_shipped("runs/x")
    assert not is_near_shipped("table3")
    assert problems_of("runs/x") == [
        f"runs/x does not exist; the path is relative to {Path.cwd()}."
    ]
