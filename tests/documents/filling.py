"""Translations of documents without a model: copies, and texts in capitals."""

import re
from collections.abc import Sequence

from nmt_cli.documents.document import Bilingual, Document, LeftOut
from nmt_cli.documents.formats import read_document
from nmt_cli.translating.interface.protection import Protection
from nmt_cli.translating.interface.request import Request
from nmt_cli.translating.interface.translation import Translation
from nmt_cli.translating.segmentation.markup.placement import MarkupSegments
from nmt_cli.translating.segmentation.segments import Output, Span, whole


def texts_of(document: Document) -> list[str]:
    return [segment.text for segment in document.segments]


def copied(data: bytes, form: str) -> bytes:
    """Return the document after every segment was sent and came back as it is."""
    document = read_document(data, form)
    return document.filled([Translation(text) for text in texts_of(document)])


def shouted(data: bytes, form: str) -> bytes:
    """Return the document with all texts in capitals, each word in the place of its source."""
    document = read_document(data, form)
    return document.filled([Translation(capitals(each)) for each in document.segments])


def translated(data: bytes, form: str) -> bytes:
    """Return the document in capitals, except for what translations copy."""
    document = read_document(data, form)
    kept = [Protection(segment.protect) for segment in document.segments]
    pairs = zip(document.segments, kept, strict=True)
    return document.filled([Translation(capitals(each, keep)) for each, keep in pairs])


def capitals(segment: Request, keep: Protection | None = None) -> str:
    if segment.markup is None:
        return _capital(segment.text, keep)
    assert segment.markup != "none"
    found = MarkupSegments(segment.text, segment.markup, whole)
    return found.filled([_output(text, keep) for text in found.texts])


def _capital(text: str, keep: Protection | None) -> str:
    # Letters that would become two, such as ß, stay: a word keeps its place only so.
    letters = [each.upper() if len(each.upper()) == 1 else each for each in text]
    for match in keep.found_in(text) if keep else ():
        letters[match.begin : match.end] = text[match.begin : match.end]
    return "".join(letters)


def _output(text: str, keep: Protection | None) -> Output:
    words = [match.span() for match in re.finditer(r"\w+|[^\w\s]", text)]
    return Output(_capital(text, keep), [Span(*place, *place) for place in words])


def left_out(document: Document) -> Sequence[LeftOut]:
    assert isinstance(document, Bilingual)
    return document.left_out
