"""How long outputs may be, which pieces they may have, and the numbers that lines can ask for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from nmt_cli.messages.proposals import any_of
from nmt_cli.recipe.translation_options import CHOICES, MOST_SAMPLES, NUMBERS
from nmt_cli.translating.interface.request import LineError, Request

if TYPE_CHECKING:
    from nmt_cli.search.rules.well_formed_trees import WellFormedTrees
    from nmt_cli.search.shortlist import Shortlists


class OutputLimits(NamedTuple):
    """How long outputs may be, which pieces they may have, and what lines can ask for."""

    extra_length: int  # pieces that an output may have more than its source
    longest: int | None  # pieces that no output exceeds
    n_best: int  # of lines that do not ask for it
    beam_size: int | None  # the most; None: samples are drawn, and lines cannot choose
    longest_prefix: int  # pieces
    trees: WellFormedTrees | None = None  # the rule, if outputs are only trees
    shortlists: Shortlists | None = None  # if the source decides which pieces an output may have

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

    def refuse_wrong(self, request: Request) -> None:
        """Raise LineError if a number that a line asks for is not possible."""
        most, beam_size = self.beam_size or MOST_SAMPLES, request.beam_size
        if beam_size is not None:
            if self.beam_size is None:
                raise LineError("beam_size is not for samples")
            if not 1 <= beam_size <= self.beam_size:
                raise LineError(
                    f"beam_size must be from 1 to that of all lines, {self.beam_size:,}, "
                    f"but is {beam_size}"
                )
            most = beam_size
        n_best = self.n_best if request.n_best is None else request.n_best
        if not 1 <= n_best <= most:
            of_beam = "" if self.beam_size is None else ", the beam size"
            raise LineError(f"n_best must be from 1 to {most:,}{of_beam}, but is {n_best}")
        if request.choose not in {None, *CHOICES["choose"]}:
            raise LineError(f"choose must be {any_of(CHOICES['choose'])}, but is {request.choose}")
        if request.choose == "mbr" and n_best == 1:
            raise LineError("choose mbr compares several translations; give n_best, such as 8")
        for name in ("length_penalty", "no_repeat_ngram"):
            value = getattr(request, name)
            if value is not None and not NUMBERS[name].holds(value):
                raise LineError(f"{name} must be {NUMBERS[name]}, but is {value}")
