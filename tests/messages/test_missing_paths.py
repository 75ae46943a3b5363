"""A path with ~ or * that does not exist gets the path to write."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from nmt_cli import cli
from nmt_cli.commands import recipes, translate
from nmt_cli.files.folders import what_to_give
from nmt_cli.files.text_files import open_text
from nmt_cli.messages.errors import UserError
from nmt_cli.messages.proposals import missing_hint, where_missing
from nmt_cli.recipe.reading.reader import read_recipe


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    home = tmp_path / "me"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.chdir(tmp_path)
    return home


def test_a_missing_path_is_just_missing(tmp_path):
    assert missing_hint(tmp_path / "a~b.en") == ""


def test_the_expanded_home_is_proposed_wherever_a_path_is_read(home):
    with pytest.raises(UserError, match=rf"not found; ~ is not expanded, write {home}/a.en\."):
        open_text(Path("~/a.en")).__enter__()
    with pytest.raises(UserError, match=rf"does not exist; ~ is not .*, write {home}/r.yaml\."):
        read_recipe("~/r.yaml")
    with pytest.raises(UserError, match=rf"model ~/runs/a not found; ~ .* {home}/runs/a; give"):
        translate.run(Path("~/runs/a"))


def test_a_relative_path_says_what_it_is_relative_to(tmp_path):
    assert where_missing(Path("a.en")) == f"; the path is relative to {tmp_path}"
    assert where_missing(tmp_path / "a.en") == ""
    assert "is relative" not in where_missing(Path("~/a.en"))


@pytest.mark.parametrize(
    ("command", "folder"), [("translate", "runs"), ("report", "runs"), ("serve", "runs")]
)
def test_the_run_of_a_name_is_proposed(command, folder, tmp_path):
    (tmp_path / "mine" / folder / "small").mkdir(parents=True)
    shown = CliRunner().invoke(cli.main, [command, "mine/small"])
    assert shown.stderr.endswith(
        f" mine/small not found; the path is relative to {tmp_path}; give mine/{folder}/small. "
        f"Run: nmt-cli {command} mine/{folder}/small\n"
    )


def test_text_that_was_prepared_but_not_trained_on_is_named(tmp_path):
    (tmp_path / "prepared/small").mkdir(parents=True)
    message = what_to_give(Path("small"), "run")
    assert message.endswith("; prepared/small is there, from which train makes runs/small.")
    (tmp_path / "runs/small").mkdir(parents=True)
    assert what_to_give(Path("small"), "run").endswith("; give runs/small.")


def test_a_home_of_nobody_is_not_guessed():
    assert missing_hint(Path("~nobody-here/a")).endswith("write the whole path")


@pytest.mark.parametrize("command", ["preprocess", "run"])
@pytest.mark.parametrize(
    ("recipe", "proposed"),
    [
        ("base", "nmt-cli data get wmt14-en-de writes it"),
        ("big-en-fr", "nmt-cli data get wmt14-en-fr writes it"),
        ("parsing", "nmt-cli data get wsj --treebank FOLDER writes it from your copy of the Penn "),
    ],
)
def test_the_command_that_brings_public_data_is_proposed(command, recipe, proposed):
    shown = CliRunner().invoke(cli.main, [command, recipe])
    assert shown.exit_code == 1
    assert f" not found; {proposed}" in shown.output


def test_the_places_of_treebanks_that_no_command_writes_are_named_once_for_each_file():
    result = CliRunner().invoke(cli.main, ["recipes", "check", "parsing-small"])
    lines = result.stderr.splitlines()
    assert len(lines) == 3
    assert "data.train.0.source, data.train.0.target: data/treebank/wsj-sample/" in lines[0]
    assert "; NLTK distributes this sample of the Penn Treebank: nltk.download('tree" in lines[0]
    assert "data.train.1.source, data.train.1.target: data/treebank/gum/train.trees" in lines[1]
    assert "; GUM is in https://github.com/amir-zeldes/gum, folder const/; write the" in lines[1]
    assert "data.validation.source, data.validation.target, data.test.source, " in lines[2]


def test_a_corpus_of_opus_is_proposed_by_the_name_in_its_path():
    path = Path("data/opus/Europarl@v8/en-de/train.en")
    proposal = "; nmt-cli data get opus:Europarl@v8/en-de writes it"
    assert missing_hint(path) == proposal
    assert missing_hint(Path("data/opus/x/train.en")) == ""
    path.parent.mkdir(parents=True)
    assert missing_hint(path) == ""


def test_data_get_is_not_proposed_for_a_folder_that_exists_or_is_not_its_own():
    Path("data/wmt14-en-de").mkdir(parents=True)
    for name in ("data/wmt14-en-de/a.en", "mine/wmt14-en-de/a.en", "data/mine/a.en"):
        assert missing_hint(Path(name)) == ""


def test_recipes_check_names_the_files_that_a_star_would_match(tmp_path):
    for name in ("a.0.en", "a.1.en", "a.2.en", "a.3.en"):
        (tmp_path / name).touch()
    overrides = ["data.train.0.source=a.*.en", "data.train.0.target=b.*"]
    with pytest.raises(UserError) as caught:
        recipes.check("quickstart", overrides)
    source, target, *_ = str(caught.value).splitlines()
    assert source.endswith(
        "data.train.0.source: a.*.en does not exist; * is not expanded, "
        "write the name of each file: a.0.en, a.1.en, a.2.en and 1 more"
    )
    assert target.endswith("* is not expanded and nothing matches, write the name of each file")
