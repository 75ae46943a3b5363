"""``nmt-cli score --metric aer``: the error rate of word alignments against a gold alignment.

Och and Ney (2003), "A Systematic Comparison of Various Statistical Alignment Models", define it.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from nmt_cli.commands.lines.pipes import StandardOutput, name_of_input, read_compared
from nmt_cli.corpus.text.links import GoldLinks, read_links
from nmt_cli.messages.errors import UserError


class AlignmentScore(NamedTuple):
    """The counts of links over all lines, from which the rates follow."""

    lines: int
    links: int  # of the alignment that is scored, |A|
    sure: int  # of the gold alignment, |S|
    sure_found: int  # |A and S|
    possible_found: int  # |A and P|; the sure links are possible, too

    @classmethod
    def of(cls, pairs: Iterable[tuple[GoldLinks, GoldLinks]]) -> "AlignmentScore":
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


def run(alignments: Path, golds: Sequence[Path], output_format: str = "text") -> None:
    """Write the score of ``alignments`` against the only file of ``golds`` to stdout.

    Line n of one is compared with line n of the other; one of them may be ``-``, stdin. Raises
    UserError if a file cannot be read or is empty, if they have another number of lines, or for
    a line that is not an alignment; OutputError if stdout cannot be written.
    """
    texts = read_compared(alignments, golds, "line", "the alignment of the same sentences")
    found, gold = map(_links, texts, (alignments, golds[0]))
    score = AlignmentScore.of(zip(found, gold, strict=True))
    if output_format == "json":
        rates = {"aer": score.error_rate, "precision": score.precision, "recall": score.recall}
        output = json.dumps({**rates, **score._asdict()}, indent=2)
    else:
        output = str(score)
    StandardOutput().write(f"{output}\n".encode())


def _links(lines: Sequence[str], path: Path) -> Iterator[GoldLinks]:
    for number, line in enumerate(lines, 1):
        try:
            yield read_links(line)
        except ValueError as error:
            raise UserError(f"{name_of_input(path)}:{number}: {error}.") from None
