"""Documents of HTML and XML: each block of text is a segment, with the inline elements in it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from html.entities import html5
from typing import NamedTuple

from nmt_cli.documents.document import SEARCHED, decoded
from nmt_cli.documents.languages import with_language
from nmt_cli.messages import logs
from nmt_cli.recipe.translation_options import Markup
from nmt_cli.translating.interface.request import Request
from nmt_cli.translating.interface.translation import Translation
from nmt_cli.translating.segmentation.markup.blocks import blocks_of
from nmt_cli.translating.segmentation.segments import Output, Segments, whole

IN_HTML = re.compile(rb"""<meta\s[^>]*?charset\s*=\s*["']?\s*([\w.:-]+)""", re.IGNORECASE)
IN_XML = re.compile(rb"""\A<\?xml\s[^>]*?encoding\s*=\s*["']([\w.:-]+)""")
HTML_ROOT, XML_ROOT = re.compile(r"<html[\s/>]", re.IGNORECASE), re.compile(r"<[^?!]")
# HTML means other encodings by these names: https://encoding.spec.whatwg.org/#names-and-labels
MEANT = {
    **{"iso8859-1": "cp1252", "iso8859-9": "cp1254", "iso8859-11": "cp874", "tis-620": "cp874"},
    **{"shift_jis": "cp932", "euc_kr": "cp949", "big5": "big5hkscs"},
    **{"gb2312": "gb18030", "gbk": "gb18030"},
}
# An entity that the document declares, or its DTD. A block alone must declare it again.
ENTITY = re.compile(r"&(?!(?:amp|lt|gt|quot|apos);)([^\s;&<#]+);")


class MarkupDocument:
    """A document of HTML or XML: its blocks of text, and what is between them."""

    def __init__(self, data: bytes, markup: Markup, language: str | None = None) -> None:
        """Raise LineError if it is not well-formed XML, or is no HTML.

        Its root, which may name a language, names ``language``.
        """
        is_html = markup == "html"
        self._decoded = (
            decoded(_as_utf8(data), IN_HTML, MEANT) if is_html else decoded(data, IN_XML)
        )
        self._sources, between = list[_Source](), [list[str]()]
        for part in blocks_of(self._decoded.text, markup):
            if isinstance(part, str):
                if language is not None and (HTML_ROOT if is_html else XML_ROOT).match(part):
                    part, language = with_language(part, language), None
                between[-1].append(part)
                continue
            block = whole(part.raw)
            between[-1].append(block.gaps[0])
            between.append([block.gaps[1]])
            segment = block.texts[0]
            self._sources.append(_Source(segment, segment) if is_html else _source(segment))
        gaps = list(map("".join, between))
        self._layout = Segments([source.raw for source in self._sources], gaps)
        self.segments: Sequence[Request] = [
            Request(source.sent, markup=markup) for source in self._sources
        ]

    def filled(self, translations: Sequence[Translation]) -> bytes:
        """Return the document with the translation of each block in its place."""
        pairs = zip(self._sources, translations, strict=True)
        blocks = [Output(source.translated(each.text)) for source, each in pairs]
        return self._decoded.encoded(self._layout.filled(blocks))


def _as_utf8(data: bytes) -> bytes:
    """Return a page, which names UTF-8 if it is that and names another encoding."""
    named = IN_HTML.search(data[:SEARCHED])
    if named is None or named[1].lower() in {b"utf-8", b"utf8"} or data.isascii():
        return data
    try:
        data.decode()
    except UnicodeDecodeError:
        return data
    name = named[1].decode()
    logs.warning(f"The page names the encoding {name} but is UTF-8; its translation names UTF-8.")
    return data[: named.start(1)] + b"utf-8" + data[named.end(1) :]


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
