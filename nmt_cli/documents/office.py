"""DOCX, PPTX, ODT and EPUB: which members are translated, and how their paragraphs look."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Mapping
from functools import partial
from urllib.parse import unquote

from nmt_cli.documents.archive import Archive, ArchiveDocument
from nmt_cli.documents.document import Document, DocumentError, decoded
from nmt_cli.documents.markup import IN_XML, MarkupDocument
from nmt_cli.documents.paragraphs import Layout, ParagraphDocument
from nmt_cli.translating.markup.tokens import Token, xml_tokens

OOXML = "http://schemas.openxmlformats.org"
STRICT = "http://purl.oclc.org/ooxml"
MANIFEST, ENCRYPTED = "META-INF/manifest.xml", b"encryption-data"  # of OpenDocument
OASIS = "urn:oasis:names:tc:opendocument:xmlns"


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
        f"w:{kind}{begin}": (f"w:{kind}{end}", "w:id")
        for kind, begin, end in (
            ("bookmark", "Start", "End"),
            ("commentRange", "Start", "End"),
            ("perm", "Start", "End"),
        )
    },
    run="w:r",
    text="w:t",
    text_tag='<w:t xml:space="preserve">',
    properties="w:rPr",
    # Languages and marks of revisions divide words without being seen.
    ignored=re.compile(r"<w:(?:lang|noProof)\b[^>]*/>"),
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
    text_tag="<a:t>",
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
        "text:bookmark-start": ("text:bookmark-end", "text:name"),
        "text:reference-mark-start": ("text:reference-mark-end", "text:name"),
        "office:annotation": ("office:annotation-end", "office:name"),
    },
)
NO_NAME = r"\\(?:d\*)?"  # in a pattern
GRAPHICS = r"(?:charts/chart|diagrams/data|diagrams/drawing)\d+\.xml"
# By format: a pattern of a member that it needs, and the layouts of members that match a pattern.
MEMBERS: Mapping[str, tuple[str, Mapping[str, Layout]]] = {
    "docx": (
        r"word/document\d*\.xml",
        {
            r"word/(?:document\d*|header\d+|footer\d+|footnotes|endnotes|comments)\.xml": WORD,
            rf"word/{GRAPHICS}": DRAWING,
        },
    ),
    "pptx": (
        r"ppt/presentation\.xml",
        {rf"ppt/(?:slides/slide\d+\.xml|notesSlides/notesSlide\d+\.xml|{GRAPHICS})": DRAWING},
    ),
    "odt": (r"content\.xml", {r"(?:content|styles)\.xml": ODF}),
}
CHAPTERS = {"application/xhtml+xml", "application/x-dtbncx+xml"}  # and tables of contents of EPUB


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
    """Return a book. Raises DocumentError if it cannot be read, for example if it is encrypted."""
    archive, members = Archive(data), dict[str, Document]()
    for root in _tags(archive, "META-INF/container.xml", "rootfile"):
        package = root.attributes.get("full-path") or ""
        for item in _tags(archive, package, "item"):
            path = unquote(item.attributes.get("href") or "")
            name = posixpath.normpath(posixpath.join(posixpath.dirname(package), path))
            if item.attributes.get("media-type") in CHAPTERS and name in archive.names:
                members[name] = archive.opened(name, partial(MarkupDocument, markup="xml"))
    if not members:
        raise DocumentError("it has no chapters")
    return ArchiveDocument(archive, members)


def _tags(archive: Archive, member: str, name: str) -> Iterator[Token]:
    """Yield the start tags of this name, with any prefix, in a member of XML."""
    for token in archive.opened(member, lambda data: xml_tokens(decoded(data, IN_XML).text)):
        if token.attributes and token.name.rpartition(":")[2] == name:
            yield token
