"""Random choices that come out the same in every version of Python."""

import random
from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")


class Chance:
    """Draws from ``random.random`` alone, the one method Python promises to keep as it is."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed).random
        self.uses: dict[object, int] = {}

    def happens(self, probability: float) -> bool:
        """True with the given probability."""
        return self._random() < probability

    def below(self, limit: int) -> int:
        """A whole number from 0 to ``limit`` - 1."""
        return int(self._random() * limit)

    def pick(self, options: Sequence[T]) -> T:
        """One of the options, each as likely."""
        return options[int(self._random() * len(options))]

    def weighted(self, options: Sequence[tuple[T, float]]) -> T:
        """One of the options by the weights beside them, which sum to 1 or a little less."""
        rest = self._random()
        for option, weight in options:
            rest -= weight
            if rest < 0:
                return option
        return options[-1][0]

    def rare(self, options: Sequence[T]) -> T:
        """The least used of three options drawn, so that no word of a list stays rare."""
        drawn = (self.pick(options), self.pick(options), self.pick(options))
        chosen = min(drawn, key=self._used)
        self.uses[chosen] = self._used(chosen) + 1
        return chosen

    def _used(self, option: object) -> int:
        return self.uses.get(option, 0)
