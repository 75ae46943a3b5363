"""A training that is refused: its message says what to do."""

import shlex

import pytest
from click.testing import CliRunner

from nmt_cli import cli
from nmt_cli.commands import train
from nmt_cli.errors import UserError

OPTIONS = {"device": "cpu", "precision": "fp32", "max_tokens_per_device": 60}


@pytest.fixture
def run(toy, tmp_path):
    """Train the toy into tmp_path/run with the options given."""

    def call(*overrides, **options):
        chosen = {"prepared": toy.prepared, "run_dir": tmp_path / "run", **OPTIONS, **options}
        train.run(str(toy.recipe_path), overrides=overrides, **chosen)
        return chosen["run_dir"]

    return call


def write(path, text):
    path.parent.mkdir(parents=True)
    path.write_text(text)


def test_a_folder_that_is_no_run_is_named(run, toy, tmp_path):
    with pytest.raises(UserError, match="prepared is a prepared corpus, not a run; choose another"):
        run(run_dir=toy.prepared)
    write(tmp_path / "runs" / "base" / "metrics.jsonl", "")
    with pytest.raises(UserError, match="runs holds runs; choose another --run-dir"):
        run(run_dir=tmp_path / "runs")


def test_advice_repeats_the_users_own_options(toy, tmp_path):
    """The command that is proposed makes what was missing."""
    recipe, prepared = tmp_path / "my recipe.yaml", tmp_path / "there"
    recipe.write_text(toy.recipe_path.read_text())
    text = ["--set", "data.max_length=20", "--set", "data.normalization={nfc: true}"]
    arguments = ["train", str(recipe), "--prepared", str(prepared), *text, "--device=cpu"]
    arguments += [f"--run-dir={tmp_path / 'run'}", "--max-tokens-per-device=3"]
    refused = CliRunner().invoke(cli.main, arguments)
    found, _, command = refused.stderr.strip().partition(" not found. Run: ")
    assert found == f"Error: {prepared}"
    assert shlex.split(command) == [
        "nmt-cli", "preprocess", str(recipe), *text, "--prepared", str(prepared)
    ]  # fmt: skip
    assert CliRunner().invoke(cli.main, shlex.split(command)[1:]).exit_code == 0
    assert "more than --max-tokens" in CliRunner().invoke(cli.main, arguments).stderr
    arguments[arguments.index(text[1])] = "data.max_length=25"
    stale = CliRunner().invoke(cli.main, arguments)
    assert "was made with max_length 20, the recipe says 25. " in stale.stderr
    command = stale.stderr.strip().partition(" Correct the recipe or make it again: ")[2]
    assert CliRunner().invoke(cli.main, shlex.split(command)[1:]).exit_code == 0
    assert "more than --max-tokens" in CliRunner().invoke(cli.main, arguments).stderr


def test_what_does_not_change_the_text_is_not_repeated(run, toy, tmp_path):
    with pytest.raises(UserError) as caught:
        run("training.max_steps=3", prepared=None)
    assert str(caught.value) == (
        f"prepared/toy not found. Run: nmt-cli preprocess {toy.recipe_path}"
    )


PREPARED_INSTEAD = {
    "file": "is a file; give the folder that preprocess wrote.",
    "above": "holds prepared corpora; give {folder}/words.",
    "run": "is a run, not a prepared corpus; give the folder that preprocess wrote.",
    "mine": "is not a prepared corpus; give the folder that preprocess wrote.",
}


@pytest.mark.parametrize("name", PREPARED_INSTEAD)
def test_what_is_no_prepared_corpus_is_named_without_force(run, toy, tmp_path, name):
    write(tmp_path / "folder" / "file", "x")
    (tmp_path / "folder" / "above").mkdir()
    (tmp_path / "folder" / "above" / "words").symlink_to(toy.prepared)
    write(tmp_path / "folder" / "run" / "sessions.jsonl", "")
    write(tmp_path / "folder" / "mine" / "thesis.tex", "years of work")
    given = tmp_path / "folder" / name
    with pytest.raises(UserError) as caught:
        run(prepared=given)
    assert str(caught.value) == f"{given} {PREPARED_INSTEAD[name].format(folder=given)}"
