"""The ranges and defaults of options of the search: in recipes, on the command line, in Python.

Options that are also keys of a recipe have their defaults in its schema. This module imports
neither torch nor pydantic, because the command line needs it for ``--help``.
"""

import math
from typing import Any, Literal, NamedTuple

from nmt_cli.messages.errors import WrongUsageError


class Range(NamedTuple):
    """The finite numbers that an option takes, and its default."""

    least: int
    most: int | None = None
    without_least: bool = False
    default: Any = None

    def holds(self, value: float) -> bool:
        """Return whether ``value`` is in this range."""
        is_enough = value > self.least if self.without_least else value >= self.least
        is_little = self.most is None or value <= self.most
        return (
            is_enough and is_little and value < math.inf
        )  # also for numbers too large for a float

    def __str__(self) -> str:
        low = f"more than {self.least}" if self.without_least else f"at least {self.least}"
        return low if self.most is None else f"{low} and at most {self.most:,}"


BEAM_SIZE = Range(1, 1000)
LENGTH_PENALTY = Range(0, 10)  # of a search
RESCORING_PENALTY = LENGTH_PENALTY._replace(default=0.0)
N_BEST = Range(1, default=1)
MOST_SAMPLES = 1000  # --n-best with --sample
NUM_SAMPLES = Range(1, MOST_SAMPLES)
TEMPERATURE = Range(0, 1000, without_least=True, default=1.0)
TOP_K = Range(1)
TOP_P = Range(0, 1, without_least=True, default=1.0)
SEED = Range(0, default=1)
MIN_LENGTH = Range(0)
MAX_LENGTH = Range(1)
NO_REPEAT_NGRAM = Range(1)
NUM_FREQUENT, NUM_TARGETS = 100, 50  # pieces of a lexicon: of all sources, and of each piece
DEFAULT_TOO_LONG: Literal["split"] = "split"
DEFAULT_TOKENIZE: Literal["none"] = "none"


def refuse_outside(option: str, value: float | None, allowed: Range) -> None:
    """Raise UserError if ``value`` is given and not ``allowed``."""
    if value is not None and not allowed.holds(value):
        raise WrongUsageError(f"{option} must be {allowed}, but is {value}.")
