"""How long outputs may be, and whether they are only trees of the words of their source."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from nmt_cli.corpus.tokenizers.tokenizer import Tokenizer
from nmt_cli.recipe.model_settings import LengthLimits, ModelSettings

if TYPE_CHECKING:
    from nmt_cli.search.rules.well_formed_trees import WellFormedTrees


class OutputLimits(NamedTuple):
    """How long outputs may be, and whether they are only trees of the words of their source."""

    extra_length: int  # pieces that an output may have more than its source
    longest: int | None  # pieces that no output exceeds
    trees: WellFormedTrees | None = None  # the rule, if outputs are only trees

    @classmethod
    def of(
        cls,
        settings: ModelSettings,
        tokenizer: Tokenizer,
        lengths: LengthLimits,
        extra_length: int | None,
        only_trees: bool | None,
    ) -> OutputLimits:
        """Return the limits of a model; those that are None are as in its ``settings``."""
        decoding, trees = settings.decoding, None
        if extra_length is None:
            extra_length = decoding.max_extra_length
        if decoding.well_formed_trees if only_trees is None else only_trees:
            from nmt_cli.search.rules.well_formed_trees import WellFormedTrees

            trees = WellFormedTrees.of_model(tokenizer, settings.trees)
        return cls(extra_length, lengths.target, trees)

    def of_source(self, num_tokens: int, words: Sequence[str]) -> tuple[int, dict[str, Any]]:
        """Return the longest output for a source of so many tokens, and the data of its rule.

        ``words`` are the leaves of its tree. Its outputs are not restricted to trees if there are
        no words, if there are more words than the output may have pieces, or if no tree of so many
        words fits into ``longest``. If every tree needs more than ``extra_length``, the outputs may
        be as long as the shortest one.
        """
        longest_output, rule_data = num_tokens + self.extra_length, {}
        if self.trees is not None and 0 < len(words) <= longest_output:
            leaves = self.trees.leaves(words)
            shortest = self.trees.shortest_output(leaves)
            if self.longest is None or shortest <= self.longest:
                longest_output = max(longest_output, shortest)
                rule_data = {self.trees.name: leaves}
        if self.longest is not None:
            longest_output = min(longest_output, self.longest)
        return longest_output, rule_data
