"""Vocabularies of other programs: pieces, SentencePiece files, rows of embeddings."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from nmt_cli.corpus.tokenizers.normalization import Side
from nmt_cli.corpus.tokenizers.sentencepiece_tokenizer import read_usable_model
from nmt_cli.corpus.tokenizers.whitespace_tokenizer import CONTROL
from nmt_cli.interchange.files import Array


def unreachable(number: int) -> str:
    """Return the name that a piece gets here if no text can have it."""
    return f"<unreachable:{number}>"


def list_of_texts(value: Any) -> list[str]:
    """Return ``value``, a list of texts in a file; raises ValueError if it is something else."""
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise ValueError("is not a list of texts")
    try:
        for text in value:
            text.encode()
    except UnicodeEncodeError:
        raise ValueError("holds half a character") from None
    return value


def rename(pieces: dict[int, str], number: int, mark: str, reasons: list[str]) -> None:
    """Give the piece of this number our name; if another piece has it, add a reason."""
    if pieces[number] != mark and mark in pieces.values():
        reasons.append(f"its vocabulary has both {pieces[number]} and {mark}")
    pieces[number] = mark


# The logit of a piece that the model lacks: so low that its exponential is 0 beside any other, and
# not lower, because label smoothing adds up the log-probabilities of all pieces.
NEVER = -100.0


class Vocabulary(NamedTuple):
    """The pieces of one side."""

    pieces: list[str]
    rows: list[int]  # of the pieces in the model's matrices; -1: a mark that the model lacks

    def rows_of(self, matrix: Array, missing: float = 0.0) -> Array:
        """Return the rows of a matrix, or the numbers of a vector, in the order of the pieces."""
        rows = np.asarray(self.rows)
        found = matrix[np.maximum(rows, 0)]
        found[rows < 0] = missing
        return found


def marks_first(pieces: Sequence[str], marks: Sequence[int]) -> Vocabulary:
    """Return ``pieces`` behind our three marks, whose rows are ``marks``; -1 if there is none."""
    others = [row for row in range(len(pieces)) if row not in marks]
    return Vocabulary([*CONTROL, *(pieces[row] for row in others)], [*marks, *others])


def vocabulary_of(
    tokens: Sequence[str],
    marks: Sequence[str | None],
    side: Side,
    reasons: list[str],
    *,
    needs_marks: bool,
) -> Vocabulary:
    """Return the vocabulary of ``tokens``, which are in the order of their rows.

    ``marks`` are those for our three; None stands for one that the model lacks. The reasons against
    it are added to ``reasons``.
    """
    places: dict[str | None, int] = {token: place for place, token in enumerate(tokens)}
    if len(places) < len(tokens):
        reasons.append(f"the {side} vocabulary holds a token twice")
    missing = [mark for mark in marks if mark is not None and mark not in places]
    if missing and needs_marks:
        reasons.append(f"the {side} vocabulary has no {', '.join(missing)}")
    return marks_first(tokens, [places.get(mark, -1) for mark in marks])


PEGASUS_MODEL = "spiece.model"
SENTENCEPIECE_FILES: tuple[dict[Side, str], ...] = (
    {"source": "source.spm", "target": "target.spm"},
    {"source": "sentencepiece.model", "target": "sentencepiece.model"},
    {"source": PEGASUS_MODEL, "target": PEGASUS_MODEL},
)


def models_in(folder: Path) -> dict[Side, Path] | None:
    """Return the SentencePiece model of each side; None if the folder has none."""
    for names in SENTENCEPIECE_FILES:
        paths = {side: folder / name for side, name in names.items()}
        if all(path.is_file() for path in paths.values()):
            return paths
    return None


def read_models(paths: Mapping[Side, Path] | None) -> dict[Side, bytes] | None:
    """Return the SentencePiece models after trying them out.

    Raises UserError if one cannot be read, DamagedError if it is not a usable model.
    """
    if paths is None:
        return None
    read = {path: read_usable_model(path) for path in dict.fromkeys(paths.values())}
    return {side: read[path] for side, path in paths.items()}
