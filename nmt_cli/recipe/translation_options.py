"""The options of a translation: the numbers and choices that are possible, and defaults.

Options of commands, keys of lines and requests, and refusals derive from it by their names.
Those that are also keys of a recipe have their defaults in its schema. This module imports neither
torch nor pydantic, because the command line needs it for ``--help``.
"""

import math
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, get_args

from nmt_cli.messages.errors import WrongUsageError


class Range(NamedTuple):
    """The finite numbers that are possible, and the default."""

    least: int
    most: int | None = None
    without_least: bool = False
    is_whole: bool = True
    default: Any = None

    def holds(self, value: float) -> bool:
        """Return whether ``value`` is in this range."""
        is_enough = value > self.least if self.without_least else value >= self.least
        is_little = self.most is None or value <= self.most
        # JSON may hold a whole number too large for a float, which counts as infinite.
        return is_enough and is_little and value < math.inf

    def __str__(self) -> str:
        low = f"more than {self.least}" if self.without_least else f"at least {self.least}"
        return low if self.most is None else f"{low} and at most {self.most:,}"


NUMBERS = {
    "beam_size": Range(1, 1000),
    "length_penalty": Range(0, 10, is_whole=False),
    "n_best": Range(1, default=1),
    "temperature": Range(0, 1000, without_least=True, is_whole=False, default=1.0),
    "top_k": Range(1),
    "top_p": Range(0, 1, without_least=True, is_whole=False, default=1.0),
    "seed": Range(0, default=1),
    "min_length": Range(0),
    "max_length": Range(1),
    "no_repeat_ngram": Range(1),
    "memory_similarity": Range(1, 99, default=75),  # per cent; as translators and tools have it
}
Choose = Literal["score", "mbr"]  # which of several translations is the first
Markup = Literal["html", "xml"]
TooLong = Literal["split", "truncate", "error"]
CHOICES: dict[str, Sequence[Any]] = {
    "choose": get_args(Choose),
    "markup": get_args(Markup),
    "too_long": get_args(TooLong),
    "tokenize": ("none", "penn"),
}
OPTIONS = {"prefix": "--target-prefix", "top_k": "--sample-top-k", "top_p": "--sample-top-p"}
MOST_SAMPLES = 1000  # --n-best with --sample
NUM_SAMPLES = Range(1, MOST_SAMPLES)
RESCORING_PENALTY = 0.0  # --length-penalty of rescore
NUM_FREQUENT, NUM_TARGETS = 100, 50  # pieces of a lexicon: of all sources, and of each piece


def option_of(name: str) -> str:
    """Return the option of ``translate`` with this ``name`` here."""
    return OPTIONS.get(name, f"--{name.replace('_', '-')}")


def refuse_outside(**given: float | None) -> None:
    """Raise UserError if the number that is given for an option is not possible."""
    for name, value in given.items():
        if value is not None and not NUMBERS[name].holds(value):
            raise WrongUsageError(f"{option_of(name)} must be {NUMBERS[name]}, but is {value}.")
