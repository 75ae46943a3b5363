"""The alignment error rate (Och and Ney 2003, "A Systematic Comparison of Various Statistical
Alignment Models"), with precision and recall."""

from collections.abc import Iterable
from typing import NamedTuple, Self

from nmt_cli.corpus.text.links import GoldLinks


class AlignmentScore(NamedTuple):
    """The counts of links over all lines, from which the rates follow."""

    lines: int
    links: int  # of the alignment that is scored, |A|
    sure: int  # of the gold alignment, |S|
    sure_found: int  # |A and S|
    possible_found: int  # |A and P|; the sure links are possible, too

    @classmethod
    def of(cls, pairs: Iterable[tuple[GoldLinks, GoldLinks]]) -> Self:
        """Return the counts of ``pairs``, the links of a line and its gold links."""
        lines = links = sure = sure_found = possible_found = 0
        for found, gold in pairs:
            lines += 1
            links += len(found.possible)
            sure += len(gold.sure)
            sure_found += len(found.possible & gold.sure)
            possible_found += len(found.possible & gold.possible)
        return cls(lines, links, sure, sure_found, possible_found)

    @property
    def error_rate(self) -> float:
        """AER = 1 - (|A and S| + |A and P|) / (|A| + |S|), in percent; 0 if there are no links."""
        number = self.links + self.sure
        return 100 * (1 - (self.sure_found + self.possible_found) / number) if number else 0.0

    @property
    def precision(self) -> float:
        """The percentage of the links that are possible ones."""
        return 100 * self.possible_found / self.links if self.links else 100.0

    @property
    def recall(self) -> float:
        """The percentage of the sure links that were found."""
        return 100 * self.sure_found / self.sure if self.sure else 100.0

    def __str__(self) -> str:
        return (
            f"AER {self.error_rate:.2f}  precision {self.precision:.2f}, recall {self.recall:.2f} "
            f"({self.links:,} links; gold: {self.sure:,} sure)"
        )
