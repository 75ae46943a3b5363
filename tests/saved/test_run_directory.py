"""The name that a run gives its recipe, and finds itself by again."""

from pathlib import Path

import pytest

from nmt_cli.recipe.reading.reader import read_recipe
from nmt_cli.saved.run_directory import describe_session, name_of_run


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("run_dir", "name"),
    [
        ("runs/base", "base"),
        ("runs/table3/c-2-layers", "table3/c-2-layers"),
        ("./runs/d-dropout-0.0", "d-dropout-0.0"),
        ("runs", "runs"),
        ("runs/../elsewhere/one", "one"),
        ("elsewhere/runs/one", "one"),
        ("runs-of-mine/one", "one"),
    ],
)
def test_a_run_has_the_name_whose_folder_it_is_in(run_dir, name, folder):
    assert name_of_run(Path(run_dir)) == name
    assert name_of_run(folder / run_dir) == name


def test_the_recipe_of_a_run_in_a_folder_means_this_run():
    run_dir = Path("runs/table3/c-2-layers")
    run_dir.mkdir(parents=True)
    shipped = read_recipe("table3/c-2-layers")
    describe_session(run_dir, shipped.recipe, {})
    again = read_recipe(str(run_dir / "recipe.yaml"))
    assert (again.name, again.recipe) == (shipped.name, shipped.recipe)
