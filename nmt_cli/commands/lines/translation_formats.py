"""The formats of ``translate``: of its input, text and jsonl, and of its output, these and others.

The other output formats are tsv, and those of Moses and fairseq.
"""

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any

from nmt_cli.corpus.text.links import pharaoh
from nmt_cli.documents.formats import ENDINGS, WITH_PLACEHOLDERS
from nmt_cli.files.lines import Line, is_blank, json_record, one_line, why_not_unicode
from nmt_cli.messages.errors import WrongUsageError
from nmt_cli.messages.proposals import nearest
from nmt_cli.translating.interface.options import TranslatorOptions
from nmt_cli.translating.interface.record_keys import LINE, record_of, request_of
from nmt_cli.translating.interface.request import Request
from nmt_cli.translating.interface.translation import Alternative, Translation

SPACE = "▁"  # stands for a space in SentencePiece's pieces


def shown_pieces(pieces: Sequence[str]) -> str:
    """Return the pieces with spaces between them; white space inside a piece becomes ``▁``."""
    return " ".join(one_line(piece).replace("\t", SPACE).replace(" ", SPACE) for piece in pieces)


LN_2 = math.log(2)  # fairseq prints scores to the base 2


def as_fairseq(number: int, line: Line, translation: Translation) -> str:
    """Return the line of the source (S), and pieces (H), text (D) and scores (P) of the n best.

    Lines count from 0. A blank line has the score 0, and a failed one -inf. Alignments that were
    asked for are a further line (A).
    """
    place = number - 1
    rows = [f"S-{place}\t{_column(line.text)}"]
    for found in _ranked(translation):
        assert found.score is not None
        score = f"{found.score / LN_2:.6f}"
        of_tokens = " ".join(f"{each / LN_2:.4f}" for each in found.token_scores)
        rows += [
            f"H-{place}\t{score}\t{shown_pieces(found.tokens)}",
            f"D-{place}\t{score}\t{_column(found.text)}",
            f"P-{place}\t{of_tokens}",
        ]
        rows += [f"A-{place}\t{pharaoh(found.alignment)}"] if found.alignment else []
    return "".join(f"{row}\n" for row in rows)


def _column(text: str) -> str:
    return one_line(text).replace("\t", " ")


SEPARATOR = "|||"
ESCAPED = "&#124;&#124;&#124;"  # how Moses writes it in a text


def _ranked(translation: Translation) -> Sequence[Alternative]:
    """Return the n best, or what a line without them stays; the score of a failed one is -inf."""
    score = 0.0 if translation.error is None else -math.inf
    return translation.ranked or (replace(translation, score=score, log_probability=score),)


def as_moses(number: int, line: Line, translation: Translation) -> str:
    """Return ``id ||| text ||| F0= log-probability ||| score`` of each of the n best.

    Lines count from 0. A blank line has the score 0, and a failed one -inf. Alignments that were
    asked for are a fifth column.
    """
    rows = []
    for found in _ranked(translation):
        columns = [
            str(number - 1),
            in_a_row(found.text).replace(SEPARATOR, ESCAPED),
            f"F0= {found.log_probability:.6f}",
            f"{found.score:.6f}",
        ]
        columns += [pharaoh(found.alignment)] if found.alignment else []
        rows.append(f" {SEPARATOR} ".join(columns) + "\n")
    return "".join(rows)


Formatter = Callable[[int, Line, Translation], str]


def as_text(number: int, line: Line, translation: Translation) -> str:
    """Return the translation as a line that ends as the source line ended.

    Alignments that were asked for follow after |||, as in Marian.
    """
    carriage_return = "\r" if line.carriage_return else ""
    line_feed = "\n" if line.newline else ""
    links = f" ||| {pharaoh(translation.alignment)}" if translation.alignment else ""
    return in_a_row(translation.text) + links + carriage_return + line_feed


def as_tsv(number: int, line: Line, translation: Translation) -> str:
    """Return line number, rank, score and text for each of the n best, and alignments if any."""
    rows = []
    for rank, found in enumerate(translation.ranked or (translation,), start=1):
        shown_score = "" if found.score is None else f"{found.score:.6f}"
        columns = [str(number), str(rank), shown_score, in_a_row(found.text).replace("\t", " ")]
        columns += [pharaoh(found.alignment)] if found.alignment else []
        rows.append("\t".join(columns) + "\n")
    return "".join(rows)


def in_a_row(text: str) -> str:
    """Return ``text`` with spaces for line feeds, which only the text of a JSON object can hold."""
    return text.replace("\n", " ")


# What JSON leaves as it is, though some programs read it as a line end.
ESCAPED_LINE_ENDS = str.maketrans({mark: f"\\u{ord(mark):04x}" for mark in "\x85\u2028\u2029"})


def as_jsonl(number: int, line: Line, translation: Translation) -> str:
    """Return one JSON object with everything that is known about the line."""
    return _as_row({"line": number, **record_of(translation)}, is_exact=translation.is_joined)


def with_kept_keys(number: int, line: Line, translation: Translation) -> str:
    """Return one JSON object, with the keys of a line that ask for nothing, such as id.

    A key that the answer has itself, such as score, is the answer's.
    """
    answer = {"line": number, **record_of(translation)}
    try:
        record = {} if is_blank(line.text) else json_record(line.text)
        kept = {key: value for key, value in record.items() if key not in LINE}
        return _as_row({"line": number, **kept, **answer}, is_exact=True)
    except (ValueError, RecursionError):  # nothing to keep; the line has failed if it is no object
        return _as_row(answer, is_exact=True)


def _as_row(record: dict[str, Any], *, is_exact: bool) -> str:
    """Return the line of an object; one that is not exact has spaces for line ends in its texts."""
    row = json.dumps(record, ensure_ascii=False)
    if why_not_unicode(row) is not None:  # escapes in a key that is kept
        row = json.dumps(record)
    return (row.translate(ESCAPED_LINE_ENDS) if is_exact else one_line(row)) + "\n"


FORMATS: dict[str, Formatter] = {
    "text": as_text,
    "tsv": as_tsv,
    "jsonl": as_jsonl,
    "moses": as_moses,
    "fairseq": as_fairseq,
}


def options_for(
    input_format: str, output_format: str, options: TranslatorOptions
) -> TranslatorOptions:
    """Return ``options`` with what the formats need. Raises WrongUsageError if they cannot."""
    if input_format in ENDINGS:
        _refuse_for_document(input_format, output_format, options)
    elif output_format == "text" and options.n_best > 1 and options.choose != "mbr":
        raise WrongUsageError(
            f"--n-best {options.n_best} needs --format tsv, jsonl, moses or fairseq; text is one "
            "line for each line."
        )
    if options.token_scores and output_format not in {"jsonl", "fairseq"}:
        raise WrongUsageError(
            "--token-scores needs --format jsonl or fairseq; the other formats have no place for "
            "them."
        )
    if output_format == "fairseq":
        return replace(options, token_scores=True)
    return options


def _refuse_for_document(form: str, output_format: str, options: TranslatorOptions) -> None:
    """Raise WrongUsageError for an option that a document has no place for."""
    advice = "leave it out, or translate the lines of the file with --input-format text"
    writes_several = options.n_best > 1 and options.choose != "mbr"
    for option, is_given in (
        (f"--format {output_format}", output_format != "text"),
        (f"--n-best {options.n_best}", writes_several and form != "xliff"),
        ("--alignments", options.alignments),
        ("--keep-pieces", options.keep_pieces),
        (f"--markup {options.markup}", options.markup is not None),
        ("--sample", options.sampling is not None and form in WITH_PLACEHOLDERS),
        ("--soft-glossary", options.constraints.soft_glossary is not None),
    ):
        if is_given:
            raise WrongUsageError(f"{option} is for lines, but the input is {form}; {advice}.")


Reader = Callable[[int, Line], Request]


def reader(input_format: str, output_format: str, choose: str | None = None) -> Reader:
    """Return the function that makes a request of a line and its number.

    ``choose`` is what ranks the translations of lines that do not say so themselves.
    """
    if input_format == "text":
        return as_plain
    holds_n_best = input_format in ENDINGS or output_format != "text"
    return partial(as_record, holds_n_best=holds_n_best, choose=choose)


def formatter(input_format: str, output_format: str) -> Formatter:
    """Return the function that writes the translation of a line, which may be a JSON object."""
    if input_format in ENDINGS:
        from nmt_cli.commands.lines.document_text import as_segment  # other texts need no documents

        return as_segment
    if input_format == "jsonl":
        of_records = {"fairseq": showing_the_text, "jsonl": with_kept_keys}
        return of_records.get(output_format, FORMATS[output_format])
    return FORMATS[output_format]


def showing_the_text(number: int, line: Line, translation: Translation) -> str:
    """Return lines in the format of fairseq for the text in the JSON object of a line."""
    request = as_record(number, line, holds_n_best=True)
    shown = line._replace(text=request.text) if request.error is None else line
    return as_fairseq(number, shown, translation)


def as_plain(number: int, line: Line) -> Request:
    """Return the text of the line with its number in the whole text."""
    return Request(line.text, line=number)


def as_record(number: int, line: Line, *, holds_n_best: bool, choose: str | None = None) -> Request:
    """Return what the JSON object of the line asks for, or a request with an error.

    A blank line asks for nothing, and so does a key that is unlike all that a line can have. It is
    an error to ask for several translations if the output does not ``holds_n_best``, unless they
    are there to ``choose`` one by mbr.
    """
    if is_blank(line.text):
        return Request("", line=number)
    try:
        record = json_record(line.text)
        request = request_of({key: record[key] for key in record if not _asks_for_nothing(key)})
        has_room = holds_n_best or (request.choose or choose) == "mbr"
        if not has_room and request.n_best is not None and request.n_best > 1:
            raise ValueError(f"n_best {request.n_best} needs --format tsv, jsonl, moses or fairseq")
    except ValueError as error:
        return Request("", line=number, error=str(error))
    return request._replace(line=number)


@lru_cache
def _asks_for_nothing(key: str) -> bool:
    return key not in LINE and not nearest(key, LINE)
