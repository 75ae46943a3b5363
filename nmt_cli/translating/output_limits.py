"""How long sources and outputs may be, and whether outputs are only trees of their words."""

from collections.abc import Sequence
from typing import NamedTuple

from nmt_cli.recipe.model_settings import ModelSettings
from nmt_cli.search.rules.well_formed_trees import WellFormedTrees
from nmt_cli.search.search import Sentence


class LengthLimits(NamedTuple):
    """The most pieces of a side, without marks of start and end."""

    source: int
    target: int | None  # None: any number


def length_limits(*models: ModelSettings) -> LengthLimits:
    """Return what all of ``models`` take: their ``max_length``, and the positions they learned."""
    architectures = [settings.architecture for settings in models]
    learned = [each.max_positions for each in architectures if each.positions == "learned"]
    longest = min(settings.max_length for settings in models)
    if not learned:
        return LengthLimits(longest, None)
    positions = min(learned) - 1  # the mark of start or end takes one
    return LengthLimits(min(longest, positions), positions)


class OutputLimits:
    """Makes sentences for the search, with what is allowed as their output."""

    def __init__(
        self,
        source_end: Sequence[int],
        extra_length: int,
        longest: int | None,
        rule: WellFormedTrees | None,
    ) -> None:
        """Allow ``extra_length`` pieces more than the source has, and never more than ``longest``.

        ``source_end`` is added to each source. With ``rule``, outputs are trees of its words.
        """
        self._source_end, self._extra_length, self._longest = source_end, extra_length, longest
        self._rule = rule

    @property
    def rules(self) -> tuple[WellFormedTrees, ...]:
        """The rules that the search of the sentences needs."""
        return () if self._rule is None else (self._rule,)

    def sentence(self, tokens: Sequence[int], words: Sequence[str]) -> Sentence:
        """Return the sentence with ``tokens``, which do not have its end.

        ``words`` are the leaves of its tree. Its outputs are not restricted to trees if there are
        no words, if there are more words than the output may have pieces, or if no tree of so many
        words fits into ``longest``. If every tree needs more than ``extra_length``, the outputs may
        be as long as the shortest one.
        """
        longest_output, rule_data = len(tokens) + self._extra_length, {}
        if self._rule is not None and 0 < len(words) <= longest_output:
            leaves = self._rule.leaves(words)
            shortest = self._rule.shortest_output(leaves)
            if self._longest is None or shortest <= self._longest:
                longest_output = max(longest_output, shortest)
                rule_data = {self._rule.name: leaves}
        if self._longest is not None:
            longest_output = min(longest_output, self._longest)
        return Sentence([*tokens, *self._source_end], longest_output, rule_data)
