"""A constituency tree as the flat sequence of its brackets and leaves.

A flat sequence needs no recursion, so a tree may have any depth.
"""

from dataclasses import dataclass

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
        return "".join(map(_as_text, self.parts)).removeprefix(" ")


def _as_text(part: Part) -> str:
    if isinstance(part, Open):
        return f" ({part.label}"
    if isinstance(part, Close):
        return ")"
    return f" ({part.tag} {part.word.translate(ESCAPED_BRACKETS)})"
