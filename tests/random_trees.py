"""Random trees, and the notations of the literature.

A random tree is made of nested tuples: a leaf is (tag, word), a constituent (label, [children]).
"""

from hypothesis import strategies as st

from nmt_cli.parsing.labels import PENN_TREEBANK
from nmt_cli.parsing.linearization import Linearization
from nmt_cli.parsing.tree import read_trees
from nmt_cli.parsing.tree_output import repair
from nmt_cli.recipe.sections.data import TreebankConfig

CONSTITUENTS = ["S", "NP", "VP", "PP", "X"]
TAGS = ["NN", "VBZ", "PRP$", ",", "-LRB-", "''"]
WORDS = ["rain", "falls", ",", "-LRB-", "a\u00a0b", "NN", "S", "/S", "XX", "<NN>", "1/2"]

leaves = st.tuples(st.sampled_from(TAGS), st.sampled_from(WORDS))
nested_trees = st.recursive(
    leaves,
    lambda children: st.tuples(
        st.sampled_from(CONSTITUENTS), st.lists(children, min_size=1, max_size=4)
    ),
    max_leaves=20,
)


def as_text(nested):
    label, content = nested
    inside = content if isinstance(content, str) else " ".join(map(as_text, content))
    return f"({label} {inside})"


def words_of(nested):
    _, content = nested
    return [content] if isinstance(content, str) else [w for c in content for w in words_of(c)]


def tree_of(text):
    (tree,) = read_trees([text], "text")
    return tree


def deep_text(depth):
    """A chain of constituents over one word."""
    return "(NP " * depth + "(NN rain)" + ")" * depth


def every_form(labels):
    """Every linearization that can write trees with ``labels``."""
    return [
        Linearization(notation, tags, words, closing, known)
        for notation in ("angles", "brackets", "slashes")
        for tags in ("kept", "XX")
        for words in ("dropped", "kept")
        for closing in ("typed", "plain")
        for known in (labels, None)
        if known or notation != "slashes"
    ]


def linearization(labels=None, **keys):
    """The linearization of a recipe with these keys in data.treebank."""
    return TreebankConfig(**keys).linearization(labels)


PIECES = linearization()
VINYALS = linearization(notation="brackets", tags="XX")  # Grammar as a Foreign Language, 2015
TENSOR2TENSOR = linearization(PENN_TREEBANK, notation="slashes")


def delinearized(tokens, words, form):
    """The tree of tokens that need no repair: the inverse of ``linearize``."""
    tree, repairs = repair(tokens, words, form)
    assert not repairs.total()
    return tree
