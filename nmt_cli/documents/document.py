"""What every format of documents has in common."""

from __future__ import annotations

import codecs
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import NamedTuple, Protocol

from nmt_cli.files.lines import why_not_unicode
from nmt_cli.files.text_files import SAMPLE, encoding_of, extends_ascii
from nmt_cli.messages.errors import UserError
from nmt_cli.translating.interface.request import Request
from nmt_cli.translating.interface.translation import Translation

BYTE_ORDER_MARKS = {
    "utf-8": codecs.BOM_UTF8,
    "utf-32-le": codecs.BOM_UTF32_LE,  # before that of UTF-16, with which it begins
    "utf-32-be": codecs.BOM_UTF32_BE,
    "utf-16-le": codecs.BOM_UTF16_LE,
    "utf-16-be": codecs.BOM_UTF16_BE,
}
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


def without_repeats(segments: Sequence[Request]) -> tuple[list[Request], list[int]]:
    """Return the different segments, and for each segment its place among them."""
    places = dict[Request, int]()
    found = [places.setdefault(segment, len(places)) for segment in segments]
    return list(places), found


def filled(document: Document, translations: Sequence[Translation]) -> bytes:
    """Return the document with the translation of each segment; those that failed stay."""
    pairs = zip(document.segments, translations, strict=True)
    return document.filled(
        [replace(each, text=segment.text) if each.error else each for segment, each in pairs]
    )


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
