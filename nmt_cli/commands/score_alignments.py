"""``nmt-cli score --metric aer``: the error rate of word alignments against a gold alignment."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

from nmt_cli.alignment.error_rate import AlignmentScore
from nmt_cli.commands.lines.pipes import StandardOutput, name_of_input, read_compared
from nmt_cli.corpus.text.links import GoldLinks, read_links
from nmt_cli.messages.errors import UserError, WrongUsageError


def run(alignments: Path, golds: Sequence[Path], output_format: str = "text") -> None:
    """Write the score of ``alignments`` against the only file of ``golds`` to stdout.

    Line n of one is compared with line n of the other; one of them may be ``-``, stdin. Raises
    UserError if a file cannot be read or is empty, if they have another number of lines, or for
    a line that is not an alignment; OutputError if stdout cannot be written.
    """
    if len(golds) != 1:
        raise WrongUsageError(
            f"--metric aer compares with one file of gold links, not with {len(golds)}."
        )
    paths = alignments, golds[0]
    texts = read_compared(*paths, "line", "the alignment of the same sentences")
    found, gold = map(_links, texts, paths)
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
