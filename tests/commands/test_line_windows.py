"""Lines read ahead in windows: bounded, and smaller where translation is slow."""

import gzip
import io
import os
import random
import time
from typing import Any, BinaryIO, cast

import pytest

from nmt_cli.commands.lines import line_windows
from nmt_cli.commands.lines.line_windows import windows
from nmt_cli.files.text_files import open_text
from nmt_cli.translating.interface.request import WINDOW_LINES


class Endless(io.RawIOBase):
    """A stream of short lines that counts what is taken."""

    def __init__(self):
        self.num_lines = 0

    def readline(self, size=-1):
        self.num_lines += 1
        return b"word\n"


def test_the_input_waits_for_a_slow_translation():
    stream = Endless()
    reader: Any = windows(cast(BinaryIO, stream))
    for _ in range(3):
        next(reader)
        time.sleep(0.1)  # a reader that did not wait would read far more lines in this time
        assert stream.num_lines <= 2 * 4 * WINDOW_LINES
    reader.close()


def test_windows_are_bounded_in_characters(monkeypatch):
    monkeypatch.setattr(line_windows, "WINDOW_CHARACTERS", 100)
    data = b"x" * 60 + b"\n" + b"y\n" * 300 + b"z" * 500 + b"\nend"
    sizes = [sum(len(line.text) for line in window) for window in windows(io.BytesIO(data))]
    assert sum(sizes) == 60 + 300 + 500 + 3
    assert max(sizes) < 100 + 500


def test_slow_windows_get_smaller(monkeypatch):
    monkeypatch.setattr(line_windows, "SECONDS_FOR_A_WINDOW", -1.0)
    sizes = [len(window) for window in windows(io.BytesIO(b"x\n" * 2000))]
    assert sizes[:3] == [512, 256, 128]
    monkeypatch.setattr(line_windows, "SECONDS_FOR_A_WINDOW", 1e9)
    monkeypatch.setattr(line_windows, "STALL_SECONDS", 5.0)
    sizes = [len(window) for window in windows(io.BytesIO(b"x\n" * 20_000))]
    assert sizes[:5] == [512, 1024, 2048, 4096, 4096]
    soon = windows(io.BytesIO(b"x\n" * 20_000), is_for_a_reader=True)
    assert [len(window) for window in soon][:6] == [8, 32, 128, 512, 1024, 2048]


NUM_LINES = 60_000


@pytest.fixture
def text():
    """Lines of all lengths, 3 MB of them."""
    rng = random.Random(4)
    return "".join(
        f"{rng.randbytes(rng.randint(1, 50)).hex()}\n" for _ in range(NUM_LINES)
    ).encode()


def expected(stream):
    """Return the arguments of each call of ``expect``, one call before each window."""
    found: list[tuple[int, bool]] = []
    for _ in windows(stream, expect=lambda *arguments: found.append(arguments)):
        pass
    return found


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_the_number_of_lines_of_a_file_is_estimated_by_bytes(tmp_path, text, suffix):
    path = tmp_path / f"text{suffix}"
    path.write_bytes(gzip.compress(text, 1) if suffix else text)
    with open_text(path) as stream:
        estimates = expected(stream)
    assert len(estimates) > 10
    assert estimates[0][1]
    for number, is_estimate in estimates:
        assert number == pytest.approx(NUM_LINES, rel=0.1 if is_estimate else 0)
    assert estimates[-1] == (NUM_LINES, False)


def test_a_file_as_standard_input_is_counted_from_where_it_stands(tmp_path, text):
    (tmp_path / "text").write_bytes(b"read before\n" * 100_000 + text)
    with (tmp_path / "text").open("rb", buffering=0) as before:
        before.seek(12 * 100_000)
        with open(before.fileno(), "rb", closefd=False) as stream:
            estimates = expected(stream)
    assert [n for n, _ in estimates] == pytest.approx([NUM_LINES] * len(estimates), rel=0.1)


def test_the_number_of_lines_of_a_pipe_is_not_known_before_its_end():
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb") as stream:
        os.write(writing, b"x\n" * 1000)
        os.close(writing)
        assert [number for number, is_estimate in expected(stream) if is_estimate] == []
