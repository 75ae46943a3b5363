"""Lines read ahead in windows: bounded, and smaller where translation is slow."""

import io
import time
from typing import Any, BinaryIO, cast

from nmt_cli.commands import line_windows
from nmt_cli.commands.line_windows import windows
from nmt_cli.decoding import translator as translator_module


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
        time.sleep(0.05)
        before = stream.num_lines
        time.sleep(0.05)
        assert stream.num_lines == before
    assert stream.num_lines <= 2 * 4 * translator_module.WINDOW_LINES
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
    sizes = [len(window) for window in windows(io.BytesIO(b"x\n" * 20_000), stall_seconds=5.0)]
    assert sizes[:5] == [512, 1024, 2048, 4096, 4096]
