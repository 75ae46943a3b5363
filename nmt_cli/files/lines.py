"""Lines are the bytes between line feeds; nothing else separates them.

Python's own text readers also split at CR, VT, FF, U+0085, U+2028 and others, or crash on a bad
byte; each of these moves every later line of a parallel corpus against its translation.
"""

import json
import math
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from nmt_cli.files.text_files import READ_AT_ONCE, SAMPLE, encoding_of, open_text
from nmt_cli.files.text_forms import refuse_wrong_lines, why_not_utf8
from nmt_cli.messages.errors import UserError

BYTE_ORDER_MARK = b"\xef\xbb\xbf"
REPLACEMENT = "\ufffd"
LONGEST_LINE = 1 << 26  # bytes; nobody writes such a line, but /dev/zero has one that never ends
# For the brackets of a pattern: characters that nobody sees, such as controls, soft hyphens,
# directional marks and fillers; without U+200C and U+200D, which change the letters beside them.
INVISIBLE = (
    "\0-\x08\x0e-\x1b\x7f-\x84\x86-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u200b\u200e\u200f"
    "\u202a-\u202e\u2060-\u206f\u3164\ufeff\uffa0\ufff0-\ufffb\U0001bca0-\U0001bca3"
    "\U0001d173-\U0001d17a"
)
# These choose how the character before them looks: an emoji, or a letter of Mongolian.
SELECTORS = "\u180b-\u180f\ufe00-\ufe0f\U000e0000-\U000e0fff"
# \s matches what str.isspace is true for.
VISIBLE = re.compile(f"[^\\s\u200c\u200d{INVISIBLE}{SELECTORS}]")
LINE_BREAKING = str.maketrans(dict.fromkeys("\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029\x00", " "))


class Line(NamedTuple):
    """The text of a line, and what was cut from it or repaired in it."""

    text: str
    carriage_return: bool  # whether one was cut before the line feed
    newline: bool  # false only for a last line that does not end in a line feed
    replaced: int  # bad byte sequences that became U+FFFD
    byte_order_mark: bool  # whether one was cut, which happens on the first line only


def read_lines(stream: BinaryIO, num_lines_before: int = 0) -> Iterator[Line]:
    """Yield the lines of ``stream`` as they arrive; it continues a text behind some lines.

    Raises UserError if a line is longer than ``LONGEST_LINE``, or if the first one is not UTF-8 but
    in another encoding of Unicode.
    """
    number = num_lines_before
    while raw := stream.readline(LONGEST_LINE):
        number += 1
        newline = raw.endswith(b"\n")
        if not newline and len(raw) == LONGEST_LINE:
            raise _endless_line(stream, number)
        if number == 1:
            _refuse_other_encoding(stream, raw)
        byte_order_mark = number == 1 and raw.startswith(BYTE_ORDER_MARK)
        if byte_order_mark:
            raw = raw.removeprefix(BYTE_ORDER_MARK)
        raw = raw.removesuffix(b"\n")
        carriage_return = raw.endswith(b"\r")
        text, replaced = _decode(raw.removesuffix(b"\r"))
        yield Line(text, carriage_return, newline, replaced, byte_order_mark)


class HeldLines:
    """The lines of a stream, read in blocks and held as bytes until they are taken."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream, self._has_ended = stream, False
        self._lines: list[bytes] = []  # whole ones
        self._begun = bytearray()  # a line whose end is not read yet
        self._num_bytes = 0  # of all these
        self.num_taken = 0  # lines

    def hold(self, wanted: int) -> int:
        """Read until ``wanted`` lines are held, or fewer long ones; return how many may be taken.

        Raises UserError if a line is longer than ``LONGEST_LINE``.
        """
        while len(self._lines) < wanted and not self._has_ended:
            if self._lines and self._num_bytes >= READ_AT_ONCE:
                break
            block = self._stream.read(READ_AT_ONCE)
            self._has_ended = len(block) < READ_AT_ONCE  # a terminal reports its end only once
            self._num_bytes += len(block)
            first, *others = block.split(b"\n")
            if len(self._begun) + len(first) >= LONGEST_LINE:
                raise _endless_line(self._stream, self.num_taken + len(self._lines) + 1)
            self._begun += first
            if others:
                self._lines += [bytes(self._begun), *others[:-1]]
                self._begun = bytearray(others[-1])
            if self._has_ended and self._begun:
                self._lines.append(bytes(self._begun))
        return min(wanted, len(self._lines))

    def first(self) -> bytes:
        """Return the first line that is held, without its line feed; nothing if there is none."""
        return self._lines[0] if self.hold(1) else b""

    def take(self, count: int) -> bytes:
        """Return the first ``count`` lines that are held, without the last line feed."""
        lines = b"\n".join(self._lines[:count])
        del self._lines[:count]
        self._num_bytes -= len(lines) + 1
        self.num_taken += count
        return lines

    def count_all(self) -> int:
        """Read the rest of the stream; return the number of all its lines."""
        while count := self.hold(READ_AT_ONCE):
            self.take(count)
        return self.num_taken


class LineTexts:
    """The ``text`` of each line that ``read_lines`` would yield, read and decoded in blocks.

    This takes a tenth of the time of ``read_lines``. ``num_invalid`` counts the lines with bad
    bytes that were read so far. Iterating raises UserError if a line is longer than
    ``LONGEST_LINE`` or the text is in another encoding of Unicode.
    """

    def __init__(self, stream: BinaryIO) -> None:
        self._stream, self.num_invalid = stream, 0

    def __iter__(self) -> Iterator[str]:
        lines = HeldLines(self._stream)
        while count := lines.hold(READ_AT_ONCE):  # as many as are in a block
            is_first, block = lines.num_taken == 0, lines.take(count)
            if is_first:
                _refuse_other_encoding(self._stream, block)
            texts, num_invalid = texts_in(block, is_first=is_first)
            self.num_invalid += num_invalid
            yield from texts


def texts_in(block: bytes, *, is_first: bool) -> tuple[list[str], int]:
    """Return the ``text`` of each line in ``block``, and how many of the lines have bad bytes.

    The last line is without its line feed. ``is_first`` is whether the block begins the text.
    """
    num_invalid = 0
    if is_first:
        block = block.removeprefix(BYTE_ORDER_MARK)
    try:
        texts = block.decode().split("\n")
    except UnicodeDecodeError:
        decoded = [_decode(raw) for raw in block.split(b"\n")]
        texts = [text for text, _ in decoded]
        num_invalid = sum(replaced > 0 for _, replaced in decoded)
    if b"\r" in block:
        texts = [text.removesuffix("\r") for text in texts]
    return texts, num_invalid


def is_blank(text: str) -> bool:
    """Return whether there is nothing to translate: only white space, and what nobody sees."""
    return VISIBLE.search(text) is None


def one_line(text: str) -> str:
    """Return ``text`` with a space for each character that some program reads as a line end."""
    return text.translate(LINE_BREAKING)


def number_in(text: str) -> float:
    """Return the finite number in plain decimal notation that ``text`` is; NaN if it is none."""
    try:
        # float() also takes 1_000 and the digits of other scripts.
        number = float(text) if text.isascii() and "_" not in text else math.nan
    except ValueError:
        return math.nan
    return number if math.isfinite(number) else math.nan


def why_not_unicode(line: str) -> str | None:
    """Return why ``line`` is not text if it holds half of a surrogate pair; None if it is text."""
    try:
        line.encode()
    except UnicodeEncodeError as error:
        code = ord(line[error.start])
        return f"character {error.start + 1:,} is U+{code:04X}, half of a surrogate pair"
    return None


def _decode(raw: bytes) -> tuple[str, int]:
    """Return the text and how many bad byte sequences became U+FFFD."""
    try:
        return raw.decode(), 0
    except UnicodeDecodeError:
        text = raw.decode(errors="replace")
        # A U+FFFD that the input itself holds is valid UTF-8, so it is not part of a bad sequence.
        return text, text.count(REPLACEMENT) - raw.count(REPLACEMENT.encode())


def _endless_line(stream: BinaryIO, number: int) -> UserError:
    """Return the error for the line ``number`` of ``stream``, which reaches ``LONGEST_LINE``."""
    return UserError(
        f"line {number:,} of {_name_of(stream)} is longer than {LONGEST_LINE >> 20} MB; is this "
        "text?"
    )


def _refuse_other_encoding(stream: BinaryIO, start: bytes) -> None:
    """Raise UserError if the text that begins with ``start`` is not UTF-8, but UTF-16 or UTF-32."""
    if (encoding := encoding_of(start[:SAMPLE])) is not None:
        raise UserError(why_not_utf8(_name_of(stream), encoding))


def _name_of(stream: BinaryIO) -> str:
    name = getattr(stream, "name", None)
    return name if isinstance(name, str) else "the input"


def texts_of(path: Path) -> list[str]:
    """Return all lines of a text file, also of a compressed one.

    Raises UserError if the file cannot be read, is damaged, or has another encoding of Unicode or
    the line ends of old Macs.
    """
    refuse_wrong_lines(path)
    with open_text(path) as stream:
        return list(LineTexts(stream))


def json_record(text: str) -> dict[str, Any]:
    """Return the JSON object in ``text``. Raises ValueError, also for repeated keys, and NaN."""
    try:
        record = json.loads(
            text,
            object_pairs_hook=_with_unique_keys,
            parse_int=_number,
            parse_float=_finite,
            parse_constant=_finite,
        )
    except json.JSONDecodeError as error:
        raise ValueError(f"it is not JSON: {error.msg} at character {error.pos + 1:,}") from None
    except RecursionError:
        raise ValueError("it is not JSON that can be read: it is nested too deeply") from None
    if not isinstance(record, dict):
        raise ValueError("it is not a JSON object")
    return record


def _number(digits: str) -> int:
    try:
        return int(digits)
    except ValueError:
        raise ValueError(f"a number has {len(digits):,} digits, more than can be read") from None


def _finite(number: str) -> float:
    if not math.isfinite(value := float(number)):
        raise ValueError(f"the number {number[:20]} is not finite")
    return value


def _with_unique_keys(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    record = dict(pairs)
    if len(record) < len(pairs):
        keys = [key for key, _ in pairs]
        repeated = next(key for key in keys if keys.count(key) > 1)
        raise ValueError(f"the key {json.dumps(repeated)} is given twice")
    return record
