"""PO and POT files of gettext: each line of a text without a translation is a segment."""

from __future__ import annotations

import io
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from nmt_cli.corpus.text.po_files import NAMED_CHARSET, PoEntry, PoError, po_charset, po_entries
from nmt_cli.documents.document import DocumentError
from nmt_cli.files.lines import is_blank
from nmt_cli.messages import logs
from nmt_cli.messages.figures import counted
from nmt_cli.translating.interface.protection import PLACEHOLDERS
from nmt_cli.translating.interface.request import LineError, Request
from nmt_cli.translating.interface.translation import Translation
from nmt_cli.translating.segmentation.markup.tokens import TokenKind, xml_tokens

# White space around lines; it is looked for only where it begins, so that much of it takes no time.
BREAK = re.compile(r"((?<!\s)\s*\n\s*|\A\s+|(?<!\s)\s+\Z)")
TAG = r"</?[A-Za-z][^<>]*>"
PROTECTED = (PLACEHOLDERS, TAG, r"&#?\w+;")  # patterns of what a translation copies
# Format directives, such as %s, by the flag of an entry, as gettext checks them.
# Counts have bounds, because a thousand zeros may be flags and digits in a million ways.
_NUMBER, _SIZE = r"(?:\d{1,4}\$)?", r"(?:\d{1,9}|\*(?:\d{1,4}\$)?)?"
_LENGTH = r"(?:hh?|ll?|[qLjzZt]|I(?:64|32)?|wf?\d{1,3})?"
_PRINTF = rf"%{_NUMBER}[-+ #0'I]{{0,9}}{_SIZE}(?:\.{_SIZE})?{_LENGTH}"
_C = rf"{_PRINTF}(?:[diouxXeEfFgGaAcCsSpnm]|<\w+>)"
_PYTHON = rf"%(?:\([^()]*\))?[-+ #0]{{0,9}}{_SIZE}(?:\.{_SIZE})?[hlL]?[diouxXeEfFgGcrsa]"
_BRACES = r"\{[^{}]*(?:\{[^{}]*\}[^{}]*)*\}"
_PERCENT_NUMBER = r"%[1-9]\d?"
FORMATS: Mapping[str, str] = {
    "boost-format": rf"%\|[^|]*\||%\d+%|{_C}",
    "c++-format": _BRACES,
    "c-format": _C,
    "csharp-format": _BRACES,
    "elixir-format": r"%\{\w+\}",
    "go-format": rf"{_PRINTF}[a-zA-Z]",
    "java-format": _BRACES,
    "java-printf-format": (
        rf"%(?:{_NUMBER}|<)[-#+ 0,(]{{0,9}}\d{{0,9}}(?:\.\d{{1,9}})?[tT]?[a-zA-Z]"
    ),
    "javascript-format": rf"{_PRINTF}[diouxXeEfFgGcsj]|\$\d+",
    "kde-format": _PERCENT_NUMBER,
    "kde-kuit-format": _PERCENT_NUMBER,
    "lisp-format": r"~[-+\d,'#vV:@]*[a-zA-Z%&|~(){}\[\]<>;^*?$/]",
    "objc-format": rf"%#@\w+@|{_PRINTF}@|{_C}",
    "perl-brace-format": r"\{\w+\}",
    "php-format": rf"%{_NUMBER}(?:[-+ 0]|'.){{0,9}}\d{{0,9}}(?:\.\d{{1,9}})?[bcdeEfFgGosuxX]",
    "python-brace-format": _BRACES,
    "python-format": _PYTHON,
    "qt-format": r"%L?(?:[1-9]\d?|n)",
    "qt-plural-format": r"%L?n",
    "ruby-format": rf"%\{{[^{{}}]*\}}|%<[^<>]*>[-+ #0*\d.]{{0,20}}[a-zA-Z]|{_C}",
    "rust-format": _BRACES,
    "sh-format": r"\$\w+|\$\{\w+\}",
    "smalltalk-format": r"%\d",
    "ycp-format": r"%\d",
}
MOST_NAMED = 10  # lines in a message
# Flags that are not in FORMATS, such as awk-format, stand for directives as in C.
FORMAT_FLAG = re.compile(r"(?!no-|possible-|impossible-)[\w+]+(?:-\w+)*-format")
ESCAPES = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t", "\r": "\\r"})


class _Place(NamedTuple):
    """Where a translation is written, and the parts of its source."""

    begin: int  # its lines, counted from 0
    end: int
    parts: Sequence[str | Request]  # white space stays as it is
    formats: re.Pattern[str] | None  # of format directives, if the entry has a flag of one

    def has_formats_of_source(self, text: str) -> bool:
        """Return whether a translation has the format directives of its source, as often."""
        if self.formats is None:
            return True
        texts = text, _joined(self.parts)
        found, wanted = (Counter(_formats_in(each, self.formats)) for each in texts)
        return found == wanted


class PoDocument:
    """A PO file; what has a translation is only translated ``again`` if that is asked for."""

    def __init__(self, data: bytes, again: bool) -> None:
        """Raise DocumentError for a line that is wrong."""
        # Old programs of the Mac end lines with CR.
        lines = io.BytesIO(data).readlines() if b"\n" in data else data.splitlines(keepends=True)
        self._lines, self._places = lines, list[_Place]()
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
        """Return the file with the translations.

        A text stays without one if a line of it failed, or if the translation has other format
        directives than the text; a warning counts the latter.
        """
        texts, rest, others = list[tuple[_Place, str]](), iter(translations), list[_Place]()
        for place in self._places:
            found = [part if isinstance(part, str) else next(rest) for part in place.parts]
            if any(isinstance(part, Translation) and part.error for part in found):
                continue
            text = _joined(found)
            if place.has_formats_of_source(text):
                texts.append((place, text))
            else:
                others.append(place)
        _warn_of_formats(others)
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
            pattern = _formats_of(entry)
            parts = _parts(source.text, [] if pattern is None else [pattern])
            formats = None if pattern is None else re.compile(pattern)
            yield _Place(target.begin - 1, target.end - 1, parts, formats)


def _joined(parts: Sequence[str | Request | Translation]) -> str:
    return "".join(part if isinstance(part, str) else part.text for part in parts)


def _formats_of(entry: PoEntry) -> str | None:
    """Return the pattern of the format directives of an entry, if it has a flag of one."""
    flags = [flag for flag in sorted(entry.flags) if FORMAT_FLAG.fullmatch(flag)]
    return rf"%%|{FORMATS.get(flags[0], _C)}" if flags else None


def _formats_in(text: str, formats: re.Pattern[str]) -> Iterator[str]:
    return (match[0] for match in formats.finditer(text) if match[0] != "%%")


def _warn_of_formats(places: Sequence[_Place]) -> None:
    if places:
        lines = ", ".join(f"{place.begin + 1:,}" for place in places[:MOST_NAMED])
        more = ", ..." if len(places) > MOST_NAMED else ""
        logs.warning(
            f"{counted(len(places), 'translation')} left out, because the formats differ from "
            f"those of the source: line {lines}{more}."
        )


def _parts(text: str, formats: Sequence[str]) -> list[str | Request]:
    """Return the lines of a text as requests, and the white space around them."""
    return [
        part if is_blank(part) else _request(part, formats) for part in BREAK.split(text) if part
    ]


def _request(line: str, formats: Sequence[str]) -> Request:
    """Return what asks for a line: as XML, if all of its tags and references are such."""
    if "<" in line and ">" not in re.sub(TAG, "", line):
        try:
            if any(token.kind is TokenKind.START for token in xml_tokens(line)):
                return Request(line, markup="xml", protect=(*formats, PLACEHOLDERS))
        except LineError:
            pass
    return Request(line, protect=(*formats, *PROTECTED))


def _written(first_line: bytes, text: str, encoding: str) -> bytes:
    """Return the lines of a translation; ``first_line`` is that of the one before."""
    end = first_line[len(first_line.rstrip()) :]
    keyword, quote, _ = first_line.partition(b'"')
    keyword = keyword if quote else keyword.rstrip() + b" "  # its string was on the next line
    lines = text.split("\n")
    strings = [f"{line}\n" for line in lines[:-1]] + ([lines[-1]] if lines[-1] else [])
    if len(strings) > 1:
        strings = ["", *strings]
    escaped = (each.translate(ESCAPES) for each in strings or [""])
    return keyword + b"".join(f'"{each}"'.encode(encoding) + end for each in escaped)
