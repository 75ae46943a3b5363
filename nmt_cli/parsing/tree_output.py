"""Turns the output of a model that parses into a tree of the input's words, and back.

Any tokens become one well-formed tree, so that every output of a model is a parse (``repair``).
"""

from collections import Counter
from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass, field, fields
from functools import partial
from operator import add
from typing import Literal, NamedTuple

from nmt_cli.files.lines import one_line
from nmt_cli.messages.errors import UserError
from nmt_cli.messages.extras import naming_missing_package
from nmt_cli.messages.figures import counted
from nmt_cli.parsing.labels import (
    PENN_TREEBANK,
    ROOT,
    tag_without_context,
    with_fitting_tags,
    with_root,
    without_root,
)
from nmt_cli.parsing.linearization import Linearization, Tag
from nmt_cli.parsing.tree import Close, Leaf, Open, Part, Tree, read_trees, words_of


def _rule(one: str, several: str) -> int:
    """Return the field of a rule, with the words for one application of it and for several."""
    count: int = field(default=0, metadata={"words": (one, several)})
    return count


@dataclass
class Repairs:
    """How often each rule of ``repair`` was applied."""

    # Tokens that are neither bracket nor tag were dropped.
    no_symbols: int = _rule("token dropped", "tokens dropped")
    # Brackets with another label were dropped, other tags replaced by XX.
    unknown_labels: int = _rule("unknown label", "unknown labels")
    added_closings: int = _rule("closing bracket added", "closing brackets added")
    dropped_closings: int = _rule("closing bracket dropped", "closing brackets dropped")
    added_leaves: int = _rule("leaf added", "leaves added")
    dropped_leaves: int = _rule("leaf dropped", "leaves dropped")
    empty_constituents: int = _rule("empty constituent dropped", "empty constituents dropped")
    # Another word, or none, followed a tag; only if words are kept.
    wrong_words: int = _rule("wrong word", "wrong words")
    # 1 if several trees were put under one root.
    joined_roots: int = _rule("joined root", "joined roots")
    # Tags that ``with_fitting_tags`` replaced, not ``repair``.
    wrong_punctuation: int = _rule("tag of punctuation corrected", "tags of punctuation corrected")

    def total(self) -> int:
        """Return the number of all repairs; 0 if the tokens were those of a tree."""
        return sum(vars(self).values())

    def __add__(self, other: "Repairs") -> "Repairs":
        """Return the sums."""
        return Repairs(*map(add, vars(self).values(), vars(other).values()))

    def described(self) -> str:
        """Return the names of the rules that were applied, with their counts."""
        counts = ((getattr(self, rule.name), rule.metadata["words"]) for rule in fields(self))
        return ", ".join(counted(count, *words) for count, words in counts if count)


def repair(
    tokens: Sequence[str], words: Sequence[str], form: Linearization
) -> tuple[Tree, Repairs]:
    """Return a tree whose leaves are exactly ``words``, as near to ``tokens`` as these rules say.

    - Tokens that are neither bracket nor tag are dropped. So are brackets with unknown labels,
      but not what they contain.
    - Each tag is the leaf of the next word. Tags after the last word are dropped. If tags are
      missing, the last words become the last children of the outermost constituent.
    - A closing bracket closes the innermost constituent of its label, and with it all constituents
      inside. If no constituent has its label, it is dropped. At the end everything is closed.
    - A constituent without leaves is dropped.
    - If several trees are left, or leaves without a constituent, a constituent TOP joins them.

    A leaf whose tag is missing, unknown or not written gets that of ``tag_without_context``. The
    tokens that ``linearize`` returns need no repair. Raises ValueError if there are no words.
    """
    if not words:
        raise ValueError("a tree needs at least one word")
    unfinished = _UnfinishedTree(words)
    place = 0
    while place < len(tokens):
        symbol = form.read(tokens[place])
        place += 1
        if symbol is None:
            unfinished.repairs.no_symbols += 1
        elif isinstance(symbol, Open):
            unfinished.open(symbol.label, is_allowed=form.allows(symbol))
        elif isinstance(symbol, Close):
            unfinished.close(symbol.label)
        else:
            if form.words == "kept":
                place += unfinished.pass_word(tokens[place : place + 1], form)
            unfinished.add_leaf(symbol, form)
    return unfinished.finish(), unfinished.repairs


class _Constituent(NamedTuple):
    label: str
    place: int | None  # of its opening bracket among the parts; None if the bracket was dropped


class _UnfinishedTree:
    """The parts of the tree so far, and the constituents that are open."""

    def __init__(self, words: Sequence[str]) -> None:
        self.repairs = Repairs()
        self._words, self._num_leaves = words, 0
        self._parts: list[Part] = []
        self._open: list[_Constituent] = []
        self._open_labels: Counter[str] = Counter()

    def open(self, label: str, *, is_allowed: bool) -> None:
        self._open.append(_Constituent(label, len(self._parts) if is_allowed else None))
        self._open_labels[label] += 1
        if is_allowed:
            self._parts.append(Open(label))
        else:
            self.repairs.unknown_labels += 1

    def close(self, label: str) -> None:
        """Close the innermost constituent with ``label``; without a label, the innermost."""
        if not self._open or (label and not self._open_labels[label]):
            self.repairs.dropped_closings += 1
            return
        while label and self._open[-1].label != label:
            self._close_unclosed()
        self._close_innermost()

    def pass_word(self, following: Sequence[str], form: Linearization) -> int:
        """Return how many of the tokens that follow a tag are its word: 0 or 1."""
        expected = self._words[self._num_leaves : self._num_leaves + 1]
        if list(following) == list(expected):
            return len(following)
        self.repairs.wrong_words += 1
        is_bracket = not following or isinstance(form.read(following[0]), Open | Close)
        return 0 if is_bracket else 1

    def add_leaf(self, symbol: Tag, form: Linearization) -> None:
        if self._num_leaves == len(self._words):
            self.repairs.dropped_leaves += 1
            return
        tag = symbol.tag if form.tags == "kept" and form.allows(symbol) else ""
        self.repairs.unknown_labels += not form.allows(symbol)
        self._parts.append(self._next_leaf(tag))

    def finish(self) -> Tree:
        """Return the tree, with every word and one root."""
        while self._open:
            self._close_unclosed()
        missing = [self._next_leaf() for _ in range(len(self._words) - self._num_leaves)]
        self.repairs.added_leaves += len(missing)
        num_roots = _count_roots(self._parts)
        if num_roots == 1 and isinstance(self._parts[-1], Close):
            return Tree((*self._parts[:-1], *missing, self._parts[-1]))
        if num_roots + len(missing) == 1:
            return Tree((*self._parts, *missing))
        self.repairs.joined_roots = 1
        return Tree((Open(ROOT), *self._parts, *missing, Close(ROOT)))

    def _next_leaf(self, tag: str = "") -> Leaf:
        word = self._words[self._num_leaves]
        self._num_leaves += 1
        return Leaf(tag or tag_without_context(word), word)

    def _close_unclosed(self) -> None:
        self.repairs.added_closings += self._open[-1].place is not None
        self._close_innermost()

    def _close_innermost(self) -> None:
        label, place = self._open.pop()
        self._open_labels[label] -= 1
        if place is None:
            return
        if place == len(self._parts) - 1:
            self._parts.pop()
            self.repairs.empty_constituents += 1
        else:
            self._parts.append(Close(label))


def _count_roots(parts: Sequence[Part]) -> int:
    depth = num_roots = 0
    for part in parts:
        num_roots += depth == 0
        depth += isinstance(part, Open) - isinstance(part, Close)
    return num_roots


Tokenize = Literal["none", "penn"]


class TreeText(NamedTuple):
    """A tree in the brackets of the Penn Treebank, with the root TOP, and how it was repaired."""

    text: str
    repairs: Repairs


def splitter(tokenize: Tokenize, form: Linearization | None) -> Callable[[str], list[str]]:
    """Return a function that gives the words of a line: those between spaces, or of raw text.

    Of raw text they are those of the Penn Treebank: does n't, `` a book '', -LRB-.
    Raises UserError if raw text is to be cut for a model that does not parse (``form`` is None), or
    if NLTK is missing.
    """
    if tokenize == "none":
        return lambda line: words_of(one_line(line))
    if form is None:
        raise UserError(
            f"--tokenize {tokenize} is for models that parse; this one translates, and its own "
            "tokenizer takes raw text."
        )
    with naming_missing_package("--tokenize penn"):
        from nltk.tokenize.treebank import TreebankWordTokenizer  # takes half a second
    cut = partial(TreebankWordTokenizer().tokenize, convert_parentheses=True)
    return lambda line: words_of(" ".join(cut(one_line(line))))


def known_tags(form: Linearization) -> Set[str]:
    """Return the tags of the treebank whose trees are written as ``form``."""
    return (form.labels or PENN_TREEBANK).tags


def tree_of(outputs: Sequence[str], words: Sequence[str], form: Linearization) -> TreeText:
    """Return the tree of ``words`` that the texts ``outputs``, one after the other, stand for.

    There is one text for each part of the sentence. Any texts give a tree, by the rules of
    ``repair`` and ``with_fitting_tags``.
    """
    tokens = [token for output in outputs for token in form.split(output)]
    tree, repairs = repair(tokens, words, form)
    tree, repairs.wrong_punctuation = with_fitting_tags(tree, known_tags(form))
    return TreeText(str(with_root(tree)), repairs)


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
