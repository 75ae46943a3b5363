"""The names of the elements of office documents, and what becomes of each."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from nmt_cli.documents.pieces import TEXT_FIELD

OOXML = "http://schemas.openxmlformats.org"
STRICT = "http://purl.oclc.org/ooxml"
OASIS = "urn:oasis:names:tc:opendocument:xmlns"
MICROSOFT = "http://schemas.microsoft.com/office"
# By namespace: its prefix here, whichever a document has.
NAMESPACES = {
    namespace: prefix
    for prefix, kind, part in (
        *(("w", "wordprocessingml", "main"), ("m", "officeDocument", "math")),
        *(("p", "presentationml", "main"), ("a", "drawingml", "main")),
        *(("c", "drawingml", "chart"), ("dgm", "drawingml", "diagram")),
    )
    for namespace in (f"{OOXML}/{kind}/2006/{part}", f"{STRICT}/{kind}/{part}")
} | {
    f"{MICROSOFT}/powerpoint/2018/8/main": "p",  # of comments
    f"{MICROSOFT}/drawing/2014/chartex": "cx",
    f"{MICROSOFT}/drawing/2008/diagram": "dgm",
    f"{OOXML}/package/2006/metadata/core-properties": "cp",
    "http://purl.org/dc/elements/1.1/": "dc",
    "http://www.idpf.org/2007/opf": "opf",
    f"{OASIS}:drawing:1.0": "draw",
    **{f"{OASIS}:{name}:1.0": name for name in ("office", "style", "text")},
}
UNKNOWN = "?"  # the prefix of other namespaces


class Layout(NamedTuple):
    """The names of a format, with the prefixes of ``NAMESPACES``."""

    paragraphs: frozenset[str] = frozenset()
    wrappers: frozenset[str] = frozenset()  # around a part of the text of a paragraph
    breaks: frozenset[str] = frozenset()
    visible: frozenset[str] = frozenset()  # elements without text that have a place on a page
    kept: frozenset[str] = frozenset()  # elements whose paragraphs stay as they are
    placeholder: tuple[str, ...] = ()  # names in each other, in elements that stay, too
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
    ruby: tuple[str, str] = ("", "")  # an element with a text and its pronunciation, and the text
    # Fields: the marks of their begin, middle and end, and their codes. Those that are an element
    # have text if the attribute of this name begins with the pattern.
    field_mark: str = ""
    field_code: str = ""
    fields: Mapping[str, tuple[str, re.Pattern[str]]] = {}
    # By element: its attributes that name languages: of European, East Asian and complex scripts.
    languages: Mapping[str, tuple[str, str, str]] = {}


def _names(prefix: str, words: str) -> frozenset[str]:
    return frozenset(f"{prefix}:{word}" for word in words.split())


WORD = Layout(
    paragraphs=_names("w", "p"),
    wrappers=_names("w", "hyperlink ins moveTo smartTag customXml sdt sdtContent dir bdo"),
    breaks=_names("w", "br cr tab ptab"),
    visible=_names("w", "drawing object pict footnoteReference endnoteReference sym ruby fldSimple")
    | _names("m", "oMath oMathPara")
    | {"mc:AlternateContent"},
    kept=_names("w", "glossaryDocument"),  # building blocks, which are not in the text
    ranges={
        f"w:{kind}Start": (f"w:{kind}End", "id") for kind in ("bookmark", "commentRange", "perm")
    },
    run="w:r",
    text="w:t",
    attributes=' xml:space="preserve"',
    properties="w:rPr",
    # Languages and marks of revisions divide words without being seen.
    ignored=re.compile(r"<(?:[\w.-]+:)?(?:lang|noProof)\b[^>]*/>"),
    characters={"w:noBreakHyphen": "\u2011", "w:softHyphen": "\u00ad"},
    dropped=_names("w", "proofErr lastRenderedPageBreak"),
    ruby=("w:ruby", "w:rubyBase"),
    field_mark="w:fldChar",
    field_code="w:instrText",
    fields={"w:fldSimple": ("instr", TEXT_FIELD)},
    languages=dict.fromkeys(_names("w", "lang themeFontLang"), ("val", "eastAsia", "bidi")),
)
DRAWING = Layout(
    # Beside those of slides: comments, and the names of categories, series and trends in charts.
    paragraphs=_names("a", "p") | (plain := {"p:text", "c:v", "c:name", "cx:v", "cx:pt"}),
    plain=frozenset(plain),
    breaks=_names("a", "br"),
    visible=_names("a", "fld") | {"mc:AlternateContent", "a14:m"},
    kept=_names("c", "numCache numLit pivotSource") | _names("cx", "numDim"),
    run="a:r",
    text="a:t",
    properties="a:rPr",
    ignored=re.compile(r'\s(?:lang|altLang|dirty|err|smtClean|noProof)="[^"]*"'),
    languages=dict.fromkeys(_names("a", "rPr defRPr endParaRPr"), ("lang", "lang", "lang")),
)
ODF = Layout(
    paragraphs=_names("text", "p h index-title-template"),
    wrappers=_names("text", "span a meta meta-field text-input placeholder"),
    breaks=_names("text", "tab line-break"),
    visible=_names("text", "note page-number page-count date time chapter sequence title subject")
    | _names("text", "reference-ref bookmark-ref note-ref sequence-ref expression variable-get")
    | _names("text", "user-field-get user-defined conditional-text drop-down ruby")
    | _names("draw", "frame a custom-shape g rect line"),
    kept=_names("text", "tracked-changes"),
    space="text:s",
    ranges={
        "text:bookmark-start": ("text:bookmark-end", "name"),
        "text:reference-mark-start": ("text:reference-mark-end", "name"),
        "office:annotation": ("office:annotation-end", "name"),
    },
    ruby=("text:ruby", "text:ruby-base"),
    fields=dict.fromkeys(
        _names("text", "reference-ref bookmark-ref sequence-ref"),
        ("reference-format", re.compile("text$")),
    ),
    languages={"style:text-properties": ("language", "language-asian", "language-complex")},
)
PROPERTIES = Layout(languages={"opf:package": ("lang", "lang", "lang")})
ROOTS = {"docx": "w:document", "pptx": "p:presentation", "odt": "office:document-content"}


def layout_of(root: str) -> Layout | None:
    """Return the layout of a member with this root; None if it has no texts and no languages."""
    if root in {"p:sldMaster", "p:sldLayout", "p:notesMaster", "p:handoutMaster"}:
        return DRAWING._replace(placeholder=("p:nvSpPr", "p:nvPr", "p:ph"))  # slides fill it
    layouts = {"w": WORD, "office": ODF, "cp": PROPERTIES}
    layouts |= dict.fromkeys(("p", "c", "cx", "dgm"), DRAWING)
    return layouts.get(root.partition(":")[0])
