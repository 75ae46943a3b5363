"""The vocabularies of models of eole and OpenNMT-py, with our three marks first."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from nmt_cli.corpus.tokenizers.normalization import Side
from nmt_cli.corpus.tokenizers.whitespace_tokenizer import CONTROL
from nmt_cli.interchange.vocabularies import Vocabulary, problems_of_pieces


class Tokens(NamedTuple):
    """The tokens of both languages in the order of their rows, and the names of the marks."""

    source: Sequence[str]
    target: Sequence[str]
    unknown: str
    end: str
    start: str  # what the decoder reads first
    other_start: str  # our <s> if the decoder reads the end first


def read_tokens(
    tokens: Tokens, reasons: list[str], *, are_words: bool
) -> tuple[dict[Side, Vocabulary], str]:
    """Return the vocabularies and ``model.decoder_start``.

    The reasons against them are added to ``reasons``.
    """
    starts_with_end = tokens.start == tokens.end
    start = tokens.other_start if starts_with_end else tokens.start
    marks = (tokens.unknown, start, tokens.end)
    is_shared = tokens.source == tokens.target
    sides: Mapping[Side, Sequence[str]] = {"source": tokens.source, "target": tokens.target}
    found: dict[Side, Vocabulary] = {}
    for side, of_side in sides.items():
        if side == "target" and is_shared:
            found[side] = found["source"]
            continue
        found[side] = _in_our_order(
            of_side,
            marks,
            side,
            reasons,
            needs_marks=side == "target" or is_shared,
            are_words=are_words,
        )
    return found, "eos" if starts_with_end else "bos"


def _in_our_order(
    tokens: Sequence[str],
    marks: Sequence[str],
    side: Side,
    reasons: list[str],
    *,
    needs_marks: bool,
    are_words: bool,
) -> Vocabulary:
    """Return the vocabulary of a side with ``marks``, the names of our three, in front.

    The reasons against it are added to ``reasons``; a missing mark is one if ``needs_marks``.
    """
    places = {token: place for place, token in enumerate(tokens)}
    if len(places) < len(tokens):
        reasons.append(f"the {side} vocabulary holds a token twice")
    missing = [mark for mark in marks if mark not in places]
    if missing and needs_marks:
        reasons.append(f"the {side} vocabulary has no {', '.join(missing)}")
    others = [place for token, place in places.items() if token not in marks]
    pieces = [*CONTROL, *(tokens[place] for place in others)]
    reasons += problems_of_pieces(pieces, side, are_words=are_words)
    return Vocabulary(pieces, [*(places.get(mark, -1) for mark in marks), *others])
