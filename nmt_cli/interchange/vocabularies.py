"""Vocabularies of other programs: pieces in our order, and the rows of their embeddings."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from nmt_cli.corpus.whitespace_tokenizer import CONTROL
from nmt_cli.interchange.files import Array

JOINER = "@@"  # of subword-nmt and fastBPE, behind the pieces inside a word


def joiner_of(*vocabularies: Iterable[str]) -> str | None:
    """Return the joiner of text in these pieces; None if no piece has one."""
    has_joiner = any(piece.endswith(JOINER) for pieces in vocabularies for piece in pieces)
    return JOINER if has_joiner else None


def rename(pieces: list[str], number: int, mark: str, reasons: list[str]) -> None:
    """Give the piece of this number our name; if another piece has it, add a reason."""
    if pieces[number] != mark and mark in pieces:
        reasons.append(f"its vocabulary has both {pieces[number]} and {mark}")
    pieces[number] = mark


def problems_of_pieces(pieces: Sequence[str], name: str, *, are_words: bool) -> list[str]:
    """Return the reasons why ``pieces`` cannot be a vocabulary of ours.

    ``are_words`` is true for text in pieces, which white space separates.
    """
    problems = []
    others = pieces[len(CONTROL) :]
    if len(set(others)) < len(others):
        problems.append(f"the {name} vocabulary holds a token twice")
    wrong = next((piece for piece in others if piece.split() != [piece]), None)
    if are_words and wrong is not None:
        problems.append(
            f"the {name} vocabulary holds {wrong!r}, which is not one word, and there is no "
            "SentencePiece model"
        )
    if not are_words and not set(CONTROL).isdisjoint(others):
        problems.append(f"the {name} vocabulary has other marks than {', '.join(CONTROL)}")
    return problems


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
