"""Errors that the user can correct: one line on stderr and an exit status, no traceback."""

from collections.abc import Sequence

SIGNS_OF_FULL_MEMORY = ("out of memory", "allocate memory", "ALLOC_FAILED", "MemoryError")
STATUS_SOME_LINES_FAILED = 3
STATUS_INTERRUPTED = 130  # 128 + SIGINT, as in shells


class UserError(Exception):
    """Input, recipe or files are wrong. The message states where, what was found, what to do."""

    exit_status = 1


class WrongUsageError(UserError):
    """The options of the command line do not go together."""

    exit_status = 2


class RecipeError(UserError):
    """A recipe is wrong; each problem is on a line of its own, ``file:line: key: problem``."""


class DamagedError(UserError):
    """A file does not match its manifest: it is truncated, changed or missing."""


class OutputError(UserError):
    """Output could not be written: the disk is full or the stream is closed."""

    exit_status = 74


class InterruptedTrainingError(UserError):
    """Training was interrupted and saved; ``--resume`` continues it."""

    exit_status = 75


class EndedAtOnceError(InterruptedTrainingError):
    """A second interrupt ended training before it was saved; earlier checkpoints remain."""

    exit_status = STATUS_INTERRUPTED


def means_full_memory(message: str) -> bool:
    """Return whether the message means that a device, library or allocator has no memory left."""
    return any(sign in message for sign in SIGNS_OF_FULL_MEMORY)


class NoTextError(ValueError):
    """One of ``ids`` is outside a vocabulary of ``size`` pieces, or its piece is not valid text."""

    def __init__(self, ids: Sequence[int], size: int) -> None:
        unknown = next((token for token in ids if not 0 <= token < size), None)
        what = "a piece of the tokenizer" if unknown is None else f"the id {unknown:,}"
        super().__init__(f"{what} has no text; the tokenizer has {size:,} pieces")
