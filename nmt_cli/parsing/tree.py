"""A constituency tree as the flat sequence of its brackets and leaves, and the reader of trees.

A flat sequence needs no recursion, so a tree may have any depth.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from nmt_cli.messages.errors import UserError
from nmt_cli.messages.figures import counted

CLOSING_BRACKETS = "closing bracket is", "closing brackets are"
ESCAPED_BRACKETS = str.maketrans({"(": "-LRB-", ")": "-RRB-"})  # as the Penn Treebank has them


@dataclass(frozen=True, slots=True)
class Open:
    """The opening bracket of a constituent."""

    label: str


@dataclass(frozen=True, slots=True)
class Leaf:
    """A word with its part-of-speech tag."""

    tag: str
    word: str


@dataclass(frozen=True, slots=True)
class Close:
    """The closing bracket of the constituent that has this label."""

    label: str


Part = Open | Leaf | Close


@dataclass(frozen=True)
class Tree:
    """One tree: either a single leaf, or a constituent; each constituent has at least one leaf.

    Labels, tags and words are not empty and have no ASCII white space, except that the label of the
    outermost constituent may be empty. ``str`` gives the Penn Treebank's brackets on one line.
    """

    parts: tuple[Part, ...]  # in the order of the text

    @property
    def words(self) -> list[str]:
        """Return the words of the sentence."""
        return [part.word for part in self.parts if isinstance(part, Leaf)]

    @property
    def tags(self) -> list[str]:
        """Return the part-of-speech tag of each word."""
        return [part.tag for part in self.parts if isinstance(part, Leaf)]

    def __str__(self) -> str:
        return "".join(map(_in_brackets, self.parts)).removeprefix(" ")


def _in_brackets(part: Part) -> str:
    if isinstance(part, Open):
        return f" ({part.label}"
    if isinstance(part, Close):
        return ")"
    return f" ({part.tag} {part.word.translate(ESCAPED_BRACKETS)})"


# Words may contain other white space than ASCII's, such as a no-break space.
WORD = re.compile(r"[^() \t\n\r\f\v]+")
TOKEN = re.compile(rf"[()]|{WORD.pattern}")


def bracket_tokens(text: str) -> list[str]:
    """Return the brackets, labels and words of ``text``."""
    return TOKEN.findall(text)


def read_trees(lines: Iterable[str], name: str) -> Iterator[Tree]:
    """Yield the trees of a file: several on a line, or one over several lines.

    The outermost label may be empty, as in .mrg files: ``( (S ...))``. Raises UserError with
    ``name`` and the line if the text is something else than well-formed trees.
    """
    tree = _UnfinishedTree(name)
    for number, line in enumerate(lines, 1):
        for token in bracket_tokens(line):
            if tree.add(token, number):
                yield Tree(tuple(tree.parts))
                tree = _UnfinishedTree(name)
    tree.check_nothing_is_left()


class _UnfinishedTree:
    """The tree that is being read, from its first token to its last."""

    def __init__(self, name: str) -> None:
        self.parts: list[Part] = []
        self._name = name
        self._first_line = self._line = 0
        self._labels: list[str] = []  # of the constituents that are open
        # The texts after an opening bracket, until it is clear whether it is a constituent's or a
        # leaf's; None behind a closing bracket.
        self._begun: list[str] | None = None

    def add(self, token: str, line: int) -> bool:
        """Take the next token and return whether the tree is complete. Raises UserError."""
        self._line = line
        self._first_line = self._first_line or line
        if token == "(":
            self._open()
            return False
        if token == ")":
            self._close()
            return not self._labels
        self._add_text(token)
        return False

    def check_nothing_is_left(self) -> None:
        """Raise UserError if the file ends within this tree."""
        missing = len(self._labels) + (self._begun is not None)
        if missing:
            raise UserError(
                f"{self._name}:{self._first_line}: the tree that begins here does not close; "
                f"{counted(missing, *CLOSING_BRACKETS)} missing at the end of the file."
            )

    def _open(self) -> None:
        if self._begun is not None:
            self._begin_constituent(self._begun)
        self._begun = []

    def _begin_constituent(self, texts: list[str]) -> None:
        if len(texts) > 1:
            raise self._error(f"a label has a space: ({' '.join(texts)} (")
        label = texts[0] if texts else ""
        if not label and self._labels:
            raise self._error("a constituent has no label; only the outermost one may have none")
        self.parts.append(Open(label))
        self._labels.append(label)

    def _close(self) -> None:
        texts, self._begun = self._begun, None
        if texts is None:
            if not self._labels:
                raise self._error("a closing bracket without its opening bracket")
            self.parts.append(Close(self._labels.pop()))
        elif len(texts) == 2:
            self.parts.append(Leaf(*texts))
        elif texts:
            raise self._error(
                f"({texts[0]}) has no children; a constituent needs one, a word is (TAG word)"
            )
        else:
            raise self._error("() has neither label nor children")

    def _add_text(self, text: str) -> None:
        if self._begun is None:
            raise self._error(f"{text} has no brackets of its own; a word is (TAG word)")
        if len(self._begun) == 2:
            raise self._error(f"a label or word has a space: ({' '.join([*self._begun, text])}")
        self._begun.append(text)

    def _error(self, problem: str) -> UserError:
        is_elsewhere = self._line != self._first_line
        begin = f" (in the tree that begins on line {self._first_line})" if is_elsewhere else ""
        return UserError(f"{self._name}:{self._line}: {problem}{begin}.")


def words_of(line: str) -> list[str]:
    """Return the words of ``line``, which spaces separate; ( and ) become -LRB- and -RRB-."""
    return WORD.findall(line.translate(ESCAPED_BRACKETS))
