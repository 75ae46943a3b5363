"""PO and POT files of gettext: each line of a text without a translation is a segment."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from nmt_cli.corpus.text.po_files import NAMED_CHARSET, PoEntry, PoError, po_charset, po_entries
from nmt_cli.documents.document import DocumentError
from nmt_cli.files.lines import is_blank
from nmt_cli.translating.markup.tokens import Kind, xml_tokens
from nmt_cli.translating.protection import PLACEHOLDERS
from nmt_cli.translating.request import LineError, Request
from nmt_cli.translating.translation import Translation

# White space around lines; it is looked for only where it begins, so that much of it takes no time.
BREAK = re.compile(r"((?<!\s)\s*\n\s*|\A\s+|(?<!\s)\s+\Z)")
TAG = r"</?[A-Za-z][^<>]*>"
PROTECTED = (PLACEHOLDERS, TAG, r"&#?\w+;")  # patterns of what a translation copies
ESCAPES = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t", "\r": "\\r"})


class _Place(NamedTuple):
    """Where a translation is written, and the parts of its source."""

    begin: int  # its lines, counted from 0
    end: int
    parts: Sequence[str | Request]  # white space stays as it is


class PoDocument:
    """A PO file; what has a translation is only translated ``again`` if that is asked for."""

    def __init__(self, data: bytes, again: bool) -> None:
        """Raise DocumentError for a line that is wrong."""
        self._lines, self._places = io.BytesIO(data).readlines(), list[_Place]()
        try:
            self._encoding = po_charset(data)
            for entry in po_entries(self._lines, self._encoding):
                self._places += _places(entry, again)
        except PoError as error:
            raise DocumentError(f"line {error.line:,}: {error}") from None
        self.segments: Sequence[Request] = [
            part for place in self._places for part in place.parts if isinstance(part, Request)
        ]

    def filled(self, translations: Sequence[Translation]) -> bytes:
        """Return the file with the translations; a text of which a line failed has none."""
        texts, rest = list[tuple[_Place, str]](), iter(translations)
        for place in self._places:
            found = [part if isinstance(part, str) else next(rest) for part in place.parts]
            if not any(isinstance(part, Translation) and part.error for part in found):
                parts = (part if isinstance(part, str) else part.text for part in found)
                texts.append((place, "".join(parts)))
        lines, charset = self._lines, NAMED_CHARSET.search(b"".join(self._lines[:1000]))
        is_template = charset is not None and charset[2] == b"CHARSET"
        encoding = "ascii" if is_template else self._encoding
        try:
            "".join(text for _, text in texts).encode(encoding)
        except UnicodeEncodeError:  # then the file becomes UTF-8
            lines = [line.decode(self._encoding).encode() for line in lines]
            encoding = "utf-8"
        written, place_before = list[bytes](), 0
        for place, text in texts:
            written += lines[place_before : place.begin]
            written.append(_written(lines[place.begin], text, encoding))
            place_before = place.end
        whole = b"".join([*written, *lines[place_before:]])
        return whole if lines is self._lines else NAMED_CHARSET.sub(rb"\1UTF-8", whole, count=1)


def _places(entry: PoEntry, again: bool) -> Iterator[_Place]:
    """Yield where translations of an entry are written."""
    has_translation = any(target.text for _, target in entry.pairs())
    if entry.is_header or entry.is_obsolete or (has_translation and not again):
        return
    for source, target in entry.pairs():
        if not is_blank(source.text):
            yield _Place(target.begin - 1, target.end - 1, _parts(source.text))


def _parts(text: str) -> list[str | Request]:
    """Return the lines of a text as requests, and the white space around them."""
    return [part if is_blank(part) else _request(part) for part in BREAK.split(text) if part]


def _request(line: str) -> Request:
    """Return what asks for a line: as XML, if all of its tags and references are such."""
    if "<" in line and ">" not in re.sub(TAG, "", line):
        try:
            if any(token.kind is Kind.START for token in xml_tokens(line)):
                return Request(line, markup="xml", protect=(PLACEHOLDERS,))
        except LineError:
            pass
    return Request(line, protect=PROTECTED)


def _written(first_line: bytes, text: str, encoding: str) -> bytes:
    """Return the lines of a translation; ``first_line`` is that of the one before."""
    keyword, end = first_line[: first_line.index(b'"')], first_line[len(first_line.rstrip()) :]
    lines = text.split("\n")
    strings = [f"{line}\n" for line in lines[:-1]] + ([lines[-1]] if lines[-1] else [])
    if len(strings) > 1:
        strings = ["", *strings]
    escaped = (each.translate(ESCAPES) for each in strings or [""])
    return keyword + b"".join(f'"{each}"'.encode(encoding) + end for each in escaped)
