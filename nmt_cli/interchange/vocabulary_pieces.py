"""What the pieces of another program's vocabulary are: words, joined pieces, marks."""

from collections.abc import Iterable, Sequence

from nmt_cli.corpus.whitespace_tokenizer import CONTROL

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
