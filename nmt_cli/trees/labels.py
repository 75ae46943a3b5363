"""The labels of a treebank: those of constituents, tags of words, and tags of punctuation."""

from collections.abc import Iterable, Set
from operator import ne
from typing import NamedTuple

from nmt_cli.trees.tree import Leaf, Part, Tree

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
    def of(cls, trees: Iterable[Tree]) -> "Labels":
        """Return the labels that ``trees`` have."""
        constituents, tags = set[str](), set[str]()
        for tree in trees:
            for part in tree.parts:
                if isinstance(part, Leaf):
                    tags.add(part.tag)
                else:
                    constituents.add(part.label)
        return cls(frozenset(constituents), frozenset(tags))

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


class Fitted(NamedTuple):
    """A tree, and how many of its tags were replaced."""

    tree: Tree
    num_replaced: int


def with_fitting_tags(tree: Tree, tags: Set[str]) -> Fitted:
    """Return the tree with a tag of punctuation on marks, and on no word with a letter or digit.

    PARSEVAL leaves out words by their tags. One word with the wrong kind of tag would leave a tree
    with other words than the gold tree, and then the whole sentence could not be scored. A word
    gets the tag XX, a mark that of ``PUNCTUATION_TAGS`` if it is among ``tags``, those that the
    treebank has.
    """
    parts = tuple(_fitting(part, tags) for part in tree.parts)
    return Fitted(Tree(parts), sum(map(ne, parts, tree.parts)))


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
