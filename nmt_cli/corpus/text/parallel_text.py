"""Two text files; line n of one translates line n of the other."""

import contextlib
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import chain, zip_longest
from pathlib import Path
from typing import BinaryIO, TypeVar, cast

from nmt_cli.corpus.tokenizers.normalization import Side
from nmt_cli.files.lines import LineTexts
from nmt_cli.files.text_files import bytes_read, open_text
from nmt_cli.messages.errors import UserError
from nmt_cli.messages.figures import counted
from nmt_cli.recipe.schema import ParallelFiles

First = TypeVar("First")
Second = TypeVar("Second")


class ParallelText:
    """The pairs of two files, in order."""

    def __init__(self, files: ParallelFiles) -> None:
        self._files = files
        self.num_invalid: dict[Side, int] = {"source": 0, "target": 0}  # lines with bad bytes
        self._streams: list[BinaryIO] = []

    @property
    def num_bytes(self) -> int:
        """The number of bytes read so far from the two files, before decompression."""
        return sum(map(bytes_read, self._streams))

    def __iter__(self) -> Iterator[tuple[str, str]]:
        """Yield source and target of each pair; ``num_invalid`` is set after the last one.

        Raises UserError if a file cannot be read, is damaged, empty or a pipe, or at the end if one
        file has more lines than the other.
        """
        files, is_empty = self._files, True
        for path in (files.source, files.target):
            refuse_pipes(path)
        with open_text(files.source) as source_stream, open_text(files.target) as target_stream:
            self._streams = [source_stream, target_stream]
            source_texts, target_texts = LineTexts(source_stream), LineTexts(target_stream)
            unequal = partial(_unequal, files)
            for pair in in_pairs(source_texts, target_texts, unequal):
                is_empty = False
                yield pair
        if is_empty:
            raise _empty(files.source)
        self.num_invalid = {
            "source": source_texts.num_invalid,
            "target": target_texts.num_invalid,
        }


def in_pairs(
    some: Iterable[First], others: Iterable[Second], unequal: Callable[[int, int], UserError]
) -> Iterator[tuple[First, Second]]:
    """Yield each item of ``some`` with the item of ``others`` at the same place.

    Raises ``unequal(n, m)`` if there are n of ``some`` and another number m of ``others``.
    """
    end = object()
    lefts, rights = iter(some), iter(others)
    for number, (left, right) in enumerate(zip_longest(lefts, rights, fillvalue=end)):
        if left is end or right is end:
            longer = number + 1 + sum(1 for _ in chain(lefts, rights))
            raise unequal(number, longer) if left is end else unequal(longer, number)
        yield cast(First, left), cast(Second, right)


def refuse_pipes(path: Path) -> None:
    """Raise UserError if ``path`` cannot be read more than once."""
    with contextlib.suppress(OSError, ValueError):  # opening the file will raise the right error
        if path.exists() and not path.is_file() and not path.is_dir():
            raise UserError(
                f"{path} is not a plain file, but preprocess reads text more than once; "
                "write it to a file first."
            )


def _unequal(files: ParallelFiles, num_sources: int, num_targets: int) -> UserError:
    if num_sources == 0:
        return _empty(files.source)
    if num_targets == 0:
        return _empty(files.target)
    return UserError(
        f"{files.source} has {counted(num_sources, 'line')} but {files.target} has "
        f"{num_targets:,}; line n of one must translate line n of the other."
    )


def _empty(path: Path) -> UserError:
    return UserError(f"{path} is empty; it must hold one sentence per line.")
