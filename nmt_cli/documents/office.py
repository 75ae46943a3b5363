"""DOCX, PPTX, ODT and EPUB: which members are translated, and what their paragraphs hold.

Members of office documents are known by the namespaces of their roots, whatever their names are.

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
from html import escape
from urllib.parse import unquote

from nmt_cli.documents import pieces
from nmt_cli.documents.archive import Archive, ArchiveDocument, TooLargeError
from nmt_cli.documents.document import Document, DocumentError, decoded
from nmt_cli.documents.inline import CLOSE, InlineText, Kind, Part, divided, has_text, text_part
from nmt_cli.documents.languages import stays, with_language
from nmt_cli.documents.layouts import NAMESPACES, PROPERTIES, ROOTS, UNKNOWN, Layout, layout_of
from nmt_cli.documents.markup import IN_XML, MarkupDocument
from nmt_cli.documents.pieces import Code, Format, Piece, Raw, point
from nmt_cli.messages import logs
from nmt_cli.translating.interface.request import Request
from nmt_cli.translating.interface.translation import Translation, in_groups
from nmt_cli.translating.segmentation.markup.blocks import Element, raw_of, tree_of
from nmt_cli.translating.segmentation.markup.tokens import Token, TokenKind, xml_tokens

MANIFEST, ENCRYPTED = "META-INF/manifest.xml", b"encryption-data"  # of OpenDocument
PREFIX = re.compile(r"<((?:[^\s:/>]+:)?)")  # of the name in a tag
# Of EPUB, also tables of contents.
CHAPTERS = {"application/xhtml+xml", "application/x-dtbncx+xml", "text/html"}


def read_office(data: bytes, form: str, language: str | None = None) -> ArchiveDocument:
    """Return a document of one of ``ROOTS``, which names ``language`` as its own once translated.

    Raises DocumentError if it cannot be read.
    """
    archive = Archive(data)
    if MANIFEST in archive.names and ENCRYPTED in archive.read(MANIFEST):
        raise DocumentError("it is encrypted; save it without a password")
    roots = dict[str, str]()
    for name in archive.names:
        namespace, _, root = archive.root_of(name).rpartition(" ")
        roots[name] = f"{NAMESPACES.get(namespace, UNKNOWN)}:{root}"
    if ROOTS[form] not in roots.values():
        raise DocumentError(f"it has no member of XML with the root {ROOTS[form]}")
    members = dict[str, Document]()
    for name, root in roots.items():
        if (layout := layout_of(root)) is not None:
            read = partial(ParagraphDocument, layout=layout, language=language)
            members[name] = archive.opened(name, read)
    return ArchiveDocument(archive, members)


def read_epub(data: bytes, language: str | None = None) -> ArchiveDocument:
    """Return a book, whose chapters that are not well-formed stay as they are, with a warning.

    Raises DocumentError if it cannot be read, for example if it is encrypted.
    """
    archive, members, damaged = Archive(data), dict[str, Document](), list[str]()
    chapter = partial(MarkupDocument, markup="xml", language=language)
    for root in _tags(archive, "META-INF/container.xml", "rootfile"):
        package = root.attributes.get("full-path") or ""
        for item in _tags(archive, package, "item"):
            path = unquote(item.attributes.get("href") or "")
            name = posixpath.normpath(posixpath.join(posixpath.dirname(package), path))
            if item.attributes.get("media-type") in CHAPTERS and name in archive.names:
                try:
                    members[name] = archive.opened(name, chapter)
                except TooLargeError:
                    raise
                except DocumentError as error:
                    damaged.append(str(error))
        if members and language is not None:
            of_book = partial(ParagraphDocument, layout=PROPERTIES, language=language)
            members[package] = archive.opened(package, of_book)
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

    def __init__(self, data: bytes, layout: Layout, language: str | None) -> None:
        """Raise LineError if it is not well-formed, and DocumentError if it declares entities."""
        self._decoded = decoded(data, IN_XML)
        self._root = tree_of(self._decoded.text, "xml")
        types = [e for e in self._root.children if isinstance(e, Token) and "<!DOCTYPE" in e.raw]
        if types and layout is not PROPERTIES:
            raise DocumentError("it has a DOCTYPE, which documents of its format never have")
        _rename(self._root, layout, language)
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
        name = element.start.name
        if name in layout.kept or (layout.placeholder and _has(element, layout.placeholder)):
            continue
        if name in layout.paragraphs:
            yield element
        waiting += [each for each in reversed(element.children) if isinstance(each, Element)]


def _has(element: Element, path: Sequence[str]) -> bool:
    """Return whether there is an element of the first name in it, with one of the next, ..."""
    found = [element]
    for name in path:
        inner = [child for each in found for child in each.children if isinstance(child, Element)]
        found = [each for each in inner if each.start.name == name]
    return bool(found)


def _rename(root: Element, layout: Layout, language: str | None) -> None:
    """Give elements the prefixes of ``NAMESPACES``, and name ``language`` where they name one."""
    waiting: list[tuple[Element, Mapping[str, str]]] = [(root, {})]
    while waiting:
        element, usual = waiting.pop()
        if "xmlns" in element.start.raw:
            declared = {
                key.partition(":")[2]: NAMESPACES.get(value or "", UNKNOWN)
                for key, value in element.start.attributes.items()
                if key.partition(":")[0] == "xmlns"
            }
            usual = {**usual, **declared}
        prefix, _, local = element.start.name.rpartition(":")
        found = usual.get(prefix, prefix)
        if found != prefix and (found != UNKNOWN or prefix in NAMESPACES.values()):
            element.start = element.start._replace(name=f"{found}:{local}")
        if language is not None:
            _name_language(element, layout, language)
        waiting += [(each, usual) for each in element.children if isinstance(each, Element)]


def _name_language(element: Element, layout: Layout, language: str) -> None:
    named = "".join(map(raw_of, element.children)) if element.start.name == "dc:language" else ""
    if not stays(named, language):
        element.children = [Token(TokenKind.OTHER, escape(language))]
    if attributes := layout.languages.get(element.start.name):
        raw = with_language(element.start.raw, language, attributes)
        element.start = element.start._replace(raw=raw)


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
            yield from _enclosed(child, child.start.raw, child.end, layout)
        elif base := _base_of(child, layout):
            yield from _enclosed(*base, layout)
        else:
            yield _of_element(child, child.raw, layout)


def _enclosed(element: Element, before: str, after: str, layout: Layout) -> Iterator[Piece]:
    """Yield the text in ``element`` between the codes ``before`` and ``after``."""
    code = Code(partial(str, before), partial(str, after), pieces.NO_FORMAT)
    yield Piece(Part(Kind.OPEN, code=code))
    yield from _pieces(element.children, layout)
    yield Piece(CLOSE)


def _base_of(
    ruby: Element, layout: Layout, start: str = "", end: str = ""
) -> tuple[Element, str, str] | None:
    """Return the text that has its pronunciation beside it, and what is around it, if any."""
    kind, base = layout.ruby
    for place, each in enumerate(ruby.children if ruby.start.name == kind else ()):
        if isinstance(each, Element) and each.start.name == base:
            before = "".join([start, ruby.start.raw, *map(raw_of, ruby.children[:place])])
            after = "".join([*map(raw_of, ruby.children[place + 1 :]), ruby.end, end])
            return each, before + each.start.raw, each.end + after
    return None


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
            yield point(raw)._replace(mark=f"field {_attribute(each, 'fldCharType')}")
        elif name == layout.field_code:
            code = "".join(child.raw for child in each.children if isinstance(child, Token))
            yield point(raw, is_visible=False)._replace(mark="code", name=code)
        elif base := _base_of(each, layout, start, end):
            yield from _enclosed(*base, layout)
        elif name != layout.properties and name not in layout.dropped:
            yield _of_element(each, raw, layout)


def _is_text_field(element: Element, layout: Layout) -> bool:
    """Return whether this is a field in an element, whose result is text."""
    name, text = layout.fields.get(element.start.name, ("", None))
    return text is not None and text.match(_attribute(element, name)) is not None


def _attribute(element: Element, name: str) -> str:
    """Return the value of an attribute with any prefix; "" if it is missing."""
    attributes = element.start.attributes.items()
    return next((value or "" for key, value in attributes if key.rpartition(":")[2] == name), "")


def _of_element(element: Element, raw: Raw, layout: Layout) -> Piece:
    """Return the piece of an element without text of the paragraph."""
    name = element.start.name
    if name in layout.breaks:
        return Piece(Part(Kind.BREAK, code=raw))
    piece = point(raw, is_visible=name in layout.visible)
    if name == layout.space:
        return piece._replace(mark="space", name=_attribute(element, "c") or "1")
    for kind, (end, attribute) in layout.ranges.items():
        if name in {kind, end}:
            identity = f"{kind} {_attribute(element, attribute)}"
            return piece._replace(mark="begin" if name == kind else "end", name=identity)
    return piece
