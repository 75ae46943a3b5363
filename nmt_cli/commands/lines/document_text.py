"""A document as ``translate`` reads and writes it: its segments are lines of JSON.

So they go the way of all lines: in windows, through one process or many, and to an unfinished
output that ``--resume`` continues. At the end, the document is made of that output.
"""

import hashlib
import io
import json
import re
from collections.abc import Iterator, Sequence
from html import unescape
from pathlib import Path

from nmt_cli.corpus.text.language_codes import NAMES, base_of
from nmt_cli.documents.document import (
    Bilingual,
    Document,
    DocumentError,
    LeftOut,
    filled,
    without_repeats,
)
from nmt_cli.documents.formats import most_bytes, read_document
from nmt_cli.files.lines import Line
from nmt_cli.files.text_files import open_text, standard_input
from nmt_cli.messages import logs
from nmt_cli.messages.errors import UserError
from nmt_cli.messages.figures import counted
from nmt_cli.translating.interface.request import Request
from nmt_cli.translating.interface.translation import Alternative, Translation

NUMBER_OR_QUOTED = re.compile(r"""\d[\d,.]*|"[^"]*"|'[^']*'""")
CODE = re.compile("<[^<>]*>")  # of a segment that is markup
MOST_SHOWN = 60  # characters of a text in messages


class DocumentText(io.BytesIO):
    """A stream with a line for each different segment of a document.

    ``sha256`` is that of the document.
    """

    unit = "segment"

    def __init__(self, document: Document, sha256: str) -> None:
        different, self._places = without_repeats(document.segments)
        super().__init__(b"".join(_row(segment).encode() + b"\n" for segment in different))
        self.sha256, self._document = sha256, document
        self.num_failed = 0  # segments without a translation, once it is composed

    def expected(self) -> int:
        """Return the number of bytes of the stream."""
        return self.getbuffer().nbytes

    def composed(self, rows: bytes) -> tuple[bytes, int]:
        """Return the document with the translations in ``rows``, lines of ``as_segment``.

        A line for each reason names what is left out of it; the failed segments are counted.
        """
        found = [_translation(row) for row in rows.splitlines()]
        data, left_out = filled(self._document, [found[place] for place in self._places])
        for message in described(left_out):
            logs.warning(message)
        if not found:
            bilingual = self._document if isinstance(self._document, Bilingual) else None
            why = "it has no text" if bilingual is None else bilingual.nothing_left
            logs.warning(f"Nothing was translated: {why}.")
        self.num_failed = sum(each.segment > 0 for each in left_out)
        return data, self.num_failed


def read_document_text(
    path: Path | None, form: str, *, again: bool, languages: tuple[str, str] | None
) -> DocumentText:
    """Return the segments of a document in the file ``path``; None is stdin.

    ``again`` is whether those with translations are segments, too, and ``languages`` are those of
    the model; a warning names those of the document that differ. Raises UserError if it cannot be
    read.
    """
    most = most_bytes(form)
    if path is None:
        name, data = "standard input", standard_input().read(most + 1)
    else:
        name = str(path)
        with open_text(path, may_be_archive=True) as stream:
            data = stream.read(most + 1)
    try:
        document = read_document(data, form, again=again, languages=languages)
        if languages is not None and isinstance(document, Bilingual):
            _warn_of_other_languages(name, document.named_languages, languages)
        return DocumentText(document, hashlib.sha256(data).hexdigest())
    except DocumentError as error:
        raise UserError(f"{name} cannot be read as {form}: {error}.") from None


def _warn_of_other_languages(
    name: str, named: tuple[str | None, str | None], languages: tuple[str, str]
) -> None:
    """Warn if a document names a language that is not that of the model; source first."""
    verbs = ("says that its sources are in", "says that its translations are in")
    for code, own, verb, side in zip(named, languages, verbs, ("from", "into"), strict=True):
        if code is None or not {base_of(code), base_of(own)} <= NAMES.keys():
            continue  # such as zsm, which may be ms
        if base_of(code) != base_of(own):
            logs.warning(f"{name} {verb} {code}, but the model translates {side} {own}.")


def _row(segment: Request) -> str:
    """Return the line of JSON that asks for the translation of ``segment``."""
    usual = Request("")._asdict()
    asked = {key: value for key, value in segment._asdict().items() if value != usual[key]}
    return json.dumps({"text": segment.text, **asked}, ensure_ascii=False)


def as_segment(number: int, line: Line, translation: Translation) -> str:
    """Return the line of JSON with what a document needs of the translation of a segment."""
    found = {
        "text": translation.text,
        "score": translation.score,
        "others": [(each.text, each.score) for each in translation.alternatives],
        "error": translation.error,
    }
    return json.dumps(found) + "\n"


def _translation(row: bytes) -> Translation:
    record = json.loads(row)
    others = tuple(Alternative(text, score, ()) for text, score in record["others"])
    text, score, error = (record[key] for key in ("text", "score", "error"))
    return Translation(text, score, alternatives=others, error=error)


def described(left_out: Sequence[LeftOut]) -> Iterator[str]:
    """Yield a line for each reason why texts are left out; numbers make no other reason."""
    by_reason = dict[str, list[LeftOut]]()
    for each in left_out:
        by_reason.setdefault(NUMBER_OR_QUOTED.sub("", each.reason), []).append(each)
    for (number, text, reason), *others in by_reason.values():
        count = len(others) + 1
        segment = f"segment {number:,}, " if number else ""
        text = unescape(CODE.sub("", text))
        shown = text[:MOST_SHOWN] + "..." * (len(text) > MOST_SHOWN)
        yield (
            f"{counted(count, 'segment')} {'were' if others else 'was'} not translated: {reason} "
            f"(first: {segment}{shown!r})."
        )
