"""``nmt-cli score``: BLEU and chrF of translations against references."""

import json
from collections.abc import Sequence
from pathlib import Path

from nmt_cli import logs
from nmt_cli.commands.pipes import StandardOutput, standard_input
from nmt_cli.corpus.lines import LineTexts
from nmt_cli.corpus.text_files import open_text
from nmt_cli.errors import UserError
from nmt_cli.metrics.bleu import (
    Tokenization,
    bleu_scorer,
    chrf_scorer,
    looks_in_pieces,
    looks_tokenized,
)

STANDARD_INPUT = Path("-")


def run(
    hypotheses: Path,
    references: Sequence[Path],
    *,
    tokenize: Tokenization = "13a",
    lowercase: bool = False,
    output_format: str = "text",
) -> None:
    """Write the scores of ``hypotheses`` against ``references`` to stdout; ``-`` is stdin.

    Raises UserError if a file cannot be read, is empty or has another number of lines, OutputError
    if stdout cannot be written.
    """
    paths = [hypotheses, *references]
    if paths.count(STANDARD_INPUT) > 1:
        raise UserError("- (standard input) can be given once only; name the other file.")
    texts = [_read(path) for path in paths]
    _check(paths, texts, may_be_tokenized=tokenize == "none")
    bleu = bleu_scorer(tokenize, lowercase=lowercase).score(texts[0], texts[1:])
    chrf = chrf_scorer(lowercase=lowercase).score(texts[0], texts[1:])
    if output_format == "json":
        figures = {"lines": len(texts[0]), "bleu": bleu._asdict(), "chrf": chrf._asdict()}
        text = json.dumps(figures, indent=2)
    else:
        text = f"{bleu}\n{chrf}"
    StandardOutput().write(f"{text}\n".encode())


def _read(path: Path) -> list[str]:
    if path == STANDARD_INPUT:
        return list(LineTexts(standard_input()))
    with open_text(path) as stream:
        return list(LineTexts(stream))


def _check(
    paths: Sequence[Path], texts: Sequence[Sequence[str]], *, may_be_tokenized: bool
) -> None:
    names = ["standard input" if path == STANDARD_INPUT else str(path) for path in paths]
    num_lines = len(texts[0])
    for name, text in zip(names[1:], texts[1:], strict=True):
        if len(text) != num_lines:
            raise UserError(
                f"{names[0]} has {_segments(num_lines)}, {name} has {len(text):,}; segment n of "
                "the hypotheses is compared with segment n of the references (one a line), so "
                "give files of the same text."
            )
    if not num_lines:
        raise UserError(f"{names[0]} is empty; there is nothing to score.")
    for name, text in zip(names, texts, strict=True):
        if looks_in_pieces(text):
            logs.warning(f"{name} looks as if it were still in pieces; join them before scoring.")
        elif looks_tokenized(text) and not may_be_tokenized:
            logs.warning(
                f"{name} looks tokenized; BLEU is comparable on detokenized text only. "
                "Detokenize it, or use --tokenize none if both sides must stay tokenized."
            )


def _segments(number: int) -> str:
    return "1 segment" if number == 1 else f"{number:,} segments"
