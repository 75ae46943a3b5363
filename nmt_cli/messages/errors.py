"""Errors that the user can correct: one line on stderr and an exit status, no traceback."""

from __future__ import annotations

import errno
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

# Not "could not create a primitive descriptor": oneDNN does not support an operation then.
SIGNS_OF_FULL_MEMORY = re.compile(
    "out of memory|allocate memory|ALLOC_FAILED|MemoryError|bad_alloc"
    "|could not create a primitive(?! desc)"
)
STATUS_SOME_LINES_FAILED = 3
STATUS_LIMIT_NOT_MET = 4  # check finished, and a limit is not met
STATUS_INTERRUPTED = 130  # 128 + SIGINT, as in shells


class UserError(Exception):
    """Input, recipe or files are wrong. The message states where, what was found, what to do."""

    exit_status = 1
    given = ""  # a word of the command line that names nothing that fits
    meant: Sequence[str] = ()  # what may be meant by it

    def proposing(self, given: str | Path, meant: Sequence[str | Path]) -> UserError:
        """Return this error; the command line adds the user's command with what is meant."""
        self.given, self.meant = str(given), [str(each) for each in meant]
        return self


class WrongUsageError(UserError):
    """Wrong use of the command line, which no file, model or machine makes right.

    An option has no such value, needs another option, or contradicts one.
    """

    exit_status = 2


class RecipeError(UserError):
    """A recipe is wrong; each problem is on a line of its own, ``file:line: key: problem``."""


class DamagedError(UserError):
    """A file does not match its manifest: it is truncated, changed or missing."""


class OutputError(UserError):
    """Output could not be written: the disk is full or the stream is closed."""

    exit_status = 74

    def __init__(self, what: str, remedy: str = "", then: str = "") -> None:
        """Take ``what`` happened: a sentence, or its beginning if a ``remedy`` follows.

        The message ends with ``then``, which belongs to the remedy.
        """
        super().__init__(f"{what}; {remedy}{then}." if remedy else what)
        self.what, self.remedy = what.removesuffix("."), remedy


class InterruptedTrainingError(UserError):
    """Training was interrupted and saved; ``--resume`` continues it."""

    exit_status = 75


class EndedAtOnceError(InterruptedTrainingError):
    """A second interrupt ended training before it was saved; earlier checkpoints remain."""

    exit_status = STATUS_INTERRUPTED


def means_full_memory(error: BaseException) -> bool:
    """Return whether a device, library or allocator has no memory left."""
    if isinstance(error, OSError):
        return error.errno == errno.ENOMEM
    return SIGNS_OF_FULL_MEMORY.search(f"{type(error).__name__}: {error}") is not None


@contextmanager
def reporting_full_memory() -> Iterator[None]:
    """Raise UserError in place of an error by which this block finds no memory left."""
    try:
        yield
    except (MemoryError, OSError, RuntimeError) as error:
        if not means_full_memory(error):
            raise
        reason = str(error).partition("\n")[0]
        raise UserError(
            f"there is not enough memory{reason and f' ({reason})'}; free some, or raise the limit "
            "(that of the container, or of ulimit -v)."
        ) from error


class NoTextError(ValueError):
    """One of ``ids`` is outside a vocabulary of ``size`` pieces, or its piece is not valid text."""

    def __init__(self, ids: Sequence[int], size: int) -> None:
        unknown = next((token for token in ids if not 0 <= token < size), None)
        what = "a piece of the tokenizer" if unknown is None else f"the id {unknown:,}"
        super().__init__(f"{what} has no text; the tokenizer has {size:,} pieces")


class LinesFailedError(Exception):
    """A bug was met while lines ``first`` to ``last``, counted from 0, were translated.

    The bug is the ``__cause__`` of this error; halving found no smaller range of lines.
    ``finished`` holds the translations of the lines before them.
    """

    def __init__(self, first: int, last: int, finished: Sequence[Any] = ()) -> None:
        lines = f"line {first + 1:,}" if first == last else f"lines {first + 1:,} to {last + 1:,}"
        super().__init__(
            f"{lines} could not be translated because of a bug in nmt-cli; please report it "
            "with the traceback above"
        )
        self.first, self.last, self.finished = first, last, finished

    def behind(self, num_lines: int) -> LinesFailedError:
        """Return the same error with ``num_lines`` added to the line numbers."""
        return LinesFailedError(self.first + num_lines, self.last + num_lines)
