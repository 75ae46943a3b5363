"""Two files of which line n of one translates line n of the other."""

import contextlib
from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path
from typing import NamedTuple

from nmt_cli.corpus.lines import Line, open_text, read_lines
from nmt_cli.errors import UserError
from nmt_cli.recipe.schema import ParallelFiles

# Compressed text under a plain name would be read as one or two very odd lines.
COMPRESSED = {b"\x1f\x8b\x08": ".gz", b"\xfd7zXZ\x00": ".xz", b"\x28\xb5\x2f\xfd": ".zst"}


class Pair(NamedTuple):
    """Line ``number`` of both files, counted from 1."""

    number: int
    source: Line
    target: Line


def read_pairs(files: ParallelFiles) -> Iterator[Pair]:
    """Yield the pairs of two files; refuse them, when both are read, if one has more lines."""
    for path in (files.source, files.target):
        _refuse_what_is_not_text(path)
    with open_text(files.source) as source_stream, open_text(files.target) as target_stream:
        sources, targets = read_lines(source_stream), read_lines(target_stream)
        number = 0
        for source, target in zip_longest(sources, targets):
            if source is None or target is None:
                num_sources = number + (source is not None) + sum(1 for _ in sources)
                num_targets = number + (target is not None) + sum(1 for _ in targets)
                raise _unequal(files, num_sources, num_targets)
            number += 1
            yield Pair(number, source, target)
    if number == 0:
        raise _empty(files.source)


def _refuse_what_is_not_text(path: Path) -> None:
    with contextlib.suppress(OSError, ValueError):  # opening it will say what is wrong
        if path.exists() and not path.is_file() and not path.is_dir():
            raise UserError(
                f"{path} is not a plain file, but preprocess reads text more than once; "
                "write it to a file first."
            )
        with path.open("rb") as stream:
            start = stream.read(max(map(len, COMPRESSED)))
        for magic, suffix in COMPRESSED.items():
            if start.startswith(magic) and path.suffix not in COMPRESSED.values():
                raise UserError(f"{path} is compressed; its name must end in {suffix}.")


def _unequal(files: ParallelFiles, num_sources: int, num_targets: int) -> UserError:
    if num_sources == 0:
        return _empty(files.source)
    if num_targets == 0:
        return _empty(files.target)
    return UserError(
        f"{files.source} has {num_sources:,} lines but {files.target} has {num_targets:,}; "
        "line n of one must translate line n of the other."
    )


def _empty(path: Path) -> UserError:
    return UserError(f"{path} is empty; it must hold a sentence a line.")
