"""The files of a corpus as a person has them: texts, a table, JSON lines, a memory or a CSV."""

import csv
import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory

from nmt_cli.corpus.text.language_codes import NAMES, base_of
from nmt_cli.corpus.text.memories import languages_in
from nmt_cli.documents.formats import BILINGUAL, ENDINGS
from nmt_cli.files.lines import BYTE_ORDER_MARK, HeldLines, one_line
from nmt_cli.files.text_files import SUFFIXES, open_text
from nmt_cli.files.text_forms import keys_of_text, refuse_array, refuse_wrong_lines
from nmt_cli.messages import logs
from nmt_cli.messages.errors import UserError, WrongUsageError
from nmt_cli.messages.figures import counted
from nmt_cli.messages.proposals import any_of
from nmt_cli.recipe.sections.corpora import ParallelFiles

MEMORIES = frozenset(each[1:] for form in BILINGUAL for each in ENDINGS[form])
DELIMITERS = ",;\t"  # of a CSV; programs of countries with a decimal comma write semicolons
csv.field_size_limit(1 << 26)


@contextmanager
def opened_corpus(paths: tuple[Path, ...], columns: str | None) -> Iterator[ParallelFiles]:
    """Yield the corpus in ``paths``: texts of both sides, or a file with both in each line.

    A CSV is converted into a table, which is removed behind the block. Raises WrongUsageError if
    the paths are no corpus or ``columns`` does not name two, UserError if a CSV cannot be read.
    """
    named = _columns(columns)
    if len(paths) == 2 and named is None:
        if paths[0].exists() and paths[1].exists() and paths[0].samefile(paths[1]):
            raise UserError(f"{paths[0]} is given for both sides; give the two texts of a corpus.")
        for path in paths:
            refuse_wrong_lines(path)
        yield ParallelFiles(source=paths[0], target=paths[1])
        return
    if len(paths) != 1:
        raise WrongUsageError(
            "give the two texts of a corpus, or one file with both sides and its --columns."
        )
    kind = ending(paths[0])
    if kind in {"json", "jsonl", "ndjson"}:
        refuse_array(paths[0])
        yield ParallelFiles(jsonl=paths[0], columns=named or _languages_as_keys(paths[0]))
    elif kind in MEMORIES:
        if named is None:
            raise WrongUsageError(_why_languages(paths[0]))
        yield ParallelFiles(memory=paths[0], columns=named)
    elif kind == "csv":
        refuse_wrong_lines(paths[0])
        with TemporaryDirectory(prefix="nmt-cli-csv-") as folder:
            table = Path(folder) / f"{paths[0].stem}.tsv"
            _write_table(paths[0], table)
            _refuse_other_columns(table, paths[0], named)
            yield ParallelFiles(tsv=table, columns=named)
    else:
        refuse_wrong_lines(paths[0])
        _refuse_other_columns(paths[0], paths[0], named)
        yield ParallelFiles(tsv=paths[0], columns=named)


def ending(path: Path) -> str:
    """Return the ending of a file in lower case, without that of a compression."""
    names = [each for each in path.suffixes if each not in SUFFIXES]
    return names[-1][1:].lower() if names else ""


def first_line(path: Path) -> bytes:
    """Return the first line of a text, without its line feed."""
    with open_text(path) as stream:
        return HeldLines(stream).first()


def _columns(columns: str | None) -> tuple[str, str] | None:
    if columns is None:
        return None
    first, _, second = columns.partition(",")
    if first == second or "" in (first, second) or "," in second:
        raise WrongUsageError(f"--columns must name two, such as 1,2, but is {columns}.")
    return first, second


def _why_languages(path: Path) -> str:
    """Return that the languages of a memory must be named, and which ones it has."""
    found = languages_in(path)
    of_source = ["en"] if len(found) == 1 and base_of(found[0]) != "en" else []  # PO has no code
    pair = ",".join([*of_source, *found]) if len(of_source) + len(found) == 2 else "en,de"
    has = f"it has {any_of(found, 'and')}" if found else "it names none"
    return f"{path} needs the languages of source and target ({has}), such as --columns {pair}"


def _languages_as_keys(path: Path) -> tuple[str, str] | None:
    """Return the keys of the first row if two of them, other than id, are codes of languages."""
    with suppress(ValueError, RecursionError):
        row = json.loads(first_line(path).removeprefix(BYTE_ORDER_MARK))
        keys = [key for key in keys_of_text(row) if key != "id"]
        codes = [key for key in keys if base_of(key.rpartition(".")[2]) in NAMES]
        if len(codes) == 2:
            logs.info(f"Taking the keys {any_of(codes, 'and')} of {path}.")
            return codes[0], codes[1]
    return None


def _refuse_other_columns(table: Path, path: Path, columns: tuple[str, str] | None) -> None:
    """Raise UserError if a table made of ``path`` has not two columns, and none are named."""
    cells = first_line(table).decode(errors="replace").split("\t")
    if columns is None and len(cells) != 2:
        if len(cells) == 1:
            raise UserError(
                f"{path} has no second column; give the texts of both sides, or one file that "
                "holds both, with a tab between them."
            )
        shown = any_of([repr(cell[:40]) for cell in cells[:10]], "and")
        raise UserError(
            f"{path}:1: the line has {counted(len(cells), 'column')}: {shown}; add --columns with "
            "the two of source and target, by number (2,3) or by the names in that line."
        )


def _write_table(path: Path, table: Path) -> None:
    """Convert a CSV; tabs and line breaks in its cells become spaces."""
    with open_text(path) as stream, table.open("wb") as output:
        lines = (line.decode("utf-8-sig", "surrogateescape") for line in stream)
        first = next(lines, "")
        delimiter = max(DELIMITERS, key=first.count)
        rows = csv.reader(chain([first], lines), delimiter=delimiter, strict=True)
        try:
            for row in rows:
                cells = (one_line(cell).replace("\t", " ") for cell in row)
                output.write("\t".join(cells).encode(errors="surrogateescape") + b"\n")
        except csv.Error as error:
            raise UserError(f"{path}:{rows.line_num}: not CSV: {error}.") from None
