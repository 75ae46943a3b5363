"""Reads the texts of ``nmt-cli score``, and checks that they fit together."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from nmt_cli.commands.lines.pipes import name_of_input, read_inputs
from nmt_cli.messages import logs
from nmt_cli.messages.errors import UserError
from nmt_cli.messages.figures import counted
from nmt_cli.metrics.bleu import looks_in_pieces, looks_tokenized


class NamedText(NamedTuple):
    """The lines of a file or of standard input."""

    name: str
    lines: Sequence[str]


LONG_FOR_TER = 200  # words


def read_texts(paths: Sequence[Path]) -> list[NamedText]:
    """Return the lines of each file; ``-`` is stdin.

    Raises UserError if a file cannot be read, is empty or has another number of lines.
    """
    texts = [
        NamedText(name_of_input(path), lines)
        for path, lines in zip(paths, read_inputs(paths), strict=True)
    ]
    hypotheses, *others = texts
    num_lines = len(hypotheses.lines)
    for name, lines in others:
        if len(lines) != num_lines:
            raise UserError(
                f"{hypotheses.name} has {counted(num_lines, 'segment')}, {name} has "
                f"{len(lines):,}; segment n of the hypotheses is compared with segment n of the "
                "references (one a line), so give files of the same text."
            )
    if not num_lines:
        raise UserError(f"{hypotheses.name} is empty; there is nothing to score.")
    return texts


def warn_of_odd_text(
    texts: Sequence[NamedText], *, may_be_tokenized: bool, is_tokenized_next: bool
) -> None:
    """Warn of text in pieces, and of tokenized text unless it may be tokenized."""
    advice = "Detokenize it, or use --tokenize none if both sides must stay tokenized."
    if is_tokenized_next:
        advice = "Detokenize it; --paper would tokenize it again."
    for name, lines in texts:
        if looks_in_pieces(lines):
            logs.warning(f"{name} looks as if it were still in pieces; join them before scoring.")
        elif looks_tokenized(lines) and not may_be_tokenized:
            logs.warning(
                f"{name} looks tokenized; BLEU is comparable on detokenized text only. {advice}"
            )


def warn_of_long_segments(texts: Sequence[NamedText]) -> None:
    """Warn of the first segment for which TER takes long: the time grows with words squared."""
    for name, lines in texts:
        for number, line in enumerate(lines, 1):
            num_words = len(line.split())
            if num_words > LONG_FOR_TER:
                logs.warning(
                    f"{name}:{number}: {num_words:,} words; TER takes seconds to minutes for each "
                    f"segment of more than {LONG_FOR_TER}. Omit --ter, or score sentences."
                )
                return
