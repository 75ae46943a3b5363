"""Tags of punctuation that fit their words."""

from collections.abc import Set
from operator import ne
from typing import NamedTuple

from nmt_cli.trees.labels import PUNCTUATION_TAGS, UNKNOWN_TAG
from nmt_cli.trees.tree import Leaf, Part, Tree

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
