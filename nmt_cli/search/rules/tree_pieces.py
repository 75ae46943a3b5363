"""Which pieces of a model's vocabulary are the brackets and tags of trees."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nmt_cli.corpus.tokenizers.sentencepiece_tokenizer import SPACE_IN_PIECES
from nmt_cli.corpus.tokenizers.tokenizer import Tokenizer
from nmt_cli.messages.errors import UserError
from nmt_cli.parsing.linearization import Linearization, Symbol, Tag
from nmt_cli.parsing.tree import Close, Open


class TreePieces(NamedTuple):
    """The pieces of linearized trees; every bracket and every tag is one piece.

    SentencePiece has a piece that is only a space: before the first symbol in notations without
    spaces, and before each symbol in the others. In notations with words, the pieces of a word
    follow its tag, and no symbol has a space before it.
    """

    symbols: Mapping[int, Symbol]  # by the id of their piece; a label has both of its brackets
    space_id: int | None = None  # None: the first symbol is the first piece
    distance: int = 1  # from symbol to symbol; 2 if each has a space before it

    @property
    def first(self) -> int:
        """The position of the first symbol."""
        return int(self.space_id is not None)

    def num_symbols(self, num_pieces: NDArray[Any]) -> NDArray[Any]:
        """Return how many symbols are in the first ``num_pieces`` of a text."""
        return np.maximum(num_pieces - self.first + self.distance - 1, 0) // self.distance

    def num_pieces(self, num_symbols: int) -> int:
        """Return how many pieces a text of so many symbols has."""
        return self.first + (num_symbols - 1) * self.distance + 1


def tree_pieces(tokenizer: Tokenizer, form: Linearization) -> TreePieces:
    """Return the pieces with which a model writes trees in the notation ``form``.

    Raises UserError if the notation or the vocabulary does not allow to restrict the search to
    them.
    """
    if form.notation != "angles" and form.tags == "kept" and form.labels is None:
        raise _error("its tags are unknown, so every piece of its vocabulary may be one")
    space_id, ids = _one_piece_tokens(tokenizer, form)
    symbols = _with_both_brackets({ids[token]: form.read(token) for token in ids})
    kinds = {type(symbol): piece for piece, symbol in symbols.items()}
    if set(kinds) != {Open, Tag, Close}:
        raise _error("its vocabulary does not have brackets and tags as pieces")
    example = [kinds[Open], kinds[Tag], kinds[Close]]
    tokens = [next(token for token in ids if ids[token] == piece) for piece in example]
    joins: Sequence[Callable[[Sequence[str]], str]] = (form.join, " ".join)
    for join in joins:
        encoded = tokenizer.encode(join(tokens), "target")
        if encoded == example:
            return TreePieces(symbols)
        if form.words == "kept":
            break
        if encoded == [space_id, *example]:
            return TreePieces(symbols, space_id)
        if encoded == [piece for symbol in example for piece in (space_id, symbol)]:
            return TreePieces(symbols, space_id, distance=2)
    raise _error("its tokenizer cuts trees into other pieces than brackets and tags")


def _one_piece_tokens(
    tokenizer: Tokenizer, form: Linearization
) -> tuple[int | None, dict[str, int]]:
    """Return the id of the space, and the piece of each bracket and tag that is one piece.

    Control pieces and SentencePiece's bytes, such as <0x0A>, look like tags; but text that is spelt
    so is encoded as other pieces.
    """
    pieces = tokenizer.pieces(range(tokenizer.size))
    space_id = pieces.index(SPACE_IN_PIECES) if SPACE_IN_PIECES in pieces else None
    tokens = dict.fromkeys(piece.removeprefix(SPACE_IN_PIECES) for piece in pieces)
    read = {token: form.read(token) for token in tokens}
    candidates = [token for token, symbol in read.items() if symbol and form.allows(symbol)]
    ids, marks = {}, {tokenizer.unk_id, tokenizer.bos_id, tokenizer.eos_id}
    for token, encoded in zip(
        candidates, tokenizer.encode_batch(candidates, "target"), strict=True
    ):
        *before, piece = encoded
        is_itself = pieces[piece].removeprefix(SPACE_IN_PIECES) == token
        if is_itself and piece not in marks and before in ([], [space_id]):
            ids[token] = piece
    return space_id, ids


def _with_both_brackets(symbols: Mapping[int, Symbol | None]) -> dict[int, Symbol]:
    """Return the symbols without constituents that can be opened and not closed, or vice versa."""
    closed = {symbol.label for symbol in symbols.values() if isinstance(symbol, Close)}
    opened = {symbol.label for symbol in symbols.values() if isinstance(symbol, Open)}
    return {
        piece: symbol
        for piece, symbol in symbols.items()
        if isinstance(symbol, Tag)
        or (isinstance(symbol, Open) and closed & {symbol.label, ""})
        or (isinstance(symbol, Close) and (symbol.label in opened or not symbol.label))
    }


def _error(reason: str) -> UserError:
    return UserError(
        f"this model cannot be restricted to well-formed trees: {reason}; "
        "give --no-well-formed-trees."
    )


class TreeWords:
    """Spells the words of trees, and removes them again from finished trees."""

    def __init__(self, tokenizer: Tokenizer, symbols: Mapping[int, Symbol]) -> None:
        """Prepare for trees whose brackets and tags are the pieces ``symbols``."""
        self._tokenizer = tokenizer
        self._symbols = symbols.keys()
        self._tags = {piece for piece, symbol in symbols.items() if isinstance(symbol, Tag)}

    def spelled(self, words: Sequence[str]) -> list[tuple[int, ...]]:
        """Return the pieces of each word.

        A word that looks like a bracket or a tag is spelt as an unknown word, so that a tree can be
        read from its pieces.
        """
        encoded = self._tokenizer.encode_batch(words, "target")
        unknown = (self._tokenizer.unk_id,)
        return [tuple(each) if self._symbols.isdisjoint(each) else unknown for each in encoded]

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
