"""Documents of HTML and XML: each block of text is a segment, with the inline elements in it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from html.entities import html5
from typing import NamedTuple

from nmt_cli.documents.document import Decoded, DocumentError, decoded
from nmt_cli.translating.markup.blocks import Markup, blocks_of
from nmt_cli.translating.request import LineError, Request
from nmt_cli.translating.translation import Translation

IN_HTML = re.compile(rb"""<meta\s[^>]*?charset\s*=\s*["']?\s*([\w.:-]+)""", re.IGNORECASE)
IN_XML = re.compile(rb"""\A<\?xml\s[^>]*?encoding\s*=\s*["']([\w.:-]+)""")
# HTML means other encodings by these names: https://encoding.spec.whatwg.org/#names-and-labels
MEANT = {
    **{"iso8859-1": "cp1252", "iso8859-9": "cp1254", "iso8859-11": "cp874", "tis-620": "cp874"},
    **{"shift_jis": "cp932", "euc_kr": "cp949", "big5": "big5hkscs"},
    **{"gb2312": "gb18030", "gbk": "gb18030"},
}
# An entity that the document declares, or its DTD. A block alone must declare it again.
ENTITY = re.compile(r"&(?!(?:amp|lt|gt|quot|apos);)([^\s;&<#]+);")


class MarkupText:
    """The blocks of a text in HTML or XML, and what is between them."""

    def __init__(self, text: str, markup: Markup) -> None:
        """Raise DocumentError if the text is not well-formed XML, or is no HTML."""
        try:
            parts = blocks_of(text, markup)
        except LineError as error:
            raise DocumentError(str(error)) from None
        self.segments, self._between, self._sources = list[Request](), [""], list[_Source]()
        for part in parts:
            if isinstance(part, str):
                self._between[-1] += part
                continue
            segment = part.raw.strip()
            start = part.raw.index(segment)
            self._between[-1] += part.raw[:start]
            self._between.append(part.raw[start + len(segment) :])
            source = _source(segment) if markup == "xml" else _Source(segment, segment)
            self._sources.append(source)
            self.segments.append(Request(source.sent, markup=markup))

    def filled(self, translations: Sequence[Translation]) -> str:
        """Return the text with the translation of each block in its place."""
        filled = [self._between[0]]
        for translation, source, between in zip(
            translations, self._sources, self._between[1:], strict=True
        ):
            filled += [source.translated(translation.text), between]
        return "".join(filled)


class _Source(NamedTuple):
    """A block as it is in the document, and as it is sent to the translator."""

    raw: str
    sent: str
    names: Mapping[str, str] = {}  # of references to characters, by their numbers
    before: str = ""  # what makes the block a document
    after: str = ""

    def translated(self, text: str) -> str:
        """Return a translation of ``sent`` as it is in the document."""
        if text == self.sent:
            return self.raw
        for number, name in self.names.items():
            text = text.replace(number, name)
        return text[len(self.before) : len(text) - len(self.after)]


def _source(segment: str) -> _Source:
    """Return a block of XML, whose DTD it lacks.

    Characters that XHTML has names for are sent by their numbers. A block with other entities is
    sent as a document that declares them.
    """
    names = dict[str, str]()
    others = set[str]()
    for name in ENTITY.findall(segment):
        if characters := html5.get(f"{name};"):
            names["".join(f"&#{ord(each)};" for each in characters)] = f"&{name};"
        else:
            others.add(name)
    sent = segment
    for number, reference in names.items():
        sent = sent.replace(reference, number)
    if not others:
        return _Source(segment, sent, names)
    declarations = "".join(f'<!ENTITY {name} "">' for name in sorted(others))
    before, after = f"<!DOCTYPE block [{declarations}]><block>", "</block>"
    return _Source(segment, f"{before}{sent}{after}", names, before, after)


class MarkupDocument:
    """A document of HTML or XML."""

    def __init__(self, found: Decoded, markup: Markup) -> None:
        self._decoded, self._text = found, MarkupText(found.text, markup)
        self.segments: Sequence[Request] = self._text.segments

    def filled(self, translations: Sequence[Translation]) -> bytes:
        """Return the document with the translation of each block in its place."""
        return self._decoded.encoded(self._text.filled(translations))


def read_html(data: bytes) -> MarkupDocument:
    """Return a document of HTML. Raises DocumentError if it cannot be read."""
    return MarkupDocument(decoded(data, IN_HTML, MEANT), "html")


def read_xml(data: bytes) -> MarkupDocument:
    """Return a document of XML. Raises DocumentError if it is not well-formed."""
    return MarkupDocument(decoded(data, IN_XML), "xml")
