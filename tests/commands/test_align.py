import json

import pytest
from click.testing import CliRunner

from nmt_cli import cli
from nmt_cli.commands import align
from tests.generated_pairs import write_generated


def run(*words):
    return CliRunner().invoke(cli.main, list(map(str, words)))


def written(path, *lines):
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


@pytest.fixture
def texts(tmp_path):
    source = ["the red house", "the dog", "a red dog", "", "a house", "the house"]
    target = ["das rote Haus", "der Hund", "ein roter Hund", "leer", "ein Haus", "das Haus"]
    return [written(tmp_path / name, *lines) for name, lines in (("en", source), ("de", target))]


def test_each_line_gets_its_links(texts, tmp_path):
    result = run("align", *texts, "--quiet")
    assert result.exit_code == 0, result.stderr
    lines = result.stdout.split("\n")
    assert lines[3] == lines.pop() == ""
    assert lines[0] == "0-0 1-1 2-2"
    assert lines[5] == "0-0 1-1"
    to_file = run("align", *texts, "--output", tmp_path / "links")
    assert to_file.stderr.startswith("Aligned 6 lines. Tension ")
    assert (tmp_path / "links").read_text() == result.stdout


def test_case_may_be_ignored(texts, tmp_path):
    upper = written(tmp_path / "upper", *texts[0].read_text().upper().split("\n")[:-1])
    plain = run("align", *texts, "--lowercase", "--quiet")
    assert run("align", upper, texts[1], "--lowercase", "--quiet").stdout == plain.stdout


def test_the_number_of_processes_changes_nothing(tmp_path, monkeypatch):
    write_generated(tmp_path, 2_500)
    monkeypatch.setattr(align, "MOST_CELLS", 20_000)
    found = [
        run("align", tmp_path / "train.en", tmp_path / "train.de", "--workers", n).stdout
        for n in (1, 2)
    ]
    assert found[0] == found[1]
    assert found[0].count("\n") == 2_500
    assert found[0].count("-") > 2_500


def test_a_pair_that_is_too_long_gets_no_links_and_is_named(texts, monkeypatch):
    monkeypatch.setattr(align, "MOST_CELLS", 8)
    result = run("align", *texts)
    assert result.stdout.startswith("\n")
    assert (
        "2 lines too long for links, the first is line 1: the product of the words of both sides "
        "is over 8." in result.stderr
    )


def test_texts_that_cannot_be_aligned(texts, tmp_path):
    blank = written(tmp_path / "blank", *[""] * 6)
    result = run("align", texts[0], blank)
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == f"Error: no line of {texts[0]} and {blank} has words on both sides.\n"
    result = run("align", texts[0], written(tmp_path / "short", "x"))
    assert (result.exit_code, result.stdout) == (1, "")
    assert f"{texts[0]} has 6 lines" in result.stderr
    output = written(tmp_path / "links", "precious")
    result = run("align", *texts, "--output", output)
    assert (result.exit_code, output.read_text()) == (1, "precious\n")
    result = run("align", *texts, "--output", texts[0], "--force")
    assert result.exit_code == 1
    assert "would replace" in result.stderr


def test_the_error_rate_is_that_of_the_paper(tmp_path):
    """Counted by hand from the definition of Och and Ney (2003): |A| 5, |S| 4."""
    gold = written(tmp_path / "gold", "0-0 1-1 2p1", "0-0 1-2 0p1", "")
    found = written(tmp_path / "found", "0-0 2-1 1-2", "0-0 0-1", "")
    result = run("score", found, gold, "--metric", "aer")
    # Sure and found: 0-0 and 0-0. Possible and found: 0-0, 2-1, 0-0, 0-1.
    assert result.stdout == ("AER 33.33  precision 80.00, recall 50.00 (5 links; gold: 4 sure)\n")
    figures = json.loads(run("score", found, gold, "--metric", "aer", "--format", "json").stdout)
    assert figures["aer"] == pytest.approx(100 * (1 - (2 + 4) / (5 + 4)))
    assert (figures["sure_found"], figures["possible_found"], figures["lines"]) == (2, 4, 3)
    assert run("score", gold, gold, "--metric", "aer").stdout.startswith("AER 0.00 ")


def test_what_is_no_alignment(tmp_path):
    gold = written(tmp_path / "gold", "0-0", "0-0 1-1")
    wrong = written(tmp_path / "wrong", "0-0", "0-0 1:1")
    result = run("score", wrong, gold, "--metric", "aer")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == (
        f"Error: {wrong}:2: 1:1 is not a link; a link is 2-1 (source word 2 and target word 1, "
        "from 0), or 2p1 if it is possible only.\n"
    )
    short = written(tmp_path / "short", "0-0")
    assert "short has 1 line, " in run("score", short, gold, "--metric", "aer").stderr
    assert run("score", gold, gold, gold, "--metric", "aer").exit_code == 2
    assert run("score", gold, gold, "--metric", "aer", "--lowercase").exit_code == 2
    empty = written(tmp_path / "empty")
    assert "is empty" in run("score", empty, empty, "--metric", "aer").stderr
