"""Searches many sentences so that a failing sentence does not affect the others."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum, auto
from typing import Generic, TypeVar

import torch

from nmt_cli.messages.errors import LinesFailedError, NoTextError, means_full_memory
from nmt_cli.search.beams import Found, Hypothesis

Item = TypeVar("Item")  # what is searched: a sentence, or a sentence pair to score
SearchFunction = Callable[[Iterable[Item], int], Iterator[Found]]


class Cause(Enum):
    """Why a sentence has no hypothesis."""

    ITSELF = auto()  # what it contains, or what the model computes from it
    IMPOSSIBLE = auto()  # no output has a probability above 0
    NO_MEMORY = auto()


@dataclass(frozen=True)
class Failure:
    """Why a sentence has no hypothesis, and how messages say it."""

    cause: Cause
    reason: str


Outcome = tuple[Hypothesis, ...] | Failure
IMPOSSIBLE = Failure(Cause.IMPOSSIBLE, "the model gives every translation probability 0")
NO_MEMORY = Failure(
    Cause.NO_MEMORY,
    "the memory is full even for this line alone; lower --beam-size, or end other programs",
)


def outcome_of(found: Found) -> Outcome:
    """Return the hypotheses that were found, or why there are none."""
    if found.error is not None:
        return Failure(Cause.ITSELF, found.error)
    return found.hypotheses or IMPOSSIBLE


class BugError(Exception):
    """``bug`` was raised while the texts at ``places`` were translated; they did not cause it."""

    def __init__(self, places: Sequence[int], bug: Exception) -> None:
        super().__init__(places, bug)
        self.places, self.bug = places, bug


@contextmanager
def naming_lines(lines: Sequence[int]) -> Iterator[None]:
    """Turn a BugError into LinesFailedError; place n of the BugError is line ``lines[n]``."""
    try:
        yield
    except BugError as error:
        failed = [lines[place] for place in error.places]
        raise LinesFailedError(min(failed), max(failed)) from error.bug


def own_failure(error: Exception) -> Failure | None:
    """Return why a line cannot be translated, or None if ``error`` is a bug.

    An error is not a bug if it is caused by the line itself or by full memory.
    """
    if isinstance(error, (FloatingPointError, NoTextError)):
        return Failure(Cause.ITSELF, str(error))
    if isinstance(error, MemoryError) or means_full_memory(f"{type(error).__name__}: {error}"):
        return NO_MEMORY
    return None


def own_failure_of(line: int, error: Exception) -> Failure:
    """Return why ``line`` could not be translated. Raises LinesFailedError for a bug."""
    own = own_failure(error)
    if own is None:
        raise LinesFailedError(line, line) from error
    return own


class Isolation(Generic[Item]):
    """Runs a search over sentences and isolates those that make it fail.

    The sentences that were in the slots when the search failed are suspects. They are searched
    again in halves, until the sentences that fail alone are found; then the search continues with
    the other sentences. A bug ends the run instead. If memory was full but half of the suspects
    fitted, ``num_slots`` is reduced to that half.
    """

    def __init__(
        self, search: SearchFunction[Item], sentences: Sequence[Item], num_slots: int
    ) -> None:
        self._search, self._sentences = search, sentences
        self.num_slots = num_slots
        self._outcomes: dict[int, Outcome] = {}

    def run(self) -> list[Outcome]:
        """Return the outcome of each sentence, in the given order.

        Raises BugError for a bug, with the fewest suspects that halving finds.
        """
        self._run(range(len(self._sentences)))
        return [self._outcomes[number] for number in range(len(self._sentences))]

    def _run(self, numbers: Sequence[int]) -> None:
        waiting = deque(numbers)
        while waiting:
            taken: list[int] = []
            failure = self._attempt(waiting, taken)
            if failure is None:
                continue
            suspects = [number for number in taken if number not in self._outcomes]
            if isinstance(failure, Exception):
                raise self._narrowed(suspects or taken, failure)
            self._search_again(suspects, failure)

    def _narrowed(self, suspects: Sequence[int], bug: Exception) -> BugError:
        """Return a BugError for ``bug`` with the fewest suspects that halving finds."""
        is_narrower = True
        while is_narrower and len(suspects) > 1:
            half, is_narrower = len(suspects) // 2, False
            for part in (suspects[:half], suspects[half:]):
                failure = self._attempt(deque(part), [])
                if isinstance(failure, Exception):
                    suspects, bug, is_narrower = part, failure, True
                    break
        return BugError(suspects, bug)

    def _attempt(self, waiting: deque[int], taken: list[int]) -> Failure | Exception | None:
        """Search until no sentence is ``waiting``; return None, or what went wrong.

        A failure that a sentence or full memory caused is returned without its error: a traceback
        would keep the tensors of the failed step in memory. A bug is returned as the error.
        """

        def sentences() -> Iterator[Item]:
            while waiting:
                taken.append(waiting.popleft())
                yield self._sentences[taken[-1]]

        num_slots = min(self.num_slots, len(waiting))
        try:
            for found in self._search(sentences(), num_slots):
                self._outcomes[taken[found.number]] = outcome_of(found)
        except Exception as error:
            if _ends_the_device(error):
                raise
            own = own_failure(error)
            if own is not None and all(number in self._outcomes for number in taken):
                raise  # no sentence is a suspect, so searching again would never end
            return own or error
        return None

    def _search_again(self, suspects: list[int], failure: Failure) -> None:
        if len(suspects) == 1:
            self._outcomes[suspects[0]] = failure
            return
        half = len(suspects) // 2
        for part in (suspects[:half], suspects[half:]):
            self._run(part)
        all_well = not any(isinstance(self._outcomes[number], Failure) for number in suspects)
        if all_well and failure.cause is Cause.NO_MEMORY:
            self.num_slots = min(self.num_slots, len(suspects) - half)


def _ends_the_device(error: Exception) -> bool:
    """Return whether every later use of the GPU will fail too."""
    return isinstance(error, torch.AcceleratorError) and not means_full_memory(str(error))
