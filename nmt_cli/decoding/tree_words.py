"""The words in the trees of a notation that has them: as pieces, and in targets to score."""

from collections.abc import Container, Mapping, Sequence

from nmt_cli.corpus.lines import one_line
from nmt_cli.corpus.tokenizer import Tokenizer
from nmt_cli.errors import UserError
from nmt_cli.figures import counted
from nmt_cli.trees.cleaning import with_root, without_root
from nmt_cli.trees.linearization import Linearization, Symbol, Tag
from nmt_cli.trees.reader import read_trees


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


def linearized(line: str, num_words: int, form: Linearization, *, spaced: bool) -> str:
    """Return the text of the tree in ``line``, which has ``num_words`` leaves.

    ``spaced`` puts spaces between the tokens in every notation. Raises UserError if the line is not
    one tree, has other leaves, or has a label that the model does not know.
    """
    name = "tree"
    try:
        trees = list(read_trees([one_line(line)], name))
    except UserError as error:
        raise UserError(str(error).removeprefix(f"{name}:1: ").rstrip(".")) from None
    if len(trees) != 1:
        raise UserError(f"its target has {len(trees)} trees in brackets, not one")
    (tree,) = trees
    if len(tree.words) != num_words:
        raise UserError(
            f"its source has {counted(num_words, 'word')}, but the tree has "
            f"{counted(len(tree.words), 'leaf', 'leaves')}"
        )
    tokens = form.linearize(without_root(with_root(tree)))
    return " ".join(tokens) if spaced else form.join(tokens)
