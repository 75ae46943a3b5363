"""Files with both sides of a pair in each line: columns with tabs between them, or JSON objects."""

import json
from pathlib import Path
from typing import Any, NamedTuple

from nmt_cli.files.lines import BYTE_ORDER_MARK, one_line
from nmt_cli.messages.errors import UserError
from nmt_cli.messages.figures import counted
from nmt_cli.messages.proposals import any_of
from nmt_cli.recipe.corpora_config import ParallelFiles

FIRST_COLUMNS, DEFAULT_KEYS = ("1", "2"), ("source", "target")


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
