"""The rule that makes every output a tree with exactly the sentence's leaves.

Legend: K beam, B slots with this rule, N = B*K rows, M pieces of brackets and tags, L symbols
(brackets and tags) of a hypothesis; in a notation with words, L pieces.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from functools import lru_cache
from itertools import chain
from typing import NamedTuple

import numpy as np

from nmt_cli.corpus.tokenizers.tokenizer import Tokenizer
from nmt_cli.messages.errors import UserError
from nmt_cli.model.compiled.c_library import Array
from nmt_cli.parsing.labels import fits
from nmt_cli.parsing.linearization import Linearization, Symbol, Tag
from nmt_cli.parsing.tree import Close, Leaf, Open
from nmt_cli.parsing.tree_output import known_tags
from nmt_cli.search.logits import Permitted
from nmt_cli.search.rules.rule import SlotStates, rows_of
from nmt_cli.search.rules.tree_pieces import TreePieces, TreeWords, tree_pieces

# Codes of pieces; n > 0 opens a constituent with the n-th label.
OTHER, CLOSE, TAG = 0, -1, -2


class Leaves(NamedTuple):
    """The words of a sentence; where trees have none, the words have no pieces."""

    kinds: Array  # the number of each word's kind in _KindsOfWords
    ends: Array  # 0, then the place behind each word among ``pieces``
    pieces: Array  # of all words


class WellFormedTrees:
    """Permits only pieces that continue towards a tree with one leaf for each word of the sentence.

    ``Sentence.rule_data`` holds what ``leaves`` returns; sentences without it are not restricted.
    A bracket is opened only if everything can still be closed within the longest output. If the
    longest output is shorter than ``shortest_output``, there is no output.

    The rule reads the whole prefix of each hypothesis, in a few operations of numpy on N*L small
    integers. So it has no state that must follow the hypotheses.
    """

    name, needs_data = "well_formed_trees", True

    def __init__(
        self,
        pieces: TreePieces,
        vocabulary_size: int,
        eos_id: int,
        tags: Set[str],
        words: TreeWords | None = None,
    ) -> None:
        """Prepare the rule for a vocabulary.

        ``tags`` are those that a treebank has: a word may only have a tag that
        ``with_fitting_tags`` would not replace. ``words`` spells the words of a notation that has
        them.
        """
        symbols = list(pieces.symbols.values())
        opened = dict.fromkeys(symbol.label for symbol in symbols if isinstance(symbol, Open))
        labels = {label: code for code, label in enumerate(opened, 1)}
        self._pieces = pieces
        self._codes = np.full(vocabulary_size, OTHER, np.int16)
        self._codes[list(pieces.symbols)] = [_code(symbol, labels) for symbol in symbols]
        marks = [eos_id] if pieces.space_id is None else [eos_id, pieces.space_id]
        self._ids = np.array([*pieces.symbols, *marks])  # M
        self._permitted = _table(symbols, labels, len(marks))
        self._end = 8 * (len(labels) + 1)  # the row of the table; that of the space follows
        self._kinds_of_words = _KindsOfWords(symbols, len(marks), tags)
        self._words = words

    @classmethod
    def of_model(cls, tokenizer: Tokenizer, form: Linearization | None) -> WellFormedTrees:
        """Return the rule for a model that writes trees in the notation ``form``.

        Raises UserError if the model does not parse, or if its notation or vocabulary does not
        allow the rule.
        """
        if form is None:
            raise UserError(
                "this model does not parse, so its output cannot be restricted to trees; "
                "omit --well-formed-trees."
            )
        pieces = tree_pieces(tokenizer, form)
        words = TreeWords(tokenizer, pieces.symbols) if form.words == "kept" else None
        return cls(pieces, tokenizer.size, tokenizer.eos_id, known_tags(form), words)

    def leaves(self, words: Sequence[str]) -> Leaves:
        """Return the data of a sentence for this rule."""
        kinds = np.array([self._kinds_of_words.kind(word) for word in words])
        spelled = self._words.spelled(words) if self._words else [()] * len(words)
        ends = np.cumsum([0, *map(len, spelled)])
        return Leaves(kinds, ends, np.array([*chain.from_iterable(spelled)], np.int64))

    def shortest_output(self, leaves: Leaves) -> int:
        """Return how many pieces the flattest tree of these leaves has."""
        num_symbols = 1 if len(leaves.kinds) == 1 else len(leaves.kinds) + 2
        return self._pieces.num_pieces(num_symbols) + len(leaves.pieces)

    def brackets_and_tags(self, tokens: Sequence[int], words: Sequence[str]) -> list[int] | None:
        """Return an output without its words; None if it has none, or not those of the sentence."""
        return self._words.without_words(tokens, words) if self._words else None

    def restriction(self, states: SlotStates) -> Permitted | None:
        """Permit only what may follow in the slots whose sentences have data for this rule."""
        if not states.data:
            return None
        slots, leaves = np.array(list(states.data)), list(states.data.values())
        num_words = np.array([len(each.kinds) for each in leaves])[:, None]
        trees = self._read(states, slots)
        first_words = num_words.cumsum()[:, None] - num_words
        next_words = first_words + trees.num_leaves.clip(max=num_words - 1)
        words = np.concatenate([each.kinds for each in leaves])[next_words]
        next_pieces, num_missing = _started_words(leaves, trees)
        kinds = self._kinds(states, slots, num_words, trees, num_missing)
        permitted = self._permitted[kinds.ravel()] & self._kinds_of_words.table[words.ravel()]
        next_pieces = next_pieces.reshape(-1, 1)
        is_inside = next_pieces >= 0
        # N M+1; where a word is being written, only its next piece, in the last column
        permitted = np.concatenate([permitted & ~is_inside, is_inside], axis=1)
        row, column = permitted.nonzero()
        tokens = np.where(
            column < len(self._ids), self._ids.take(column, mode="clip"), next_pieces[row, 0]
        )
        bounds = np.concatenate([[0], permitted.sum(axis=1).cumsum()])
        return Permitted(rows_of(slots, states).ravel(), bounds, tokens)

    def _kinds(
        self, states: SlotStates, slots: Array, num_words: Array, trees: _Trees, num_missing: Array
    ) -> Array:
        """Return the row [B, K] of the table ``_table`` for each hypothesis."""
        lengths = states.lengths[slots, None]
        num_left = self._pieces.num_symbols(states.longest[slots, None]) - trees.num_symbols
        num_left = num_left - num_missing
        missing = num_words - trees.num_leaves
        needed = missing + trees.depths
        may_open = (missing > 0) & (needed + 2 <= num_left)  # 2: its own brackets
        may_tag = (missing > 0) & ((trees.depths > 0) | (num_words == 1))
        may_close = ~trees.are_empty & ((trees.depths > 1) | ((trees.depths == 1) & (missing == 0)))
        kinds = ((trees.labels * 2 + may_open) * 2 + may_tag) * 2 + may_close
        is_space = (lengths - self._pieces.first) % self._pieces.distance != 0
        kinds = np.where(is_space | (lengths < self._pieces.first), self._end + 1, kinds)
        return np.where(needed == 0, self._end, kinds)

    def _read(self, states: SlotStates, slots: Array) -> _Trees:
        """Return the unfinished trees of the hypotheses in ``slots``."""
        num_symbols = self._pieces.num_symbols(states.lengths[slots, None])
        symbols = states.prefixes[slots, :, self._pieces.first :: self._pieces.distance]
        codes = self._codes[symbols]  # B K L
        if not codes.shape[2]:
            codes = np.full((*codes.shape[:2], 1), OTHER, codes.dtype)
        codes *= np.arange(codes.shape[2]) < num_symbols[:, :, None]  # OTHER behind the symbols
        opens = codes > 0
        depths = (opens.view(np.int8) - (codes == CLOSE)).cumsum(2, np.int32)  # after each symbol
        # The innermost constituent is the last one that was opened at the present depth.
        is_innermost = opens & (depths == depths[:, :, -1:])
        places = codes.shape[2] - 1 - is_innermost[:, :, ::-1].argmax(2)
        labels = np.take_along_axis(codes * is_innermost, places[:, :, None], 2)[:, :, 0]
        is_tag = codes == TAG
        last_tags = codes.shape[2] - 1 - is_tag[:, :, ::-1].argmax(2)
        are_empty = places + 1 == num_symbols
        return _Trees(
            labels.astype(np.int64),
            depths[:, :, -1],
            is_tag.sum(2),
            last_tags,
            are_empty,
            num_symbols,
        )


class _Trees(NamedTuple):
    """The unfinished trees [B, K] of the hypotheses, as far as they decide what may follow."""

    labels: Array  # code of the innermost constituent; 0 if none is open
    depths: Array  # how many constituents are open
    num_leaves: Array
    last_tags: Array  # place of the last tag among the symbols; meaningless without leaves
    are_empty: Array  # whether the innermost constituent has no children; meaningless at depth 0
    num_symbols: Array  # [B, 1]


def _started_words(leaves: Sequence[Leaves], trees: _Trees) -> tuple[Array, Array]:
    """Return how far the hypotheses [B, K] have written the pieces of the sentence's words.

    First the next piece of the word that is being written, -1 between words; then how many pieces
    of all words are still to be written.
    """
    if not any(each.ends[-1] for each in leaves):
        return np.full_like(trees.num_leaves, -1), np.zeros_like(trees.num_leaves)
    sizes = np.array([(len(each.ends), len(each.pieces)) for each in leaves])
    first_ends, first_pieces = (sizes.cumsum(0) - sizes).T[:, :, None]  # of each slot
    ends = np.concatenate([each.ends for each in leaves])
    pieces = np.concatenate([each.pieces for each in leaves])
    num_leaves = trees.num_leaves.clip(max=sizes[:, :1] - 1)
    start = ends[first_ends + (num_leaves - 1).clip(min=0)]  # of the last word begun
    end = ends[first_ends + num_leaves]
    place = start + trees.num_symbols - 1 - trees.last_tags
    is_inside = (num_leaves > 0) & (place < end)
    places = first_pieces + np.where(is_inside, place, 0)
    next_pieces = np.where(is_inside, pieces[places.clip(max=len(pieces) - 1)], -1)
    num_written = np.where(num_leaves > 0, np.minimum(place, end), 0)
    total = ends[first_ends + sizes[:, :1] - 1]
    return next_pieces, total - num_written


class _KindsOfWords:
    """Words of a kind may have the same tags; the kinds are numbered as they are met.

    If no tag of the vocabulary fits a word, it may have every tag: for example a punctuation mark,
    if the only tag of the vocabulary is XX.
    """

    def __init__(self, symbols: Sequence[Symbol], num_marks: int, tags: Set[str]) -> None:
        self._columns = [symbol.tag if isinstance(symbol, Tag) else None for symbol in symbols]
        self._columns += [None] * num_marks  # M
        self._own = frozenset(tag for tag in self._columns if tag is not None)
        self._tags = frozenset(tags)
        self._kinds: dict[frozenset[str], int] = {}
        # Which of M pieces each kind of word [kinds, M] permits to follow.
        self.table = np.empty((0, len(self._columns)), np.bool_)

    def kind(self, word: str) -> int:
        fitting = _fitting_tags(word, self._own, self._tags) or self._own
        if fitting not in self._kinds:
            self._kinds[fitting] = len(self._kinds)
            row = [tag is None or tag in fitting for tag in self._columns]
            self.table = np.concatenate([self.table, [row]])
        return self._kinds[fitting]


@lru_cache(maxsize=10_000)
def _fitting_tags(word: str, own: frozenset[str], tags: frozenset[str]) -> frozenset[str]:
    return frozenset(tag for tag in own if fits(Leaf(tag, word), tags))


def _code(symbol: Symbol, labels: Mapping[str, int]) -> int:
    if isinstance(symbol, Open):
        return labels[symbol.label]
    return CLOSE if isinstance(symbol, Close) else TAG


def _table(symbols: Sequence[Symbol], labels: Mapping[str, int], num_marks: int) -> Array:
    """Return which of M pieces each kind of hypothesis permits, [kinds, M].

    A kind is the label of the innermost constituent (first: none), and for each of opening bracket,
    tag and closing bracket whether it may follow. The last kinds allow only one mark each.
    """
    is_open, is_tag = (
        np.array([isinstance(each, kind) for each in symbols]) for kind in (Open, Tag)
    )
    closes = np.array(
        [
            [isinstance(symbol, Close) and symbol.label in ("", label) for symbol in symbols]
            for label in ("", *labels)
        ]
    )
    switches = np.array([(a, b, c) for a in (0, 1) for b in (0, 1) for c in (0, 1)], bool)  # 8 3
    may_open, may_tag, may_close = switches.T[:, None, :, None]
    may_follow = may_open & is_open | may_tag & is_tag | may_close & closes[:, None]  # labels 8 M
    inside = may_follow.reshape(-1, len(symbols))
    table = np.zeros((len(inside) + num_marks, len(symbols) + num_marks), bool)
    table[: len(inside), : len(symbols)] = inside
    table[len(inside) :, len(symbols) :] = np.eye(num_marks, dtype=bool)
    return table
