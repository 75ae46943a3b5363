"""The labels of a treebank: those of its constituents, and the tags of its words."""

from collections.abc import Iterable
from typing import NamedTuple

from nmt_cli.trees.tree import Leaf, Tree

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
