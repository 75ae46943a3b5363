"""Reads documents of requests, and fills them with translations, in processes beside the service.

A document is read again to be filled: what was read of it takes up to 700 times its memory, and so
is kept nowhere while it is translated.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from nmt_cli.corpus.text.language_codes import standard_code, subtags_of
from nmt_cli.documents.archive import markup_bytes
from nmt_cli.documents.document import Document, DocumentError, decoded, filled, without_repeats
from nmt_cli.documents.formats import ENDINGS, NEED_LANGUAGES, format_of
from nmt_cli.documents.formats import read_document as read_format
from nmt_cli.serving.models import TAG, Model, ServedGlossary
from nmt_cli.serving.requests import RefusedError, Upload
from nmt_cli.serving.served import Sent, Served
from nmt_cli.translating.interface.request import Request as Line
from nmt_cli.translating.interface.translation import Translation

# Bytes. Office documents have less markup, and reading them takes 150 times their memory; that of
# Markdown takes 700 times its memory, and it has little markup.
MARKUP_OF_A_CHARACTER, MARKDOWN_OF_A_CHARACTER = 40, 10
MOST_DETECTED = 10_000  # characters, of which the language is detected
MOST_FAILED, MOST_SHOWN = 100, 100  # segments that an answer names, and characters of each
TEXT = ".txt"  # what the command translates as lines is a document here
SERVED_ENDINGS = [*(each for names in ENDINGS.values() for each in names), TEXT]
CODE = re.compile(r"[A-Za-z]{2,8}(?:[-_][A-Za-z0-9]{1,8})*")  # of a language


class _TextDocument:
    """A plain text; its lines are the segments."""

    def __init__(self, data: bytes) -> None:
        """Raise DocumentError for another encoding than UTF-8 without a byte order mark."""
        self._decoded = decoded(data)
        self._parts = re.split(r"(\r?\n)", self._decoded.text)
        self.segments: Sequence[Line] = [Line(each) for each in self._parts[::2]]

    def filled(self, translations: Sequence[Translation]) -> bytes:
        """Return the text with the translation of each line in its place."""
        self._parts[::2] = [each.text for each in translations]
        return self._decoded.encoded("".join(self._parts))


class ReadDocument(NamedTuple):
    """What the service knows of a document."""

    name: str
    languages: tuple[str, str] | None  # of the source and of the translation, if they are known
    model: Model | None  # None: it is in the target language already
    lines: Sequence[Line]  # what is translated, each once
    places: Sequence[int]  # of the line of each segment
    num_characters: int
    num_bytes: int  # of its markup
    num_sent: int  # bytes, as it was sent

    @property
    def ending(self) -> str:
        """The ending of its name."""
        return "." + self.name.rpartition(".")[2].lower()


def read_document(
    served: Served,
    fields: Mapping[str, Any],
    *,
    source: str,
    target: str,
    glossary: str | None = None,
) -> ReadDocument:
    """Return the document in the field ``file``; the fields ``source`` and ``target`` name its
    languages.

    Raises RefusedError if it cannot be read or is too large, or if no model has the languages.
    """
    upload = fields.get("file")
    if not isinstance(upload, Upload):
        raise RefusedError(400, "file must be a file, in a form of several parts")
    codes = str(fields.get(source) or "auto"), str(fields.get(target) or "")
    model = None if codes[0] == "auto" else served.models.find(*codes)
    languages = None if model is None else _languages(model, codes)
    document, num_bytes = _read(served, upload, languages)
    if model is None:
        model = _detected(served, document, codes[1])
        languages = None if model is None else _languages(model, (model.source, codes[1]))
    terms, lines, places = None, list[Line](), list[int]()
    if model is not None and glossary:
        model, terms = served.with_glossary(str(glossary), model)
    if model is not None:
        lines, places = _lines(served, model, document, terms)
        texts = [line.text for line in lines]
        served.limits.refuse_large(texts, texts if model.steps else ())
    return ReadDocument(
        upload.name,
        languages,
        model,
        lines,
        places,
        sum(len(each.text) for each in document.segments),
        num_bytes,
        len(upload.data),
    )


def fill_document(
    served: Served,
    sent: Sent,
    name: str,
    languages: tuple[str, str] | None,
    translations: Sequence[Translation] | None,
) -> tuple[bytes, list[Mapping[str, Any]]]:
    """Return the document with its translations, and the segments that failed.

    Without translations it stays as it is. Raises RefusedError if no segment is translated.
    """
    upload = served.fields(sent)["file"]
    if translations is None:
        return upload.data, []
    document, _ = _read(served, upload._replace(name=name), languages)
    data, left_out = filled(document, translations)
    failed: list[Mapping[str, Any]] = [
        {"segment": each.segment, "text": TAG.sub("", each.text)[:MOST_SHOWN], "error": each.reason}
        for each in left_out
        if each.segment
    ]
    if failed and len(failed) == len(translations):
        raise RefusedError(400, f"no segment could be translated: {failed[0]['error']}")
    return data, failed[:MOST_FAILED]


def _languages(model: Model, codes: tuple[str, str]) -> tuple[str, str]:
    """Return the languages of a request, with the codes of the model if they are the same."""
    source, target = (
        standard_code(wanted)
        if subtags_of(wanted) != subtags_of(own) and CODE.fullmatch(wanted)
        else own
        for wanted, own in zip(codes, (model.source, model.target), strict=True)
    )
    return source, target


def _read(
    served: Served, upload: Upload, languages: tuple[str, str] | None
) -> tuple[Document, int]:
    """Return the document that was sent, in these languages if they are known, and its size.

    Raises RefusedError if it cannot be translated.
    """
    form = "text" if upload.name.lower().endswith(TEXT) else format_of(upload.name)
    if form is None:
        endings = ", ".join(SERVED_ENDINGS)
        raise RefusedError(400, f"the name of the file must end in one of {endings}")
    if languages is None and form in NEED_LANGUAGES:
        raise RefusedError(400, f"a document of {form} needs the language of its source")
    most = (
        MARKDOWN_OF_A_CHARACTER if form == "markdown" else MARKUP_OF_A_CHARACTER
    ) * served.limits.characters
    if (num_bytes := markup_bytes(upload.data)) > most:
        raise RefusedError(413, f"{num_bytes:,} bytes of markup are more than {most:,}")
    try:
        document: Document = (
            _TextDocument(upload.data)
            if form == "text"
            else read_format(upload.data, form, languages=languages)
        )
    except DocumentError as error:
        raise RefusedError(400, f"the file cannot be read as {form}: {error}") from None
    served.limits.refuse_large([segment.text for segment in document.segments])
    return document, num_bytes


def _detected(served: Served, document: Document, target: str) -> Model | None:
    """Return the model for the language of a document, which is detected."""
    texts = "\n".join(TAG.sub("", segment.text) for segment in document.segments)
    (choice,) = served.choices([texts[:MOST_DETECTED]], target)
    return choice.model


def _lines(
    served: Served, model: Model, document: Document, glossary: ServedGlossary | None
) -> tuple[list[Line], list[int]]:
    """Return the different lines of a document, and the place of the one for each segment."""
    different, places = without_repeats(document.segments)
    lines, patterns = list[Line](), served.patterns(model)
    for segment in different:
        split = True if segment.split is None else segment.split
        line = segment._replace(split=split, protect=[*patterns, *segment.protect], n_best=1)
        if glossary is not None:
            markup = None if segment.markup == "none" else segment.markup
            line = line._replace(glossary=glossary.for_line(segment.text, markup))
        lines.append(line)
    return lines, places
