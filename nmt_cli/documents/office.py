"""DOCX, PPTX, ODT and EPUB: which members are translated, and what their paragraphs hold.

Paragraphs are segments, and runs and links in them inline codes. What a run holds beside text, such
as a picture or the mark of a footnote, is a code without text; it may hold paragraphs of its own.
Tabs and line breaks divide a paragraph into segments. One whose translation is its source keeps its
bytes; another one gets a run for each stretch of text.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple
from urllib.parse import unquote

from nmt_cli.documents import pieces
from nmt_cli.documents.archive import OF_TEXTS, Archive, ArchiveDocument
from nmt_cli.documents.document import Document, DocumentError, decoded
from nmt_cli.documents.inline import CLOSE, InlineText, Kind, Part, divided, has_text, text_part
from nmt_cli.documents.markup import IN_XML, MarkupDocument
from nmt_cli.documents.pieces import Code, Format, Piece, Raw, point
from nmt_cli.messages import logs
from nmt_cli.translating.interface.request import LineError, Request
from nmt_cli.translating.interface.translation import Translation, in_groups
from nmt_cli.translating.segmentation.markup.blocks import Element, tree_of
from nmt_cli.translating.segmentation.markup.tokens import Token, TokenKind, xml_tokens

OOXML = "http://schemas.openxmlformats.org"
STRICT = "http://purl.oclc.org/ooxml"
MANIFEST, ENCRYPTED = "META-INF/manifest.xml", b"encryption-data"  # of OpenDocument
OASIS = "urn:oasis:names:tc:opendocument:xmlns"
UNKNOWN = "?"  # the prefix of namespaces of other formats
PREFIX = re.compile(r"<((?:[^\s:/>]+:)?)")  # of the name in a tag


class Layout(NamedTuple):
    """The names of a format, with the prefixes that it usually has."""

    namespaces: Mapping[str, str]  # their usual prefixes
    paragraphs: frozenset[str]
    wrappers: frozenset[str]  # around a part of the text of a paragraph
    breaks: frozenset[str]
    visible: frozenset[str]  # elements without text that have a place on a page
    kept: frozenset[str] = frozenset()  # elements whose paragraphs stay as they are
    # Pairs of elements without text that enclose text, and the attribute that both have, without
    # its prefix.
    ranges: Mapping[str, tuple[str, str]] = {}
    run: str = ""  # text is in runs; "": it is in the paragraph itself
    plain: frozenset[str] = frozenset()  # paragraphs of text without runs
    text: str = ""
    attributes: str = ""  # of the elements of text that are made
    properties: str = ""
    ignored: re.Pattern[str] = re.compile("$^")  # in properties: what is no format
    characters: Mapping[str, str] = {}  # elements that are a character of the text
    space: str = ""  # an element of spaces
    dropped: frozenset[str] = frozenset()  # elements that are about the words of the source
    # Fields: the marks of their begin, middle and end, their codes, and those that are an element.
    field_mark: str = ""
    field_code: str = ""
    simple_field: str = ""


def _names(prefix: str, words: str) -> frozenset[str]:
    return frozenset(f"{prefix}:{word}" for word in words.split())


WORD = Layout(
    namespaces={
        f"{OOXML}/wordprocessingml/2006/main": "w",
        f"{STRICT}/wordprocessingml/main": "w",
        f"{OOXML}/officeDocument/2006/math": "m",
        f"{STRICT}/officeDocument/math": "m",
    },
    paragraphs=_names("w", "p"),
    wrappers=_names("w", "hyperlink ins moveTo smartTag customXml sdt sdtContent dir bdo"),
    breaks=_names("w", "br cr tab ptab"),
    visible=_names("w", "drawing object pict footnoteReference endnoteReference sym ruby fldSimple")
    | _names("m", "oMath oMathPara")
    | {"mc:AlternateContent"},
    ranges={
        f"w:{kind}{begin}": (f"w:{kind}{end}", "id")
        for kind, begin, end in (
            ("bookmark", "Start", "End"),
            ("commentRange", "Start", "End"),
            ("perm", "Start", "End"),
        )
    },
    run="w:r",
    text="w:t",
    attributes=' xml:space="preserve"',
    properties="w:rPr",
    # Languages and marks of revisions divide words without being seen.
    ignored=re.compile(r"<(?:[\w.-]+:)?(?:lang|noProof)\b[^>]*/>"),
    characters={"w:noBreakHyphen": "\u2011", "w:softHyphen": "\u00ad"},
    dropped=_names("w", "proofErr lastRenderedPageBreak"),
    field_mark="w:fldChar",
    field_code="w:instrText",
    simple_field="w:fldSimple",
)
DRAWING = Layout(
    namespaces={f"{OOXML}/drawingml/2006/main": "a", f"{STRICT}/drawingml/main": "a"},
    paragraphs=_names("a", "p"),
    wrappers=frozenset(),
    breaks=_names("a", "br"),
    visible=_names("a", "fld") | {"mc:AlternateContent", "a14:m"},
    run="a:r",
    text="a:t",
    properties="a:rPr",
    ignored=re.compile(r'\s(?:lang|altLang|dirty|err|smtClean|noProof)="[^"]*"'),
)
ODF = Layout(
    namespaces={
        f"{OASIS}:text:1.0": "text",
        f"{OASIS}:drawing:1.0": "draw",
        f"{OASIS}:office:1.0": "office",
    },
    paragraphs=_names("text", "p h"),
    wrappers=_names("text", "span a meta meta-field"),
    breaks=_names("text", "tab line-break"),
    visible=_names("text", "note page-number page-count date time chapter sequence ruby title")
    | _names("text", "reference-ref bookmark-ref note-ref expression variable-get user-field-get")
    | _names("draw", "frame a custom-shape g rect line"),
    kept=_names("text", "tracked-changes"),
    space="text:s",
    ranges={
        "text:bookmark-start": ("text:bookmark-end", "name"),
        "text:reference-mark-start": ("text:reference-mark-end", "name"),
        "office:annotation": ("office:annotation-end", "name"),
    },
)
CHART = DRAWING._replace(
    namespaces={
        **DRAWING.namespaces,
        f"{OOXML}/drawingml/2006/chart": "c",
        f"{STRICT}/drawingml/chart": "c",
    },
    paragraphs=_names("a", "p") | _names("c", "v"),
    plain=_names("c", "v"),  # names of categories and series
    kept=_names("c", "numCache numLit"),
)
NO_NAME = r"\\(?:d\*)?"  # in a pattern
DIAGRAMS = r"diagrams/(?:data|drawing)\d+\.xml"
CHARTS = r"charts/chart\d+\.xml"
# By format: a pattern of a member that it needs, and the layouts of members that match a pattern.
MEMBERS: Mapping[str, tuple[str, Mapping[str, Layout]]] = {
    "docx": (
        r"word/document\d*\.xml",
        {
            r"word/(?:document\d*|header\d+|footer\d+|footnotes|endnotes|comments)\.xml": WORD,
            rf"word/{DIAGRAMS}": DRAWING,
            rf"word/{CHARTS}": CHART,
        },
    ),
    "pptx": (
        r"ppt/presentation\.xml",
        {
            rf"ppt/(?:slides/slide\d+\.xml|notesSlides/notesSlide\d+\.xml|{DIAGRAMS})": DRAWING,
            rf"ppt/{CHARTS}": CHART,
        },
    ),
    "odt": (r"content\.xml", {r"(?:content|styles)\.xml": ODF}),
}
# Of EPUB, also tables of contents.
CHAPTERS = {"application/xhtml+xml", "application/x-dtbncx+xml", "text/html"}


def read_office(data: bytes, form: str) -> ArchiveDocument:
    """Return a document of one of ``MEMBERS``. Raises DocumentError if it cannot be read."""
    archive, (needed, layouts) = Archive(data), MEMBERS[form]
    if not any(re.fullmatch(needed, name) for name in archive.names):
        raise DocumentError(f"it has no member {re.sub(NO_NAME, '', needed)}")
    if MANIFEST in archive.names and ENCRYPTED in archive.read(MANIFEST):
        raise DocumentError("it is encrypted; save it without a password")
    members = dict[str, Document]()
    for name in archive.names:
        for pattern, layout in layouts.items():
            if re.fullmatch(pattern, name):
                members[name] = archive.opened(name, partial(ParagraphDocument, layout=layout))
    return ArchiveDocument(archive, members)


def read_epub(data: bytes) -> ArchiveDocument:
    """Return a book, whose chapters that are not well-formed stay as they are, with a warning.

    Raises DocumentError if it cannot be read, for example if it is encrypted.
    """
    archive, members, damaged = Archive(data), dict[str, Document](), list[str]()
    for root in _tags(archive, "META-INF/container.xml", "rootfile"):
        package = root.attributes.get("full-path") or ""
        for item in _tags(archive, package, "item"):
            path = unquote(item.attributes.get("href") or "")
            name = posixpath.normpath(posixpath.join(posixpath.dirname(package), path))
            if item.attributes.get("media-type") in CHAPTERS and name in archive.names:
                if not name.lower().endswith(OF_TEXTS):
                    damaged.append(f"its text {name} ends in none of {', '.join(OF_TEXTS)}")
                    continue
                content = archive.read(name)
                try:
                    members[name] = MarkupDocument(content, markup="xml")
                except (DocumentError, LineError) as error:
                    damaged.append(f"its member {name}: {error}")
    if not members:
        raise DocumentError(damaged[0] if damaged else "it has no chapters")
    for each in damaged:
        logs.warning(f"Not all of the book is translated: {each}; it stays as it is.")
    return ArchiveDocument(archive, members)


def _tags(archive: Archive, member: str, name: str) -> Iterator[Token]:
    """Yield the start tags of this name, with any prefix, in a member of XML."""
    for token in archive.opened(member, lambda data: xml_tokens(decoded(data, IN_XML).text)):
        if token.attributes and token.name.rpartition(":")[2] == name:
            yield token


class ParagraphDocument:
    """A member of an office document."""

    def __init__(self, data: bytes, layout: Layout) -> None:
        """Raise LineError if it is not well-formed, and DocumentError if it declares entities."""
        self._decoded = decoded(data, IN_XML)
        self._root = tree_of(self._decoded.text, "xml")
        if any(isinstance(each, Token) and "<!DOCTYPE" in each.raw for each in self._root.children):
            raise DocumentError("it has a DOCTYPE, which documents of its format never have")
        _rename(self._root, layout)
        self._paragraphs = [
            paragraph
            for element in _elements(self._root, layout)
            if (paragraph := Paragraph(element, layout)).segments
        ]
        self.segments: Sequence[Request] = [
            segment.request for paragraph in self._paragraphs for segment in paragraph.segments
        ]

    def filled(self, translations: Sequence[Translation]) -> bytes:
        """Return the member with the translation of each segment in its place."""
        of_each = in_groups(translations, (len(each.segments) for each in self._paragraphs))
        # A paragraph within a run of another one comes behind it, and is written first.
        for paragraph, own in reversed(list(zip(self._paragraphs, of_each, strict=True))):
            paragraph.fill([translation.text for translation in own])
        return self._decoded.encoded(self._root.raw())


class Paragraph:
    """A paragraph, in which breaks divide the segments."""

    def __init__(self, element: Element, layout: Layout) -> None:
        self._element = element
        if element.start.name in layout.plain:
            layout = layout._replace(run="")
        found = pieces.paired(list(_pieces(element.children, layout)))
        if not layout.run:
            found = list(pieces.collapsed(found))
        parts, self._usual = pieces.with_formats(found)
        self._chunks = [InlineText(chunk) if has_text(chunk) else chunk for chunk in divided(parts)]
        self.segments = [each for each in self._chunks if isinstance(each, InlineText)]

    def fill(self, translations: Sequence[str]) -> None:
        """Put these translations of the segments into the element, unless they are the source."""
        sources = [segment.request.text for segment in self.segments]
        if list(translations) == sources:
            return
        rest, filled = iter(translations), list[str]()
        for chunk in self._chunks:
            parts = chunk.translated(next(rest)) if isinstance(chunk, InlineText) else chunk
            filled += pieces.written(parts, self._usual)
        self._element.children = [Token(TokenKind.OTHER, "".join(filled))]


def _elements(root: Element, layout: Layout) -> Iterator[Element]:
    """Yield the paragraphs, also those within others, in the order of the document."""
    waiting = [root]
    while waiting:
        element = waiting.pop()
        if element.start.name in layout.kept:
            continue
        if element.start.name in layout.paragraphs:
            yield element
        waiting += [each for each in reversed(element.children) if isinstance(each, Element)]


def _rename(root: Element, layout: Layout) -> None:
    """Give elements the usual prefixes of their namespaces, where the document has others."""
    waiting: list[tuple[Element, Mapping[str, str]]] = [(root, {})]
    while waiting:
        element, usual = waiting.pop()
        if "xmlns" in element.start.raw:
            declared = {
                key.partition(":")[2]: layout.namespaces.get(value or "", UNKNOWN)
                for key, value in element.start.attributes.items()
                if key.partition(":")[0] == "xmlns"
            }
            usual = {**usual, **declared}
        prefix, _, local = element.start.name.rpartition(":")
        found = usual.get(prefix, prefix)
        if found != prefix and (found != UNKNOWN or prefix in layout.namespaces.values()):
            element.start = element.start._replace(name=f"{found}:{local}")
        waiting += [(each, usual) for each in element.children if isinstance(each, Element)]


def _pieces(children: Sequence[Element | Token], layout: Layout) -> Iterator[Piece]:
    """Yield what the content of a paragraph is, without the pairs of ranges and fields."""
    for child in children:
        if isinstance(child, Token):
            meaning = "".join(each for _, each in child.parts)
            if child.kind is TokenKind.TEXT and not layout.run:
                yield Piece(text_part(meaning))
            else:
                yield point(partial(str, child.raw), is_visible=False)
        elif child.start.name == layout.run:
            yield from _of_run(child, layout)
        elif child.start.name in layout.dropped:
            continue
        elif child.start.name in layout.wrappers or _is_text_field(child, layout):
            code = Code(partial(str, child.start.raw), partial(str, child.end), pieces.NO_FORMAT)
            yield Piece(Part(Kind.OPEN, code=code))
            yield from _pieces(child.children, layout)
            yield Piece(CLOSE)
        else:
            yield _of_element(child, child.raw, layout)


def _of_run(run: Element, layout: Layout) -> Iterator[Piece]:
    """Yield a piece for everything in a run, each with the format of the run."""
    elements = [each for each in run.children if isinstance(each, Element)]
    properties = "".join(e.raw() for e in elements if e.start.name == layout.properties)
    start, end = f"{run.start.raw}{properties}", run.end
    text_name = PREFIX.match(run.start.raw)[1] + layout.text.rpartition(":")[2]  # type: ignore[index]
    key = re.sub(r"^<[\w:]+\s*(?:/>|></[\w:]+>)$", "", layout.ignored.sub("", properties))
    found = Format(f"{start}<{text_name}{layout.attributes}>", f"</{text_name}>{end}", key)
    for each in elements:
        name = each.start.name

        def raw(element: Element = each) -> str:
            return f"{start}{element.raw()}{end}"

        tokens = [e for e in each.children if isinstance(e, Token) and e.kind is TokenKind.TEXT]
        if name == layout.text and len(tokens) == len(each.children):
            text = "".join(meaning for token in tokens for _, meaning in token.parts)
            yield Piece(text_part(text), found)
        elif name in layout.characters:
            yield Piece(Part(Kind.TEXT, layout.characters[name], raw), found)
        elif name == layout.field_mark:
            mark = next((v for k, v in each.start.attributes.items() if k.endswith("Type")), "")
            yield point(raw)._replace(mark=f"field {mark}")
        elif name == layout.field_code:
            code = "".join(child.raw for child in each.children if isinstance(child, Token))
            yield point(raw, is_visible=False)._replace(mark="code", name=code)
        elif name != layout.properties and name not in layout.dropped:
            yield _of_element(each, raw, layout)


def _is_text_field(element: Element, layout: Layout) -> bool:
    """Return whether this is a field in an element, whose result is text."""
    attributes = element.start.attributes.items()
    code = next((value or "" for key, value in attributes if key.endswith("instr")), "")
    return element.start.name == layout.simple_field and pieces.TEXT_FIELD.match(code) is not None


def _of_element(element: Element, raw: Raw, layout: Layout) -> Piece:
    """Return the piece of an element without text of the paragraph."""
    name = element.start.name
    if name in layout.breaks:
        return Piece(Part(Kind.BREAK, code=raw))
    piece = point(raw, is_visible=name in layout.visible)
    if name == layout.space:
        number = next((v for k, v in element.start.attributes.items() if k.endswith(":c")), None)
        return piece._replace(mark="space", name=number or "1")
    for kind, (end, attribute) in layout.ranges.items():
        if name in {kind, end}:
            attributes = element.start.attributes.items()
            same = next((v for k, v in attributes if k.rpartition(":")[2] == attribute), None)
            identity = f"{kind} {same}"
            return piece._replace(mark="begin" if name == kind else "end", name=identity)
    return piece
