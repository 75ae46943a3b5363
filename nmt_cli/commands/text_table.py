"""Tables as lines of text."""

from collections.abc import Iterable, Sequence


def aligned(rows: Iterable[Sequence[str]]) -> list[str]:
    """Return the rows as lines: the first column is aligned left, all others right."""
    table = list(rows)
    first, *others = (max(map(len, column)) for column in zip(*table, strict=True))
    return [
        "  ".join([row[0].ljust(first), *map(str.rjust, row[1:], others)]).rstrip() for row in table
    ]
