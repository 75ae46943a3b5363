"""What every format of documents has in common."""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple, Protocol

from nmt_cli.files.lines import why_not_unicode
from nmt_cli.files.text_files import SAMPLE, encoding_of, extends_ascii
from nmt_cli.messages.errors import UserError
from nmt_cli.translating.interface.request import Request
from nmt_cli.translating.interface.translation import Translation, in_groups, kth_of_each

if TYPE_CHECKING:
    from nmt_cli.documents.unit_texts import UnitText

BYTE_ORDER_MARKS = {
    "utf-8": codecs.BOM_UTF8,
    "utf-32-le": codecs.BOM_UTF32_LE,  # before that of UTF-16, with which it begins
    "utf-32-be": codecs.BOM_UTF32_BE,
    "utf-16-le": codecs.BOM_UTF16_LE,
    "utf-16-be": codecs.BOM_UTF16_BE,
}
CHANGED = "its translation has other format directives or other branches of ICU than its source"
SEARCHED = 1024  # bytes in which HTML may name its encoding


class DocumentError(UserError):
    """A document cannot be read; the message is the reason, and does not name the document."""


class Document(Protocol):
    """A document that was read."""

    @property
    def segments(self) -> Sequence[Request]:
        """What is translated, in order; equal segments get the same translation."""

    def filled(self, translations: Sequence[Translation]) -> bytes:
        """Return the document with the translation of each segment in its place.

        The translation of a segment that failed has an ``error``, and the segment's own text.
        """


class LeftOut(NamedTuple):
    """A text that stays without a translation."""

    segment: int  # its number; 0: it is no segment, because the document excludes it
    text: str
    reason: str


class Bilingual:
    """What documents with translations beside their sources have in common."""

    # Why it has no segments.
    nothing_left = "each text has a translation or is locked; --retranslate translates again"
    # Of its sources and its translations, where it names them.
    named_languages: tuple[str | None, str | None] = (None, None)

    def __init__(self, texts: Sequence[UnitText], locked: Sequence[UnitText] = ()) -> None:
        """``locked`` texts would be translated if the document did not exclude them."""
        self._texts, self._locked = texts, locked
        self.segments: Sequence[Request] = [each for text in texts for each in text.requests]
        self.left_out = list[LeftOut]()  # when it was filled

    def _written(self, translations: Sequence[Translation]) -> Iterator[list[str]]:
        """Yield for each text its translation and the alternatives; none if it is left out."""
        self.left_out = [LeftOut(0, each.text, "locked by the document") for each in self._locked]
        sizes, number = [len(each.requests) for each in self._texts], 1
        for text, own in zip(self._texts, in_groups(translations, sizes), strict=True):
            found = list[str]()
            if not any(each.error for each in own):
                ranked = [[each.text, *(o.text for o in each.alternatives)] for each in own]
                first, *others = map(text.written, kth_of_each(ranked))
                if first is None:
                    self.left_out.append(LeftOut(number, text.text, CHANGED))
                else:
                    found = [first, *filter(None, others)]
            yield found
            number += len(own)


def without_repeats(segments: Sequence[Request]) -> tuple[list[Request], list[int]]:
    """Return the different segments, and for each segment its place among them."""
    places = dict[Request, int]()
    found = [places.setdefault(segment, len(places)) for segment in segments]
    return list(places), found


def filled(document: Document, translations: Sequence[Translation]) -> tuple[bytes, list[LeftOut]]:
    """Return the document with the translation of each segment, and what is left out of it."""
    left_out, given = list[LeftOut](), list[Translation]()
    for segment, each in zip(document.segments, translations, strict=True):
        if each.error:
            left_out.append(LeftOut(len(given) + 1, segment.text, each.error))
        given.append(replace(each, text=segment.text) if each.error else each)
    data = document.filled(given)
    return data, [*left_out, *(document.left_out if isinstance(document, Bilingual) else ())]


class Decoded(NamedTuple):
    """The text of a file, and what is needed to write another one in its place."""

    text: str
    byte_order_mark: bytes
    encoding: str

    def encoded(self, text: str) -> bytes:
        """Return ``text`` in the encoding of the file.

        Characters that the encoding lacks become references of HTML and XML.
        """
        return self.byte_order_mark + text.encode(self.encoding, "xmlcharrefreplace")


def decoded(
    data: bytes,
    names_encoding: re.Pattern[bytes] | None = None,
    meant: Mapping[str, str] = {},
) -> Decoded:
    """Return the text of ``data``: in the encoding of its byte order mark, or in UTF-8.

    A group of ``names_encoding`` is the name of another one, or of the one that is ``meant`` by its
    name in Python. Raises DocumentError if the bytes are in another encoding.
    """
    named = names_encoding and names_encoding.search(data[:SEARCHED])
    mark, encoding = b"", named[1].decode("latin-1") if named else "utf-8"
    for marked, begin in BYTE_ORDER_MARKS.items():
        if data.startswith(begin):
            mark, encoding = begin, marked
            break
    if not mark and (other := encoding_of(data[:SAMPLE])) is not None:
        raise DocumentError(f"it is {other} without a byte order mark; convert it to UTF-8")
    if mark or extends_ascii(encoding):
        for each in filter(None, (meant.get(codecs.lookup(encoding).name), encoding)):
            with suppress(ValueError):
                text = data[len(mark) :].decode(each)
                if why_not_unicode(text) is None and text.encode(each) == data[len(mark) :]:
                    return Decoded(text, mark, each)
    raise DocumentError(f"it is not in the encoding {encoding}; convert it to UTF-8")
