"""Reads lines in windows: large ones if input comes fast, and without waiting if it stalls."""

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import BinaryIO, cast

from nmt_cli.corpus.text.shard_text import ShardText
from nmt_cli.files.lines import Line, read_lines
from nmt_cli.files.text_files import TextSize
from nmt_cli.translating.interface.request import WINDOW_CHARACTERS, WINDOW_LINES

FIRST_WINDOW = 512  # lines; it keeps two cores busy
FIRST_FOR_A_READER = 8  # so that one who waits for the output gets its first lines soon
SECONDS_FOR_A_WINDOW = 20.0  # if a window takes longer, the next is smaller, to show progress
STALL_SECONDS = 0.2
LONGEST_WAIT_SECONDS = 1.0  # for a window to fill if lines come slowly
# Lines of a window at most, by the device. Windows that a CPU needs minutes for would lose that
# work if the command is killed.
MOST_LINES = {"cpu": 1024, "cuda": WINDOW_LINES}


def windows(
    stream: BinaryIO | ShardText,
    *,
    is_for_a_reader: bool = False,
    most: int = WINDOW_LINES,
    is_steady: bool = False,
    expect: Callable[[int, bool], None] = lambda number, is_estimate: None,
) -> Iterator[list[Line]]:
    """Yield the lines of ``stream`` in order; they are read ahead while the caller works.

    A window ends when it is full or when input stalls; one who types is not waited for. The first
    one is small if it ``is_for_a_reader``, and they grow up to ``most`` lines as long as they take
    little time. With ``is_steady``, windows have ``most`` lines, or less if they are long, and
    depend only on the text. Before each window, ``expect`` is called with the total number of
    lines, if that is known, and with whether it is an estimate. If reading fails, its error
    (such as a UserError) is raised after the lines before it.
    """
    reader = _ReadAhead(stream, most)
    stall_seconds = 0.0 if stream.isatty() else STALL_SECONDS
    first = FIRST_FOR_A_READER if is_for_a_reader else FIRST_WINDOW
    size = most if is_steady else first
    try:
        while window := reader.take(size, None if is_steady else stall_seconds):
            if is_steady and reader.error is not None and len(window) < size:
                break  # it would be longer if the text could be read
            is_estimate = not reader.has_ended  # asked first: the thread may end meanwhile
            if (number := reader.expected_lines) is not None:
                expect(number, is_estimate)
            started = time.monotonic()
            yield window
            seconds = time.monotonic() - started
            if is_steady:
                continue
            if seconds > SECONDS_FOR_A_WINDOW:
                size = max(1, size // 2)
            elif seconds < SECONDS_FOR_A_WINDOW / 2:
                # Small windows keep few rows busy, so they are few: 8, 32 and 128 lines before 512.
                size = min(most, (4 if size < FIRST_WINDOW else 2) * size)
    finally:
        reader.stop()
    if reader.error is not None:
        raise reader.error


class _ReadAhead:
    """A thread that reads ahead of the caller, but never more than the largest window.

    It counts the lines that it reads, and their bytes.
    """

    def __init__(self, stream: BinaryIO | ShardText, most_lines: int) -> None:
        self.error: BaseException | None = None
        self._stream, self._most_lines = stream, most_lines
        self.name = getattr(stream, "name", None)
        self._size = stream if isinstance(stream, ShardText) else TextSize(stream)
        self._num_before = getattr(stream, "num_lines_before", 0)
        self._num_read = (0, 0)  # lines and their bytes: one tuple, as two threads use it
        self._lines: deque[Line] = deque()
        self._num_characters = 0
        self._wanted = 1  # the number of lines at which the caller is woken
        self.has_ended = self._stopped = False
        self._changed = threading.Condition()
        # A daemon thread does not keep the process alive while it waits for input.
        threading.Thread(target=self._read, daemon=True).start()

    @property
    def expected_lines(self) -> int | None:
        """The total number of lines, estimated from bytes until the end; None if unknown."""
        num_lines, num_bytes = self._num_read
        if self.has_ended:
            return num_lines
        size = self._size.expected()
        if size is None or not num_bytes:
            return None
        return max(num_lines, round(size * num_lines / num_bytes))

    def readline(self, size: int) -> bytes:
        """Read a line of the stream, for ``read_lines``, and count it."""
        line = self._stream.readline(size)
        num_lines, num_bytes = self._num_read
        self._num_read = (num_lines + bool(line), num_bytes + len(line))
        return line

    def take(self, num_lines: int, stall_seconds: float | None) -> list[Line]:
        """Return at most ``num_lines`` lines, at least one, or none at the end.

        Without ``stall_seconds``, waits until there are so many, however slowly they come.
        """
        with self._changed:
            self._wanted = num_lines
            if stall_seconds is None:
                self._changed.wait_for(lambda: self._has(num_lines))
                return self._pop(num_lines)
            self._changed.wait_for(lambda: self._lines or self.has_ended)
            deadline = time.monotonic() + LONGEST_WAIT_SECONDS
            seen = 0
            while len(self._lines) > seen and time.monotonic() < deadline:
                seen = len(self._lines)
                if self._has(num_lines):
                    break
                self._changed.wait_for(lambda: self._has(num_lines), stall_seconds)
            return self._pop(num_lines)

    def stop(self) -> None:
        """Stop reading ahead."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()

    def _has(self, num_lines: int) -> bool:
        return self.has_ended or len(self._lines) >= num_lines or self._is_full()

    def _is_full(self) -> bool:
        return len(self._lines) >= self._most_lines or self._num_characters >= WINDOW_CHARACTERS

    def _pop(self, num_lines: int) -> list[Line]:
        window: list[Line] = []
        num_characters = 0
        while self._lines and len(window) < num_lines and num_characters < WINDOW_CHARACTERS:
            window.append(self._lines.popleft())
            num_characters += len(window[-1].text)
        self._num_characters -= num_characters
        self._changed.notify_all()
        return window

    def _read(self) -> None:
        try:
            for line in read_lines(cast(BinaryIO, self), self._num_before):
                if not self._put(line):
                    break
        except BaseException as error:
            self.error = error
        with self._changed:
            self.has_ended = True
            self._changed.notify_all()

    def _put(self, line: Line) -> bool:
        """Add ``line`` as soon as there is room; return False if ``stop`` was called."""
        with self._changed:
            self._changed.wait_for(lambda: self._stopped or not self._is_full())
            self._lines.append(line)
            self._num_characters += len(line.text)
            if len(self._lines) in {1, self._wanted} or self._is_full():
                self._changed.notify_all()
            return not self._stopped
