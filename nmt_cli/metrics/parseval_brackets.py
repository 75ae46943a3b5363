"""The words and constituents of a line that PARSEVAL compares.

The reader accepts more than well-formed trees, because EVALB does: a line of brackets without words
is a skipped sentence, not an error.
"""

import re
from dataclasses import dataclass, field
from typing import NamedTuple

from nmt_cli.metrics.parseval_parameters import Parameters
from nmt_cli.trees.reader import bracket_tokens

FUNCTION = re.compile("[-=].*")  # EVALB keeps the second choice of a label, such as ADVP|PRT


class Bracket(NamedTuple):
    """A constituent: its label and the words from ``start`` to before ``end``."""

    label: str
    start: int
    end: int


@dataclass
class Brackets:
    """What counts of the tree of a line."""

    words: list[str] = field(default_factory=list)
    tags: list[str] = field(default_factory=list)  # of each word
    constituents: list[Bracket] = field(default_factory=list)
    length: int = 0  # words, also of those that do not count


class UnreadableTreeError(ValueError):
    """The text is not a sequence of trees. The message states why."""


@dataclass
class _Begun:
    """A bracket that is open."""

    start: int  # number of words before it
    texts: list[str] = field(default_factory=list)  # label, or tag and word
    has_brackets: bool = False


def read_brackets(text: str, parameters: Parameters) -> Brackets:
    """Return the words and constituents of one sentence that count.

    The text may be empty or several trees, and brackets may be empty. Words with a deleted tag do
    not count, nor do constituents with a deleted label, without label or without words that count.
    Functions are cut from the labels of constituents, not from tags.

    Raises UnreadableTreeError if brackets are not balanced or words are not (TAG word).
    """
    found = Brackets()
    open_brackets: list[_Begun] = []
    for token in bracket_tokens(text):
        if token == "(":
            if open_brackets:
                _take_bracket(open_brackets[-1])
            open_brackets.append(_Begun(len(found.words)))
        elif not open_brackets:
            problem = "a closing bracket too many" if token == ")" else f"{token} has no brackets"
            raise UnreadableTreeError(problem)
        elif token == ")":
            _close(open_brackets.pop(), found, parameters)
        else:
            _take_text(open_brackets[-1], token)
    if open_brackets:
        missing = len(open_brackets)
        brackets = "bracket is" if missing == 1 else "brackets are"
        raise UnreadableTreeError(f"{missing:,} closing {brackets} missing")
    return found


def _take_bracket(parent: _Begun) -> None:
    if len(parent.texts) > 1:
        raise UnreadableTreeError(f"a label has a space: ({' '.join(parent.texts)} (")
    parent.has_brackets = True


def _take_text(begun: _Begun, text: str) -> None:
    if begun.has_brackets or len(begun.texts) == 2:
        raise UnreadableTreeError(f"{text} has no brackets of its own; a word is (TAG word)")
    begun.texts.append(text)


def _close(begun: _Begun, found: Brackets, parameters: Parameters) -> None:
    if len(begun.texts) == 2:
        tag, word = begun.texts
        found.length += tag not in parameters.deleted_labels_for_length
        if tag not in parameters.deleted_labels:
            found.words.append(word)
            found.tags.append(tag)
    elif begun.texts and begun.start < len(found.words):
        label = FUNCTION.sub("", begun.texts[0])
        if label not in parameters.deleted_constituents:
            found.constituents.append(Bracket(label, begun.start, len(found.words)))
