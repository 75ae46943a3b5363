"""The interface of a search: sentences, their hypotheses or failures, and the slots between.

Nothing here needs torch, so that lines are prepared without it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

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


Item = TypeVar("Item")  # what is searched: a sentence, or a sentence pair to score


class SlotSearch(ABC, Generic[Item]):
    """A search in progress: ``prepare`` sentences, ``admit`` them to free slots, ``step`` on.

    Not to be shared between threads.
    """

    @property
    @abstractmethod
    def num_slots(self) -> int:
        """The number of sentences that can be searched at a time."""

    @property
    def has_slots_to_drop(self) -> bool:
        """Whether free slots are to be dropped, if no sentence is waiting for them."""
        return False

    def accepts(self, sentence: Item) -> bool:
        """Return whether ``sentence`` may join this search now."""
        del sentence
        return True

    def slots_within(self, most: int) -> int:
        """Return how many of ``most`` slots a search can have."""
        return most

    @abstractmethod
    def prepare(self, sentences: Sequence[Item]) -> Sequence[Any]:
        """Return the sentences as ``admit`` takes them; many at once take less time each."""

    @abstractmethod
    def admit(self, prepared: Sequence[Any]) -> list[int]:
        """Put each sentence into a free slot; return their numbers, counted from 0 in this search.

        They are prepared by this search. Raises ValueError if there are more than free slots.
        """

    @abstractmethod
    def step(self) -> list[Found]:
        """Make all hypotheses one token longer, new ones two; return the sentences that are done.

        A sentence is also done, with an error, if the model's output for it is not a number.
        """

    @abstractmethod
    def withdraw(self, numbers: Sequence[int]) -> None:
        """Free the slots of the sentences with these numbers, which have taken part in a step.

        Nothing is found for them.
        """

    def add_slots(self, number: int, most: int) -> list[Found]:
        """Make room for ``number`` more sentences, as far as ``most`` slots allow.

        Returns the sentences that are found to be done meanwhile.
        """
        del number, most
        return []

    def drop_free_slots(self) -> list[Found]:
        """Drop free slots, so that steps no longer compute their rows; at least one must be busy.

        Returns the sentences that are found to be done meanwhile.
        """
        return []
