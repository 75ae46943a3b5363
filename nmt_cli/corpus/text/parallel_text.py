"""Two text files, whose line n of one translates line n of the other; or a file of both sides."""

import contextlib
import json
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
import numpy.typing as npt

from nmt_cli.corpus.text.memories import open_pairs
from nmt_cli.corpus.tokenizers.normalization import SIDES, Side
from nmt_cli.files.lines import BYTE_ORDER_MARK, HeldLines, number_in, one_line, texts_in
from nmt_cli.files.text_files import bytes_read, is_read_again, open_text
from nmt_cli.messages.errors import UserError
from nmt_cli.messages.figures import counted
from nmt_cli.messages.proposals import any_of
from nmt_cli.recipe.sections.corpora import ParallelFiles

FIRST_COLUMNS, DEFAULT_KEYS = ("1", "2"), SIDES


class RowReader(NamedTuple):
    """Takes both sides out of the rows of a file."""

    path: Path
    keys: tuple[str, str]  # of JSON objects; of a table, the names or numbers of the columns
    places: tuple[int, int] | None  # of the columns, from 0; None for JSON objects
    has_header: bool = False  # whether the first line has the names of the columns

    @classmethod
    def of(cls, files: ParallelFiles, first_line: bytes) -> "RowReader":
        """Return the reader of a corpus; ``first_line`` is that of its file.

        Raises UserError if a name of a column is not in that line.
        """
        if files.jsonl is not None:
            return cls(files.jsonl, files.columns or DEFAULT_KEYS, None)
        if files.memory is not None:  # read by memories.open_pairs, which writes such lines
            return cls(files.memory, FIRST_COLUMNS, (0, 1))
        assert files.tsv is not None
        keys = files.columns or FIRST_COLUMNS
        if all(key.isdecimal() and int(key) > 0 for key in keys):
            first, second = (int(key) - 1 for key in keys)
            return cls(files.tsv, keys, (first, second))
        line = first_line.removeprefix(BYTE_ORDER_MARK).removesuffix(b"\r")
        names = line.decode(errors="replace").split("\t")
        for key in keys:
            if key not in names:
                raise UserError(
                    f"{files.tsv}:1: no column is named {key!r}; its first line has the names "
                    f"{any_of([repr(name[:40]) for name in names[:10]], 'and')}. Correct columns, "
                    "or give their numbers, from 1."
                )
        first, second = map(names.index, keys)
        return cls(files.tsv, keys, (first, second), has_header=True)

    def sides(self, rows: bytes, first_line: int) -> tuple[bytes, bytes]:
        """Return the lines of both sides; ``first_line`` is the number of the first row's line.

        A blank row is a pair of empty texts. Raises UserError if a row lacks a side.
        """
        take = self._cells if self.places is not None else self._values
        pairs = [
            take(row, number) if row.strip() else (b"", b"")
            for number, row in enumerate(rows.split(b"\n"), first_line)
        ]
        sources, targets = (b"\n".join(side) for side in zip(*pairs, strict=True))
        return sources, targets

    def _cells(self, row: bytes, line: int) -> tuple[bytes, bytes]:
        assert self.places is not None
        cells, (first, second) = row.split(b"\t"), self.places
        if max(self.places) >= len(cells):
            raise UserError(
                f"{self.path}:{line}: the line has {counted(len(cells), 'column')}, but columns "
                f"names {any_of(self.keys, 'and')}; correct the line, or columns."
            )
        return cells[first], cells[second]

    def _values(self, row: bytes, line: int) -> tuple[bytes, bytes]:
        try:
            value = json.loads(row.removeprefix(BYTE_ORDER_MARK).decode(errors="surrogateescape"))
        except (ValueError, RecursionError) as error:
            reason = getattr(error, "msg", "it has too many levels or digits")
            raise UserError(f"{self.path}:{line}: the line is not JSON: {reason}.") from None
        source, target = (self._text(value, key, line) for key in self.keys)
        return source, target

    def _text(self, row: Any, key: str, line: int) -> bytes:
        value = row
        for step in [key] if isinstance(row, dict) and key in row else key.split("."):
            if not isinstance(value, dict) or step not in value:
                raise UserError(f"{self.path}:{line}: {_what_is_there(row, key)}")
            value = value[step]
        if not isinstance(value, str):
            is_section = isinstance(value, dict | list)
            found = "a list or an object" if is_section else json.dumps(value)[:40]
            raise UserError(f"{self.path}:{line}: {key!r} must be text, but is {found}.")
        # Bad bytes and halves of surrogate pairs become invalid UTF-8, and so are counted as such.
        return one_line(value).encode(errors="surrogatepass")


def _what_is_there(row: Any, key: str) -> str:
    """Return that a row lacks ``key``, and which keys it has."""
    if not isinstance(row, dict):
        return "the line must be a JSON object with a text of each language."
    if not row:
        return "the object is empty."
    keys = [
        inner
        for name, value in row.items()
        for inner in ([f"{name}.{each}" for each in value] if isinstance(value, dict) else [name])
    ]
    named = any_of([repr(each[:40]) for each in keys[:10]], "and")
    return (
        f"the object has no key {key!r}; its keys are {named}. Name those of source and target: "
        "columns: [KEY, KEY]."
    )


PAIRS_IN_CHUNK = 2000


class Texts(NamedTuple):
    """The two sides of some pairs as lists, and how many lines of each side have bad bytes."""

    sources: list[str]
    targets: list[str]
    num_invalid: dict[Side, int]
    links: list[str] | None = None  # of words, if the corpus has alignments

    def only(self, is_chosen: npt.NDArray[np.bool_]) -> "Texts":
        """Return the chosen pairs."""
        if is_chosen.all():
            return self
        places = np.flatnonzero(is_chosen).tolist()
        sources, targets = ([side[place] for place in places] for side in self[:2])
        links = None if self.links is None else [self.links[place] for place in places]
        return self._replace(sources=sources, targets=targets, links=links)


class LineChunk(NamedTuple):
    """Adjacent lines of both files, not yet decoded."""

    num_before: int  # lines of the text
    num_lines: int
    source: bytes  # without the last line feed
    target: bytes = b""  # nothing if there are ``rows``
    scores: bytes | None = None  # lines of a third file, if the corpus has scores
    alignments: bytes | None = None  # likewise
    rows: RowReader | None = None  # takes both sides out of ``source``, if it holds rows of both
    num_bytes: int = 0  # read so far of the files of source and target, before decompression

    @property
    def first_line(self) -> int:
        """The number of the first line in its file."""
        return self.num_before + 1 + (self.rows is not None and self.rows.has_header)

    def texts(self) -> Texts:
        """Return the text of the lines. Raises UserError if a row does not hold both sides."""
        source, target, is_first = self.source, self.target, self.num_before == 0
        if self.rows is not None:
            source, target = self.rows.sides(source, self.first_line)
            is_first = is_first and not self.rows.has_header
        sources, bad_sources = texts_in(source, is_first=is_first)
        targets, bad_targets = texts_in(target, is_first=is_first)
        links = None
        if self.alignments is not None:
            links, _ = texts_in(self.alignments, is_first=self.num_before == 0)
        return Texts(sources, targets, {"source": bad_sources, "target": bad_targets}, links)

    def numbers(self, path: Path) -> npt.NDArray[np.float64]:
        """Return the scores, which are of the file ``path``.

        Raises UserError if a line is no number.
        """
        assert self.scores is not None
        lines, _ = texts_in(self.scores, is_first=self.num_before == 0)
        numbers = np.empty(len(lines))
        for place, line in enumerate(lines):
            numbers[place] = number_in(line)
            if np.isnan(numbers[place]):
                number = self.num_before + place + 1
                raise UserError(
                    f"line {number:,} of {path} is {line[:40]!r}; it must be a number, the "
                    "score of the pair on the same line of source and target."
                )
        return numbers


class ParallelText:
    """The pairs of two files, in order, and the scores and links of a corpus that has them."""

    def __init__(self, files: ParallelFiles, *, is_read_once: bool = False) -> None:
        """Files that are only read once may be pipes."""
        self._files, self._is_read_once = files, is_read_once
        self.num_invalid: dict[Side, int] = {"source": 0, "target": 0}  # lines with bad bytes

    def __iter__(self) -> Iterator[tuple[str, str]]:
        """Yield source and target of each pair; ``num_invalid`` is set after the last one.

        Raises UserError if a file cannot be read, is damaged, empty or a pipe, or at the end if one
        file has more lines than another.
        """
        self.num_invalid = {"source": 0, "target": 0}
        for chunk in self.chunks():
            texts = chunk.texts()
            yield from zip(texts.sources, texts.targets, strict=True)
            for side, number in texts.num_invalid.items():
                self.num_invalid[side] += number

    def chunks(self) -> Iterator[LineChunk]:
        """Yield all lines in chunks of at most ``PAIRS_IN_CHUNK``; they do not need decoding here.

        The chunks of a text are always the same. Raises UserError if a file cannot be read, is
        damaged, empty or a pipe, or at the end if one file has more lines than another.
        """
        paths = self._paths()
        for path in () if self._is_read_once else paths.values():
            refuse_pipes(path)
        with ExitStack() as stack:
            streams = [stack.enter_context(self._open(path)) for path in paths.values()]
            held = {name: HeldLines(stream) for name, stream in zip(paths, streams, strict=True)}
            rows = None
            if self._files.rows is not None:
                rows = RowReader.of(self._files, held["source"].first())
                if rows.has_header:
                    held["source"].take(1)
            num_before = 0
            while count := min(column.hold(PAIRS_IN_CHUNK) for column in held.values()):
                taken = {name: column.take(count) for name, column in held.items()}
                num_bytes = sum(map(bytes_read, streams[: len(self._files.paths)]))
                yield LineChunk(num_before, count, **taken, rows=rows, num_bytes=num_bytes)
                num_before += count
            totals = {name: column.count_all() for name, column in held.items()}
        if rows is not None:
            totals["source"] -= rows.has_header
        self._refuse_unequal(paths, totals)

    def _open(self, path: Path) -> AbstractContextManager[BinaryIO]:
        if path != self._files.memory:
            return open_text(path)
        assert self._files.columns is not None, "call with_languages first"
        return open_pairs(path, self._files.columns, self._files.inline_tags)

    def _paths(self) -> dict[str, Path]:
        """Return the files to read; a file of rows, which holds both sides, is the source."""
        paths = zip(SIDES, self._files.paths.values(), strict=False)
        return {**dict(paths), **self._files.of_pairs}

    def _refuse_unequal(self, paths: Mapping[str, Path], totals: Mapping[str, int]) -> None:
        """Raise UserError if the files are empty, or if one has more lines than another."""
        for side in SIDES:
            if totals.get(side) == 0:
                raise UserError(f"{paths[side]} is empty; it must hold one sentence per line.")
        num_pairs = totals["source"]
        if totals.get("target", num_pairs) != num_pairs:
            raise UserError(
                f"{paths['source']} has {counted(num_pairs, 'line')} but {paths['target']} has "
                f"{totals['target']:,}; line n of one must translate line n of the other."
            )
        unit = "line" if self._files.rows is None else "pair"
        for name, relation in (("scores", "be the score"), ("alignments", "hold the links")):
            if totals.get(name, num_pairs) != num_pairs:
                raise UserError(
                    f"{paths[name]} has {counted(totals[name], 'line')} but {paths['source']} has "
                    f"{num_pairs:,}; line n of one must {relation} of {unit} n of the other."
                )


def refuse_pipes(path: Path) -> None:
    """Raise UserError if ``path`` cannot be read more than once."""
    with contextlib.suppress(OSError, ValueError):  # opening the file will raise the right error
        if path.exists() and not is_read_again(path) and not path.is_dir():
            raise UserError(
                f"{path} is not a plain file, but preprocess reads text more than once; "
                "write it to a file first."
            )
