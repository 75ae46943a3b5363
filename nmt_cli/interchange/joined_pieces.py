"""Whether a vocabulary has pieces of subword-nmt or fastBPE, which end with @@ inside a word."""

from collections.abc import Iterable

JOINER = "@@"


def joiner_of(*vocabularies: Iterable[str]) -> str | None:
    """Return the joiner of text in these pieces; None if no piece has one."""
    has_joiner = any(piece.endswith(JOINER) for pieces in vocabularies for piece in pieces)
    return JOINER if has_joiner else None
