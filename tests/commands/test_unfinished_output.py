"""After a bug, translate keeps the output of the lines before it in a file called .unfinished."""

import gzip
import lzma
import os
import sys
from pathlib import Path
from typing import ClassVar

import pytest
from click.testing import CliRunner

from nmt_cli import cli
from nmt_cli.decoding.translation import LinesFailedError, Translation
from nmt_cli.decoding.translator import Translator
from nmt_cli.temporary_names import shortened

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

LINES = [f"line {number}" for number in range(1, 1001)]


class BuggyTranslator:
    """Echoes its lines, but for one that meets a bug."""

    bad = "line 701"
    chosen: ClassVar[dict[str, str]] = {}

    def translate_window(self, lines):
        if self.bad in lines:
            first = lines.index(self.bad)
            finished = [Translation(line) for line in lines[:first]]
            raise LinesFailedError(first, first, finished) from TypeError("a bug of ours")
        return [Translation(line) for line in lines]


@pytest.fixture
def translate(monkeypatch, tmp_path):
    """Translate to the file of that name and return the error that ends the command."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(Translator, "load", lambda *_, **__: BuggyTranslator())

    def run(name):
        arguments = ["translate", "model", "--output", name]
        result = CliRunner().invoke(cli.main, arguments, input="\n".join(LINES))
        assert isinstance(result.exception, LinesFailedError)
        assert isinstance(result.exception.__cause__, TypeError)
        return str(result.exception)

    return run


@pytest.mark.parametrize(
    ("name", "kept", "read"),
    [
        ("out", "out.unfinished", bytes),
        ("out.de", "out.de.unfinished", bytes),
        ("out.gz", "out.unfinished.gz", gzip.decompress),
        ("out.de.xz", "out.de.unfinished.xz", lzma.decompress),
        ("x" * 255, f"{shortened('x' * 255)}.unfinished", bytes),
        ("out.zst", "out.unfinished.zst", zstd.decompress),
    ],
)
def test_a_bug_leaves_the_finished_lines_in_an_unfinished_file(translate, name, kept, read):
    Path(kept).write_bytes(b"of an earlier bug")
    assert translate(name).endswith(f"; the output of the 700 lines before is kept in {kept}")
    assert os.listdir() == [kept]  # noqa: PTH208
    assert read(Path(kept).read_bytes()).decode().splitlines() == LINES[:700]


def test_a_bug_leaves_an_output_that_was_to_be_replaced(translate, monkeypatch):
    monkeypatch.setattr(BuggyTranslator, "bad", "line 2")
    Path("out").write_bytes(b"precious")
    arguments = ["translate", "model", "--output", "out", "--force"]
    result = CliRunner().invoke(cli.main, arguments, input="\n".join(LINES))
    assert "the output of the line before is kept in out.unfinished" in str(result.exception)
    assert Path("out").read_bytes() == b"precious"
    assert Path("out.unfinished").read_bytes() == b"line 1\n"


def test_a_bug_is_named_where_the_finished_lines_cannot_be_kept(translate):
    Path("out.unfinished").mkdir()
    assert translate("out").endswith(
        "the output of the 700 lines before could not be kept in out.unfinished: Is a directory"
    )
    assert os.listdir() == ["out.unfinished"]  # noqa: PTH208


def test_a_bug_leaves_no_file_beside_a_stream(translate, tmp_path):
    assert "unfinished" not in translate("/dev/null")
    assert os.listdir() == []  # noqa: PTH208
