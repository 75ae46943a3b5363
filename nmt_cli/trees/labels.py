"""The labels of a treebank: those of its constituents, and the tags of its words."""

from typing import NamedTuple

UNKNOWN_TAG = "XX"  # Vinyals et al. write it for every tag


class Labels(NamedTuple):
    """The labels that trees may have."""

    constituents: frozenset[str]
    tags: frozenset[str]


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
