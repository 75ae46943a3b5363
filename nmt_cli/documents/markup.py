"""Documents of HTML and XML: each block of text is a segment, with the inline elements in it."""

from __future__ import annotations

import re
from collections.abc import Sequence

from nmt_cli.documents.document import DocumentError, decoded
from nmt_cli.translating.markup.blocks import Markup, blocks_of
from nmt_cli.translating.request import LineError, Request
from nmt_cli.translating.translation import Translation

IN_HTML = re.compile(rb"""<meta\s[^>]*?charset\s*=\s*["']?\s*([\w.:-]+)""", re.IGNORECASE)
IN_XML = re.compile(rb"""\A<\?xml\s[^>]*?encoding\s*=\s*["']([\w.:-]+)""")
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
        self.segments, self._between = list[Request](), [""]
        self._wrappings = list[tuple[str, str]]()
        for part in parts:
            if isinstance(part, str):
                self._between[-1] += part
                continue
            segment = part.raw.strip()
            start = part.raw.index(segment)
            self._between[-1] += part.raw[:start]
            self._between.append(part.raw[start + len(segment) :])
            before, after = _wrapping(segment) if markup == "xml" else ("", "")
            self._wrappings.append((before, after))
            self.segments.append(Request(f"{before}{segment}{after}", markup=markup))

    def filled(self, translations: Sequence[Translation]) -> str:
        """Return the text with the translation of each block in its place."""
        filled = [self._between[0]]
        for translation, (before, after), between in zip(
            translations, self._wrappings, self._between[1:], strict=True
        ):
            text = translation.text
            filled += [text[len(before) : len(text) - len(after)], between]
        return "".join(filled)


def _wrapping(segment: str) -> tuple[str, str]:
    """Return what makes a block of XML a document that declares its entities, if it has any."""
    if not (names := set(ENTITY.findall(segment))):
        return "", ""
    declarations = "".join(f'<!ENTITY {name} "">' for name in sorted(names))
    return f"<!DOCTYPE block [{declarations}]><block>", "</block>"


class MarkupDocument:
    """A document of HTML or XML."""

    def __init__(self, data: bytes, markup: Markup, names_encoding: re.Pattern[bytes]) -> None:
        self._decoded = decoded(data, names_encoding)
        self._text = MarkupText(self._decoded.text, markup)
        self.segments: Sequence[Request] = self._text.segments

    def filled(self, translations: Sequence[Translation]) -> bytes:
        """Return the document with the translation of each block in its place."""
        return self._decoded.encoded(self._text.filled(translations))


def read_html(data: bytes) -> MarkupDocument:
    """Return a document of HTML. Raises DocumentError if it cannot be read."""
    return MarkupDocument(data, "html", IN_HTML)


def read_xml(data: bytes) -> MarkupDocument:
    """Return a document of XML. Raises DocumentError if it is not well-formed."""
    return MarkupDocument(data, "xml", IN_XML)
