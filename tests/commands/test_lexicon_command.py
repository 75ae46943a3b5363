"""The command lexicon, and what other commands do with a model that has one."""

import json
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

from nmt_cli import cli
from nmt_cli.files.file_names import LEXICON
from nmt_cli.saved.model_directory import verified

FORMATS = Path(__file__).parents[1] / "formats"
TEXTS = [FORMATS / f"text/train.{language}" for language in ("en", "de")]
LINES = TEXTS[0].read_text().splitlines()[:6]


def run(*words, text="", status=0):
    result = CliRunner().invoke(cli.main, list(map(str, words)), input=text)
    assert result.exit_code == status, result.stderr
    return result


@pytest.fixture
def wrong(tmp_path):
    """Return the paths of texts whose lines do not translate each other."""
    path = tmp_path / "wrong"
    path.write_text("".join(reversed(TEXTS[1].read_text().splitlines(keepends=True))))
    return TEXTS[0], path


@pytest.fixture
def model(tmp_path):
    return shutil.copytree(FORMATS / "format_2/whitespace/run/average", tmp_path / "model")


def translated(model, *options):
    text = "".join(f"{line}\n" for line in LINES)
    words = "--device", "cpu", "--format", "tsv", "--quiet"
    return run("translate", model, *words, *options, text=text).stdout


def test_a_model_gets_a_lexicon_for_shortlists(model, wrong):
    plain = translated(model)
    missing = run("translate", model, "--shortlist", text="a\n", status=1).stderr
    assert (
        f"--shortlist needs a lexicon, and {model} has none; make one with: nmt-cli lex" in missing
    )
    log = run("lexicon", model, *wrong, "--frequent", 2, "--targets", 1).stderr
    size = (model / LEXICON).stat().st_size
    assert (
        f"Wrote {model / LEXICON}, {size} bytes. To use it: nmt-cli translate {model} --sh" in log
    )
    assert translated(model) == translated(model, "--no-shortlist") == plain
    short = translated(model, "--shortlist")
    assert short != plain
    twice = run("lexicon", model, *wrong, status=1).stderr
    assert twice == f"Error: {model / LEXICON} already exists; add --force to replace it.\n"
    assert (
        f"lexicon of {size} B, which translate uses with --shortlist"
        in run("inspect", model).stdout
    )
    run("lexicon", model, *wrong, "--frequent", 2, "--targets", 1, "--by-default", "--force")
    assert translated(model) == short
    assert translated(model, "--no-shortlist") == plain
    facts = json.loads(run("inspect", model, "--format", "json").stdout)
    assert facts["lexicon"] == {"bytes": size, "uses_shortlist": True}
    assert "which translate uses by default" in run("inspect", model).stdout
    averaged = model.with_name("averaged")
    run("average-checkpoints", model.parent, "--checkpoints", model, "--output", averaged)
    assert (averaged / LEXICON).read_bytes() == (model / LEXICON).read_bytes()
    assert verified(averaged).uses_shortlist


def test_an_average_of_models_without_a_common_lexicon_has_none(model, tmp_path):
    other = tmp_path / "other"
    run("average-checkpoints", tmp_path, "--checkpoints", model, "--output", other)
    run("lexicon", model, *TEXTS)
    assert not (other / LEXICON).exists()


def test_an_output_is_resumed_only_with_the_same_choice(model, wrong, tmp_path):
    run("lexicon", model, *wrong, "--frequent", 2, "--targets", 1, "--by-default")
    source, output = tmp_path / "source", tmp_path / "output"
    source.write_text("".join(f"{line}\n" for line in LINES))
    words = "translate", model, "--device", "cpu", "--input", source, "--output", output
    run(*words)
    assert "nothing to do" in run(*words, "--resume").stderr
    refused = run(*words, "--no-shortlist", "--resume", status=1).stderr
    assert "is complete, but was made with other options. Give" in refused


def test_scores_of_given_translations_ignore_the_lexicon(model, wrong):
    before = run("rescore", model, *TEXTS, "--device", "cpu", "--quiet").stdout
    run("lexicon", model, *wrong, "--frequent", 1, "--targets", 1, "--by-default")
    assert run("rescore", model, *TEXTS, "--device", "cpu", "--quiet").stdout == before


def test_what_cannot_have_a_lexicon(model, tmp_path):
    short = tmp_path / "short"
    short.write_text("x\n")
    assert "400 lines but" in run("lexicon", model, TEXTS[0], short, status=1).stderr
    blank = tmp_path / "blank"
    blank.write_text("\n")
    empty = run("lexicon", model, blank, short, status=1).stderr
    assert "no sentence pair has pieces on both sides, so there is no lexicon." in empty
    assert not (model / LEXICON).exists()
    parser = FORMATS / "format_3"
    parsers = [path.parent for path in parser.rglob("config.json")]
    for each in parsers[:1]:
        assert "parses; a lexicon is for models" in run("lexicon", each, *TEXTS, status=1).stderr


def test_a_damaged_lexicon_is_one_line(model):
    run("lexicon", model, *TEXTS)
    content = (model / LEXICON).read_bytes()
    for damaged in (content[:-2], content[:100] + b"\xff" + content[101:]):
        (model / LEXICON).write_bytes(damaged)
        error = run("translate", model, text="a\n", status=1).stderr
        assert error.startswith(f"Error: {model / LEXICON} has ")
        again = f"it is damaged. Make it again: nmt-cli lexicon {model} SOURCE TARGET --force.\n"
        assert error.endswith(again)
        assert error.count("\n") == 1


def test_a_lexicon_that_is_missing_or_damaged_is_made_again(model):
    run("lexicon", model, *TEXTS)
    content = (model / LEXICON).read_bytes()
    for harm in (Path.unlink, lambda path: path.write_bytes(content[:-2])):
        harm(model / LEXICON)
        twice = run("lexicon", model, *TEXTS, status=1).stderr
        assert twice == f"Error: {model / LEXICON} already exists; add --force to replace it.\n"
        run("lexicon", model, *TEXTS, "--force")
        assert (model / LEXICON).read_bytes() == content
        assert verified(model).lexicon is not None
