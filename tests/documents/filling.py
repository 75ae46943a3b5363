"""Translations of documents without a model: copies, and texts in capitals."""

import re

from nmt_cli.documents.document import Document
from nmt_cli.documents.formats import read_document
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


def capitals(segment: Request) -> str:
    if segment.markup is None:
        return segment.text.upper()
    assert segment.markup != "none"
    found = MarkupSegments(segment.text, segment.markup, whole)
    return found.filled([_output(text) for text in found.texts])


def _output(text: str) -> Output:
    words = [match.span() for match in re.finditer(r"\w+|[^\w\s]", text)]
    # Letters that would become two, such as ß, stay: a word keeps its place only so.
    capital = "".join(each.upper() if len(each.upper()) == 1 else each for each in text)
    return Output(capital, [Span(*place, *place) for place in words])
