"""Which words the pieces of a text belong to; words are what spaces separate."""

import unicodedata
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nmt_cli.corpus.tokenizers.normalization import Side
from nmt_cli.corpus.tokenizers.sentencepiece_tokenizer import SPACE_IN_PIECES
from nmt_cli.corpus.tokenizers.tokenizer import Tokenizer
from nmt_cli.recipe.model_settings import TextSettings

INSIDE_WORDS = "'’-‐_"
# Thai, Lao, Tibetan, Myanmar, Khmer, kana and Han. A regular expression takes 2 ms to compile.
RANGES_WITHOUT_SPACES = (
    *("\u0e00-\u109f", "\u1780-\u17ff", "\u3005-\u30ff", "\u3400-\u9fff", "\uf900-\ufaff"),
    *("\uff66-\uff9f", "\U00020000-\U0003ffff"),
)


def is_of_script_without_spaces(character: str) -> bool:
    """Return whether ``character`` is of a script that writes no spaces between words."""
    return any(each[0] <= character <= each[-1] for each in RANGES_WITHOUT_SPACES)


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


class WordRanges(NamedTuple):
    """The words, counted from 0 in each sentence, that each token is part of."""

    first: NDArray[np.int64]
    last: NDArray[np.int64]
    num_words: NDArray[np.int64]  # of each sentence


class WordFinder:
    """Finds the words that the tokens of many sentences are part of, without a loop over them.

    Words are what white space separates in the text from which the tokens come. So the pieces of
    a text in pieces are words themselves, whether or not they end with a joiner.
    """

    def __init__(self, tokenizer: Tokenizer, text: TextSettings, side: Side) -> None:
        size = (tokenizer.source_size if side == "source" else None) or tokenizer.size
        pieces = tokenizer.pieces(range(size), side)
        if text.type == "whitespace":
            pieces = [f"{SPACE_IN_PIECES}word"] * size
        pieces[tokenizer.eos_id] = SPACE_IN_PIECES  # part of no word
        chunks = [piece.split(SPACE_IN_PIECES) for piece in pieces]
        # Whether a piece begins inside of a word, the words that begin in it, and whether the next
        # piece may continue the last of them.
        self._begins_inside = np.array([of_piece[0] != "" for of_piece in chunks])
        self._beginning = np.array([sum(map(bool, of_piece[1:])) for of_piece in chunks])
        self._ends_inside = np.array([of_piece[-1] != "" for of_piece in chunks])

    def words(self, tokens: NDArray[Any], lengths: NDArray[Any]) -> WordRanges:
        """Return the words of ``tokens``, those of sentences of ``lengths``, each with ``</s>``.

        A token that is only a space has the number of the word that follows.
        """
        ends = np.cumsum(lengths)
        starts = ends - lengths
        # The token before the first of a sentence is the ``</s>`` of another, also of the last one.
        may_continue = np.roll(self._ends_inside[tokens], 1)
        continues = self._begins_inside[tokens] & may_continue
        begun = self._beginning[tokens] + (self._begins_inside[tokens] & ~may_continue)
        so_far = np.cumsum(begun)
        so_far -= np.repeat(so_far[starts] - begun[starts], lengths)
        first = so_far - begun - continues
        return WordRanges(first, np.maximum(first, so_far - 1), so_far[ends - 1])


def units_of_pieces(pieces: Sequence[str], text: TextSettings) -> list[list[int]]:
    """Return the number of the unit, counted from 0, that each piece is part of, in a list.

    Units are words, without the punctuation beside them. In scripts without spaces, such as
    Chinese, each piece is one.
    """
    units, number, before, words_before = list[list[int]](), -1, "", list[int]()
    for piece, words in zip(pieces, words_of_pieces(pieces, text), strict=True):
        content = piece.replace(SPACE_IN_PIECES, "").removesuffix(text.joiner or "")
        is_new = not units or words[:1] != words_before[:1] or len(words_before) > 1
        is_new = is_new or (before != "" and content != "" and not _is_inside(before, content[0]))
        number += is_new
        units.append([number])
        before, words_before = content[-1:], words
    return units


def _is_inside(before: str, after: str) -> bool:
    """Return whether two characters beside each other are inside of one word."""
    return all(each in INSIDE_WORDS or _is_spaced_letter(each) for each in (before, after))


def _is_spaced_letter(character: str) -> bool:
    """Return whether words of such letters have spaces between them; also true of bytes."""
    if unicodedata.category(character)[0] not in "LMN":
        return character in "<>"  # as bytes begin and end, such as <0xE2>
    return not is_of_script_without_spaces(character)


def _words_by_joiner(pieces: Sequence[str], joiner: str | None) -> list[list[int]]:
    words, number = [], 0
    for piece in pieces:
        words.append([number])
        number += joiner is None or not piece.endswith(joiner)
    return words
