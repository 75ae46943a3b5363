"""What a search takes and returns: sentences, and their hypotheses or failures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from nmt_cli.messages.errors import NoTextError, means_full_memory
from nmt_cli.search.beams import Found, Hypothesis

if TYPE_CHECKING:
    from nmt_cli.search.choice import Choice


class Sentence(NamedTuple):
    """A sentence to translate."""

    tokens: Sequence[int]  # with </s>, as the encoder reads them
    longest_output: int  # tokens, without </s>
    rule_data: Mapping[str, Any] = MappingProxyType({})  # data for rules, by the rule's name
    n_best: int | None = None  # how many hypotheses to find; by default those of the settings
    choice: Choice | None = None  # of its candidates; by default that of the search
    beam_size: int | None = None  # at most that of the settings, which is the default
    length_penalty: float | None = None  # by default that of the settings
    # Whether its beam is shared between banks; hypotheses of only one bank can end.
    shares_beam: bool = False
    needs_units: bool = False  # whether its hypotheses need what their units attend to
    needs_words: bool = False  # whether they need what their words attend to

    @property
    def has_rules(self) -> bool:
        """Whether rules or a choice of its own decide what may follow."""
        return self.choice is not None or bool(self.rule_data)


class Cause(Enum):
    """Why a sentence has no hypothesis."""

    ITSELF = auto()  # what it contains, or what the model computes from it
    IMPOSSIBLE = auto()  # no output has a probability above 0
    NO_MEMORY = auto()
    BUG = auto()


@dataclass(frozen=True)
class Failure:
    """Why a sentence has no hypothesis, and the reason as messages show it."""

    cause: Cause
    reason: str
    bug: Exception | None = None


Outcome = tuple[Hypothesis, ...] | Failure
IMPOSSIBLE = Failure(Cause.IMPOSSIBLE, "the model gives every translation probability 0")
NO_MEMORY = Failure(
    Cause.NO_MEMORY,
    "the memory is full even for this line alone; shorten it, or end other programs",
)


def outcome_of(found: Found) -> Outcome:
    """Return the hypotheses that were found, or why there are none."""
    if found.error is not None:
        return Failure(Cause.ITSELF, found.error)
    return found.hypotheses or IMPOSSIBLE


def failure_of(error: Exception) -> Failure | None:
    """Return why a line cannot be translated; None if ``error`` is a bug.

    An error is not a bug if it is caused by the line itself or by full memory.
    """
    if isinstance(error, (FloatingPointError, NoTextError)):
        return Failure(Cause.ITSELF, str(error))
    if means_full_memory(error):
        return NO_MEMORY
    return None
