"""Which words the pieces of a text belong to; words are what spaces separate."""

from collections.abc import Sequence

from nmt_cli.corpus.tokenizers.sentencepiece_tokenizer import SPACE_IN_PIECES
from nmt_cli.recipe.model_settings import TextSettings


def words_of_pieces(pieces: Sequence[str], text: TextSettings) -> list[list[int]]:
    """Return the numbers of the words, counted from 0, that each piece is part of.

    A piece is part of one word, except for SentencePiece models made elsewhere: there a piece may
    hold several words. A piece that is only a space belongs to the word that follows, if any.
    """
    if text.type == "whitespace":
        return _words_by_joiner(pieces, text.joiner)
    words: list[list[int]] = []
    num_words, is_open = 0, False  # whether the next piece continues the last word
    for piece in pieces:
        start, *others = piece.split(SPACE_IN_PIECES)
        of_piece = []
        for place, chunk in enumerate((start, *others)):
            is_open = is_open and place == 0
            if chunk:
                num_words += not is_open
                is_open = True
                of_piece.append(num_words - 1)
        words.append(of_piece or [num_words])
    return [[word for word in of_piece if word < num_words] for of_piece in words]


def _words_by_joiner(pieces: Sequence[str], joiner: str | None) -> list[list[int]]:
    words, number = [], 0
    for piece in pieces:
        words.append([number])
        number += joiner is None or not piece.endswith(joiner)
    return words
