"""PO and POT files of gettext: each line of a text without a translation is a segment."""

from __future__ import annotations

import io
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from nmt_cli.corpus.text.po_files import (
    NAMED_CHARSET,
    PoEntry,
    PoError,
    po_charset,
    po_entries,
    po_language,
)
from nmt_cli.documents.document import Bilingual, DocumentError
from nmt_cli.documents.inline import text_part
from nmt_cli.documents.unit_texts import PROTECTED, TAG, UnitText, unit_text
from nmt_cli.files.lines import is_blank
from nmt_cli.translating.interface.protection import PLACEHOLDERS, Protection
from nmt_cli.translating.interface.request import LineError, Request
from nmt_cli.translating.interface.translation import Translation
from nmt_cli.translating.segmentation.icu_messages import has_branches
from nmt_cli.translating.segmentation.markup.tokens import TokenKind, xml_tokens

# White space around lines; it is looked for only where it begins, so that much of it takes no time.
BREAK = re.compile(r"((?<!\s)\s*\n\s*|\A\s+|(?<!\s)\s+\Z)")
ESCAPES = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t", "\r": "\\r"})


class _Place(NamedTuple):
    """Where a translation is written, and what it translates."""

    begin: int  # its lines, counted from 0
    end: int
    text: UnitText


class PoDocument(Bilingual):
    """A PO file; what has a translation is only translated ``again`` if that is asked for."""

    def __init__(self, data: bytes, again: bool) -> None:
        """Raise DocumentError for a line that is wrong."""
        # Old programs of the Mac end lines with CR.
        lines = io.BytesIO(data).readlines() if b"\n" in data else data.splitlines(keepends=True)
        self._lines, self._places = lines, list[_Place]()
        try:
            self._encoding = po_charset(data)
            for entry in po_entries(self._lines, self._encoding):
                if entry.is_header:
                    self.named_languages = None, po_language(entry)
                self._places += _places(entry, again)
        except PoError as error:
            raise DocumentError(f"line {error.line:,}: {error}") from None
        super().__init__([place.text for place in self._places])

    def filled(self, translations: Sequence[Translation]) -> bytes:
        """Return the file with the translations.

        A text stays without one if a line of it failed, or if the translation has other format
        directives than the text.
        """
        written = zip(self._places, self._written(translations), strict=True)
        texts = [(place, found[0]) for place, found in written if found]
        lines, charset = self._lines, NAMED_CHARSET.search(b"".join(self._lines[:1000]))
        is_template = charset is not None and charset[2] == b"CHARSET"
        encoding = "ascii" if is_template else self._encoding
        try:
            "".join(text for _, text in texts).encode(encoding)
        except UnicodeEncodeError:  # then the file becomes UTF-8
            lines = [line.decode(self._encoding).encode() for line in lines]
            encoding = "utf-8"
        output, place_before = list[bytes](), 0
        for place, text in texts:
            output += lines[place_before : place.begin]
            output.append(_written(lines[place.begin], text, encoding))
            place_before = place.end
        whole = b"".join([*output, *lines[place_before:]])
        return whole if lines is self._lines else NAMED_CHARSET.sub(rb"\1UTF-8", whole, count=1)


def _places(entry: PoEntry, again: bool) -> Iterator[_Place]:
    """Yield where translations of an entry are written."""
    has_translation = any(target.text for _, target in entry.pairs())
    if entry.is_header or entry.is_obsolete or (has_translation and not again):
        return
    formats, several = entry.formats, entry.texts.get("msgid_plural")
    for source, target in entry.pairs():
        text = source.text
        if entry.plural.is_often and several and _lacks_any(text, several.text, formats):
            text = several.text  # "one file" is not for 21 files
        if not is_blank(text):
            yield _Place(target.begin - 1, target.end - 1, _text(text, formats))


def _text(text: str, formats: str | None) -> UnitText:
    """Return the text of an entry with the pattern of its ``formats``, if it has a flag of any.

    A translation has those of the source, as often.
    """
    patterns = [] if formats is None else [formats]
    found = unit_text([text_part(text)], str, (*patterns, *PROTECTED))
    if not has_branches(text):
        found.pieces = _parts(text, patterns)
    if formats is not None:
        fits, wanted = found.fits, Counter(_formats_in(text, formats))
        found.fits = lambda plain: fits(plain) and Counter(_formats_in(plain, formats)) == wanted
    return found


def _formats_in(text: str, formats: str) -> Iterator[str]:
    return (match[0] for match in re.finditer(formats, text) if match[0] != "%%")


def _lacks_any(text: str, other: str, formats: str | None) -> bool:
    """Return whether ``other`` has placeholders that ``text`` has not."""
    kept = Protection((PLACEHOLDERS, *filter(None, [formats])))
    wanted, found = (
        Counter(each[match.begin : match.end] for match in kept.found_in(each))
        for each in (other, text)
    )
    return bool(wanted - found)


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
