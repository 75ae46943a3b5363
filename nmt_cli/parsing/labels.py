"""The labels of a treebank, and the cleaning of trees: which labels and parts are kept."""

import re
from collections.abc import Sequence, Set
from operator import ne
from typing import NamedTuple

from nmt_cli.parsing.tree import Close, Leaf, Open, Part, Tree

UNKNOWN_TAG = "XX"  # Vinyals et al. write it for every tag

PUNCTUATION_TAGS = {
    ",": ",",
    **dict.fromkeys([".", "!", "?"], "."),
    **dict.fromkeys([":", ";", "--", "—", "...", "…"], ":"),
    **dict.fromkeys(["``", "“", "«"], "``"),
    **dict.fromkeys(["''", '"', "”", "»"], "''"),
    **dict.fromkeys(["(", "[", "{", "-LRB-", "-LSB-", "-LCB-"], "-LRB-"),
    **dict.fromkeys([")", "]", "}", "-RRB-", "-RSB-", "-RCB-"], "-RRB-"),
}


class Labels(NamedTuple):
    """The labels that trees may have."""

    constituents: frozenset[str]
    tags: frozenset[str]

    @classmethod
    def of(cls, tree: Tree) -> "Labels":
        """Return the labels that ``tree`` has."""
        constituents = {part.label for part in tree.parts if isinstance(part, Open)}
        return cls(frozenset(constituents), frozenset(tree.tags))

    def __or__(self, other: "Labels") -> "Labels":
        """Return the labels of both."""
        return Labels(self.constituents | other.constituents, self.tags | other.tags)


# Without function labels and traces.
PENN_CONSTITUENTS = (
    "TOP S SBAR SBARQ SINV SQ ADJP ADVP CONJP FRAG INTJ LST NAC NP NX PP PRN PRT QP RRC UCP VP "
    "WHADJP WHADVP WHNP WHPP X"
)
PENN_TAGS = (
    "CC CD DT EX FW IN JJ JJR JJS LS MD NN NNS NNP NNPS PDT POS PRP PRP$ RB RBR RBS RP SYM TO UH "
    "VB VBD VBG VBN VBP VBZ WDT WP WP$ WRB # $ '' `` , . : -LRB- -RRB-"
)
PENN_TREEBANK = Labels(frozenset(PENN_CONSTITUENTS.split()), frozenset(PENN_TAGS.split()))


def tag_without_context(word: str) -> str:
    """Return the tag of a punctuation mark, and XX for a word.

    PARSEVAL leaves out punctuation by its tag, so a mark tagged XX would count as a word too many.
    """
    return PUNCTUATION_TAGS.get(word, UNKNOWN_TAG)


# PARSEVAL leaves out words with these tags. Brackets are not among them.
NOT_COUNTED = frozenset({",", ".", ":", "``", "''"})


def with_fitting_tags(tree: Tree, tags: Set[str]) -> tuple[Tree, int]:
    """Return the tree with a tag of punctuation on marks, and on no word with a letter or digit.

    The number is how many tags were replaced.

    PARSEVAL leaves out words by their tags. One word with the wrong kind of tag would leave a tree
    with other words than the gold tree, and then the whole sentence could not be scored. A word
    gets the tag XX, a mark that of ``PUNCTUATION_TAGS`` if it is among ``tags``, those that the
    treebank has.
    """
    parts = tuple(_fitting(part, tags) for part in tree.parts)
    return Tree(parts), sum(map(ne, parts, tree.parts))


def fits(leaf: Leaf, tags: Set[str]) -> bool:
    """Return whether ``with_fitting_tags`` leaves the tag of ``leaf`` as it is."""
    return _fitting(leaf, tags) == leaf


def _fitting(part: Part, tags: Set[str]) -> Part:
    if not isinstance(part, Leaf):
        return part
    if part.tag in NOT_COUNTED:
        is_word = any(character.isalnum() for character in part.word)
        return Leaf(UNKNOWN_TAG, part.word) if is_word else part
    tag = PUNCTUATION_TAGS.get(part.word)
    is_mark = tag in NOT_COUNTED and tag in tags
    return Leaf(tag, part.word) if tag is not None and is_mark else part


TRACE = "-NONE-"  # the tag of words that nobody wrote
ROOT = "TOP"
ROOTS = frozenset({"", "TOP", "ROOT", "S1"})
# -LRB- begins with a dash and has no function, so it stays whole.
PLAIN_LABEL = re.compile("[^-=|]+")


def without_traces(tree: Tree) -> Tree | None:
    """Return the tree without traces and the constituents left empty; None if nothing is left."""
    parts: list[Part] = []
    for part in tree.parts:
        if isinstance(part, Leaf) and part.tag == TRACE:
            continue
        if isinstance(part, Close) and isinstance(parts[-1], Open):
            parts.pop()
        else:
            parts.append(part)
    return Tree(tuple(parts)) if parts else None


def plain_label(label: str) -> str:
    """Return a label without functions, index and second choice: NP of NP-SBJ-1, NP=2 and NP|NX."""
    plain = PLAIN_LABEL.match(label)
    return plain.group() if plain else label


def without_functions(tree: Tree) -> Tree:
    """Return the tree with the ``plain_label`` of each constituent and tag."""
    return Tree(tuple(map(_without_functions, tree.parts)))


def without_root(tree: Tree) -> Tree:
    """Return the tree without TOP, ROOT, S1 or an empty label around it.

    A root with several children stays, because they would be several trees without it.
    """
    if not _is_root(tree.parts[0]):
        return tree
    ends, last, num_roots = _ends(tree.parts), len(tree.parts) - 1, 0
    # The constituent at place n ends at last - n if all those around it have one child.
    while _is_root(tree.parts[num_roots]) and ends[num_roots + 1] == last - num_roots - 1:
        num_roots += 1
    return Tree(tree.parts[num_roots : len(tree.parts) - num_roots])


def with_root(tree: Tree) -> Tree:
    """Return the tree with exactly one root, which has the label TOP."""
    tree = without_root(tree)
    children = tree.parts[1:-1] if _is_root(tree.parts[0]) else tree.parts
    return Tree((Open(ROOT), *children, Close(ROOT)))


def _without_functions(part: Part) -> Part:
    if isinstance(part, Leaf):
        return Leaf(plain_label(part.tag), part.word)
    return type(part)(plain_label(part.label))


def _is_root(part: Part) -> bool:
    return isinstance(part, Open) and part.label in ROOTS


def _ends(parts: Sequence[Part]) -> list[int]:
    """Return the place where the constituent or leaf ends that begins at each place."""
    ends, begun = list(range(len(parts))), list[int]()
    for place, part in enumerate(parts):
        if isinstance(part, Open):
            begun.append(place)
        elif isinstance(part, Close):
            ends[begun.pop()] = place
    return ends
