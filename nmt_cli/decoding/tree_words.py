"""The words in the trees of a notation that has them, as pieces that no bracket or tag has."""

from collections.abc import Container, Mapping, Sequence

from nmt_cli.corpus.tokenizer import Tokenizer
from nmt_cli.trees.linearization import Symbol, Tag


class TreeWords:
    """Spells the words of trees, and removes them again from finished trees."""

    def __init__(self, tokenizer: Tokenizer, symbols: Mapping[int, Symbol]) -> None:
        """Prepare for trees whose brackets and tags are the pieces ``symbols``."""
        self._tokenizer = tokenizer
        self._symbols: Container[int] = symbols.keys()
        self._tags = {piece for piece, symbol in symbols.items() if isinstance(symbol, Tag)}

    def spelled(self, words: Sequence[str]) -> list[tuple[int, ...]]:
        """Return the pieces of each word.

        A word that looks like a bracket or a tag is spelt as an unknown word, so that a tree can be
        read from its pieces.
        """
        encoded = self._tokenizer.encode_batch(words, "target")
        return [self._unambiguous(pieces) for pieces in encoded]

    def without_words(self, tokens: Sequence[int], words: Sequence[str]) -> list[int] | None:
        """Return ``tokens`` without the pieces of ``words``; None if a tag is not before its word.

        Normalization changes some words and a vocabulary lacks others, so that their pieces do not
        give their text again.
        """
        left: list[int] = []
        waiting = iter(self.spelled(words))
        place = 0
        while place < len(tokens):
            left.append(tokens[place])
            place += 1
            if left[-1] in self._tags:
                word = next(waiting, None)
                if word is None or tuple(tokens[place : place + len(word)]) != word:
                    return None
                place += len(word)
        return left

    def _unambiguous(self, pieces: Sequence[int]) -> tuple[int, ...]:
        if any(piece in self._symbols for piece in pieces):
            return (self._tokenizer.unk_id,)
        return tuple(pieces)
