"""What a sentence's outputs may be: how long, and whether only trees of its words."""

from collections.abc import Sequence

from nmt_cli.decoding.rules.well_formed_trees import WellFormedTrees
from nmt_cli.decoding.search import Sentence


class OutputLimits:
    """Makes sentences for the search, with what is allowed as their output."""

    def __init__(
        self, eos_id: int, extra_length: int, longest: int | None, trees: WellFormedTrees | None
    ) -> None:
        """Allow ``extra_length`` pieces more than the source has, and never more than ``longest``.

        With the rule ``trees``, outputs are trees of the sentence's words.
        """
        self._eos_id, self._extra_length, self._longest = eos_id, extra_length, longest
        self._trees = trees

    @property
    def rules(self) -> tuple[WellFormedTrees, ...]:
        """The rules that the search of the sentences needs."""
        return () if self._trees is None else (self._trees,)

    def sentence(self, tokens: Sequence[int], words: Sequence[str]) -> Sentence:
        """Return the sentence with ``tokens``, which do not have ``</s>``.

        ``words`` are the leaves of its tree; if there are none, its outputs are not restricted to
        trees. They also are not if no tree of so many words fits into ``longest``, or if most of
        the words have no piece. A tree that needs more than ``extra_length`` may be longer.
        """
        longest_output, rule_data = len(tokens) + self._extra_length, {}
        if self._trees is not None and 0 < len(words) <= longest_output:
            shortest = self._trees.shortest_output(len(words))
            if self._longest is None or shortest <= self._longest:
                longest_output = max(longest_output, shortest)
                rule_data = {self._trees.name: self._trees.leaves(words)}
        if self._longest is not None:
            longest_output = min(longest_output, self._longest)
        return Sentence([*tokens, self._eos_id], longest_output, rule_data)
