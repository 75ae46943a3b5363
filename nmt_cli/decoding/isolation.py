"""Search many sentences so that the failure of one costs only that one."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence

import torch

from nmt_cli.decoding.beams import Found, Hypothesis
from nmt_cli.decoding.search import Sentence
from nmt_cli.errors import tells_of_full_memory

Outcome = tuple[Hypothesis, ...] | str  # the hypotheses, or what went wrong
Search = Callable[[Iterable[Sentence], int], Iterator[Found]]


class Isolation:
    """Runs a search over sentences; those that were in its slots when it failed are suspects.

    They are searched again in halves, down to the ones that fail alone; the others go on as
    before. Where memory ran out and half of the sentences fitted, ``num_slots`` becomes that many.
    """

    def __init__(self, search: Search, sentences: Sequence[Sentence], num_slots: int) -> None:
        self._search, self._sentences = search, sentences
        self.num_slots = num_slots
        self._outcomes: dict[int, Outcome] = {}

    def run(self) -> list[Outcome]:
        """Return what became of each sentence, in their order."""
        self._run(range(len(self._sentences)))
        return [self._outcomes[number] for number in range(len(self._sentences))]

    def _run(self, numbers: Sequence[int]) -> None:
        waiting = deque(numbers)
        while waiting:
            taken: list[int] = []
            failure = self._attempt(waiting, taken)
            if failure is not None:
                suspects = [number for number in taken if number not in self._outcomes]
                self._search_again(suspects, failure)

    def _attempt(self, waiting: deque[int], taken: list[int]) -> str | None:
        """Search until none is ``waiting``; return what went wrong, if anything did.

        Only the text of the error leaves: its traceback would keep the tensors of the failed step
        in memory, and there may be too little of it.
        """

        def sentences() -> Iterator[Sentence]:
            while waiting:
                taken.append(waiting.popleft())
                yield self._sentences[taken[-1]]

        num_slots = min(self.num_slots, len(waiting))
        try:
            for found in self._search(sentences(), num_slots):
                outcome = found.hypotheses or "the model gives every translation probability 0"
                self._outcomes[taken[found.number]] = outcome
        except Exception as error:
            if all(number in self._outcomes for number in taken) or _ends_the_device(error):
                raise  # no sentence is to blame, and trying again would never end
            return f"{type(error).__name__}: {error}"
        return None

    def _search_again(self, suspects: list[int], failure: str) -> None:
        if len(suspects) == 1:
            self._outcomes[suspects[0]] = failure
            return
        half = len(suspects) // 2
        for part in (suspects[:half], suspects[half:]):
            self._run(part)
        all_well = not any(isinstance(self._outcomes[number], str) for number in suspects)
        if all_well and tells_of_full_memory(failure):
            self.num_slots = min(self.num_slots, len(suspects) - half)


def _ends_the_device(error: Exception) -> bool:
    """Say whether every later use of the GPU will fail too."""
    return isinstance(error, torch.AcceleratorError) and not tells_of_full_memory(str(error))
