"""Pieces as text with spaces between them, for formats whose columns have one entry a piece."""

from collections.abc import Sequence

from nmt_cli.corpus.lines import one_line

SPACE = "▁"  # stands for a space in SentencePiece's pieces


def shown_pieces(pieces: Sequence[str]) -> str:
    """Return the pieces with spaces between them; white space inside a piece becomes ``▁``."""
    return " ".join(one_line(piece).replace("\t", SPACE).replace(" ", SPACE) for piece in pieces)
