"""Who waits for a translation gets its first lines soon, and no progress bar between them."""

import io
import os
import tty
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from nmt_cli.commands import rescore, translate
from nmt_cli.messages import logs
from nmt_cli.translating.interface.translation import Translation
from nmt_cli.translating.rescorer import Rescored, Rescorer
from nmt_cli.translating.translator import Translator
from tests.folders_in_memory import tmp_path as tmp_path
from tests.tagging import StandIn

NUM_LINES = 60  # their output fits into the buffer of a pipe


class Counting(StandIn):
    """Notes how many lines are translated together."""

    def __init__(self):
        self.sizes = []

    def translate_window(self, lines):
        self.sizes.append(len(lines))
        return [Translation("out") for _ in lines]

    def rescore_window(self, pairs, _):
        return [Rescored(-1.0, ("a",), (-1.0,)) for _ in pairs]


class Terminal(io.StringIO):
    def isatty(self):
        return True


@contextmanager
def opened(kind: str) -> Iterator[tuple[int, int]]:
    """Yield the descriptors to read from and to write to."""
    if kind == "file":
        with Path("stdout").open("wb") as written, Path("stdout").open("rb") as read:
            yield read.fileno(), written.fileno()
        return
    reading, writing = os.pipe() if kind == "pipe" else os.openpty()
    if kind == "terminal":
        tty.setraw(writing)
    try:
        yield reading, writing
    finally:
        os.close(reading)
        os.close(writing)


@pytest.fixture
def counting(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    logs.configure(quiet=False)
    translator = Counting()
    monkeypatch.setattr(Translator, "load", lambda *_, **__: translator)
    monkeypatch.setattr(Rescorer, "load", lambda *_, **__: translator)
    monkeypatch.setattr(logs, "SECONDS_BETWEEN_PLAIN_REPORTS", 0.0)
    Path("in").write_text("line\n" * NUM_LINES)
    return translator


KINDS = {"file": ([60], "bar"), "pipe": ([8, 32, 20], "lines"), "terminal": ([8, 32, 20], "none")}


@pytest.mark.parametrize("is_named", [False, True])
@pytest.mark.parametrize(("kind", "expected"), KINDS.items())
def test_windows_and_progress_suit_the_reader(counting, monkeypatch, kind, expected, is_named):
    stderr = Terminal()
    monkeypatch.setattr("sys.stderr", stderr)
    with opened(kind) as (reading, writing), open(writing, "w", closefd=False) as stdout:
        named = Path(f"/dev/fd/{writing}")
        if not is_named:
            monkeypatch.setattr("sys.stdout", stdout)
        translate.run(
            Path("model"),
            input_path=Path("in"),
            output_path=named if is_named else None,
            device="cpu",
        )
        assert read_lines(reading) == [b"out"] * NUM_LINES
    assert (counting.sizes, progress(stderr, "Translating")) == expected


@pytest.mark.parametrize(("kind", "expected"), KINDS.items())
def test_the_progress_of_rescoring_suits_the_reader(counting, monkeypatch, kind, expected):
    stderr = Terminal()
    monkeypatch.setattr("sys.stderr", stderr)
    with opened(kind) as (reading, writing), open(writing, "w", closefd=False) as stdout:
        monkeypatch.setattr("sys.stdout", stdout)
        rescore.run(Path("model"), Path("in"), Path("in"), device="cpu")
        assert len(read_lines(reading)) == NUM_LINES
    assert progress(stderr, "Scoring") == expected[1]


def read_lines(reading):
    """The lines that were written; a terminal may hand them over in parts."""
    read = b""
    while read.count(b"\n") < NUM_LINES and (more := os.read(reading, 1000)):
        read += more
    return read.splitlines()


def progress(terminal, description):
    """Return how ``terminal`` was shown the progress."""
    if f"\r{description}: " in terminal.getvalue():
        return "bar"
    return "lines" if f"{description}: " in terminal.getvalue() else "none"
