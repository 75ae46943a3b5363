"""DOCX, PPTX and ODT: which members are translated, and how their paragraphs look."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import partial

from nmt_cli.documents.archive import Archive, ArchiveDocument
from nmt_cli.documents.document import Document, DocumentError
from nmt_cli.documents.paragraphs import Layout, ParagraphDocument

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
DOCX_MEMBERS = {
    r"word/(?:document\d*|header\d+|footer\d+|footnotes|endnotes|comments)\.xml": WORD,
    rf"word/{GRAPHICS}": DRAWING,
}
PPTX_MEMBERS = {rf"ppt/(?:slides/slide\d+\.xml|notesSlides/notesSlide\d+\.xml|{GRAPHICS})": DRAWING}
ODT_MEMBERS = {r"(?:content|styles)\.xml": ODF}


def read_docx(data: bytes) -> ArchiveDocument:
    """Return a document of Word. Raises DocumentError if it cannot be read."""
    return _document(data, r"word/document\d*\.xml", DOCX_MEMBERS)


def read_pptx(data: bytes) -> ArchiveDocument:
    """Return a presentation of PowerPoint. Raises DocumentError if it cannot be read."""
    return _document(data, r"ppt/presentation\.xml", PPTX_MEMBERS)


def read_odt(data: bytes) -> ArchiveDocument:
    """Return a text of OpenDocument. Raises DocumentError if it cannot be read."""
    return _document(data, r"content\.xml", ODT_MEMBERS)


def _document(data: bytes, needed: str, layouts: Mapping[str, Layout]) -> ArchiveDocument:
    """Return the document whose members that match a pattern have these layouts.

    Raises DocumentError if no member matches ``needed``.
    """
    archive = Archive(data)
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
