"""Where a name is missing and a run or a recipe is there, the command with its path is proposed."""

import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

from nmt_cli import cli


@pytest.fixture(autouse=True)
def project(tmp_path, monkeypatch):
    """A folder with a recipe, mine, its run, another recipe, and another run."""
    monkeypatch.chdir(tmp_path)
    for run in ("mine", "alone"):
        Path(f"runs/{run}").mkdir(parents=True)
        Path(f"runs/{run}/recipe.yaml").write_text("description: A run.\n")
        Path(f"runs/{run}/sessions.jsonl").write_text("{}\n")
    for recipe in ("mine", "other"):
        Path(f"{recipe}.yaml").write_text("description: A recipe.\n")


def message_of(command):
    result = CliRunner().invoke(cli.main, shlex.split(command), prog_name="nmt-cli")
    assert result.exit_code == 1
    (message,) = result.stderr.splitlines()
    return message


@pytest.mark.parametrize(
    ("command", "proposed"),
    [
        ("translate mine --beam-size 2", "translate runs/mine --beam-size 2"),
        ("translate ./alone/", "translate runs/alone"),
        ("translate mine.yaml", "translate runs/mine"),
        ("average-checkpoints mine --last 3", "average-checkpoints runs/mine --last 3"),
        ("report alone", "report runs/alone"),
        ("serve alone --port=1", "serve runs/alone --port=1"),
        ("train mine --set 'description=a b'", "train mine.yaml --set 'description=a b'"),
        ("train ./mine", "train mine.yaml"),
        ("train alone --resume", "train runs/alone/recipe.yaml --resume"),
        ("train runs/mine --resume", "train runs/mine/recipe.yaml --resume"),
        ("run other", "run other.yaml"),
        ("preprocess other", "preprocess other.yaml"),
        ("recipes check other", "recipes check other.yaml"),
        ("inspect other", "inspect other.yaml"),
        ("inspect alone", "inspect runs/alone"),
        ("inspect mine", "inspect mine.yaml or nmt-cli inspect runs/mine"),
        ("inspect ./mine", "inspect mine.yaml or nmt-cli inspect runs/mine"),
    ],
)
def test_the_users_command_is_proposed(command, proposed):
    assert message_of(command).endswith(f". Run: nmt-cli {proposed}")


@pytest.mark.parametrize("name", ["other", "other.yaml"])
def test_a_recipe_without_a_run_is_to_be_run(name):
    text = " To make one by the recipe: nmt-cli run other.yaml"
    assert message_of(f"translate {name}").endswith(text)


@pytest.mark.parametrize(
    "command", ["translate nothing", "train nothing", "inspect nothing/at/all"]
)
def test_nothing_is_proposed_where_nothing_is_there(command):
    assert "Run: " not in message_of(command)


def test_of_a_word_that_is_given_twice_only_the_path_is_proposed():
    assert message_of("check mine --against mine").endswith("; give runs/mine.")


def test_the_recipe_of_a_run_means_that_run():
    assert message_of("report runs/mine/recipe.yaml") == (
        "Error: runs/mine/recipe.yaml is a file; give runs/mine."
    )
