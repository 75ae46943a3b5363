"""After a bug, translate keeps the output of the lines before it, and can go on."""

import gzip
import os
import re
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

from nmt_cli import cli
from nmt_cli.messages.errors import LinesFailedError
from nmt_cli.translating.interface.translation import Translation
from nmt_cli.translating.translator import Translator
from tests.tagging import StandIn

LINES = [f"line {number}" for number in range(1, 1001)]


class BuggyTranslator(StandIn):
    """Echoes its lines, but for one that meets a bug."""

    bad = "line 701"

    def translate_window(self, lines):
        lines = [line.text for line in lines]
        if self.bad in lines:
            first = lines.index(self.bad)
            finished = [Translation(line) for line in lines[:first]]
            raise LinesFailedError(first, first, finished) from TypeError("a bug of ours")
        return [Translation(line) for line in lines]


@pytest.fixture
def translate(monkeypatch, tmp_path):
    """Translate the file ``in`` to the file of that name, meet the bug, and return stderr."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(Translator, "load", lambda *_, **__: BuggyTranslator())
    Path("in").write_text("\n".join(LINES))

    def run(name, *options):
        arguments = ["translate", "model", "--input", "in", "--output", name, *options]
        result = CliRunner().invoke(cli.main, arguments)
        assert isinstance(result.exception, LinesFailedError)
        assert isinstance(result.exception.__cause__, TypeError)
        return result.stderr

    return run


@pytest.mark.parametrize(("name", "read"), [("out", bytes), ("out.de.gz", gzip.decompress)])
def test_the_lines_before_a_bug_are_kept_and_the_others_follow(translate, name, read):
    stderr = translate(name)
    message = (
        rf"Warning: The output of 700 lines is kept in {name}\.partial\. To go on, when the bug is "
        r"fixed or that line of the input is changed, run: nmt-cli (.*)\n"
    )
    proposed = re.search(message, stderr)
    assert proposed
    assert read(Path(f"{name}.partial").read_bytes()).decode().splitlines() == LINES[:700]
    again = translate(name, "--resume")  # the bug is still there, and costs nothing
    assert "The output of 700 lines is kept" in again
    changed = [*LINES[:700], "", *LINES[701:]]
    Path("in").write_text("\n".join(changed))
    assert CliRunner().invoke(cli.main, shlex.split(proposed[1])).exit_code == 0
    assert read(Path(name).read_bytes()).decode().split("\n") == changed
    assert sorted(os.listdir()) == sorted([f".made-{name}.json", "in", name])  # noqa: PTH208


def test_a_bug_leaves_an_output_that_was_to_be_replaced(translate, monkeypatch):
    monkeypatch.setattr(BuggyTranslator, "bad", "line 2")
    Path("out").write_bytes(b"precious")
    translate("out", "--force")
    assert Path("out").read_bytes() == b"precious"
    assert Path("out.partial").read_bytes() == b"line 1\n"


def test_a_bug_in_the_first_line_leaves_nothing(translate, monkeypatch):
    monkeypatch.setattr(BuggyTranslator, "bad", "line 1")
    translate("out")
    assert os.listdir() == ["in"]  # noqa: PTH208


def test_a_bug_leaves_no_file_beside_a_stream(translate):
    assert "partial" not in translate("/dev/null")
    assert os.listdir() == ["in"]  # noqa: PTH208


def test_the_lines_before_a_bug_are_on_stdout(monkeypatch):
    monkeypatch.setattr(Translator, "load", lambda *_, **__: BuggyTranslator())
    result = CliRunner().invoke(cli.main, ["translate", "model"], input="\n".join(LINES))
    assert result.exit_code == 1
    assert result.stdout.splitlines() == LINES[:700]
    assert isinstance(result.exception, LinesFailedError)
    assert str(result.exception).startswith("line 701 could not be translated because of a bug")
