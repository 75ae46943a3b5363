"""Turns the output of a model that parses into a tree of the input's words."""

from collections.abc import Sequence
from typing import NamedTuple

from nmt_cli.trees.cleaning import with_root
from nmt_cli.trees.labels import PENN_TREEBANK
from nmt_cli.trees.linearization import Linearization
from nmt_cli.trees.punctuation import with_fitting_tags
from nmt_cli.trees.repair import Repairs, repair


class TreeText(NamedTuple):
    """A tree in the brackets of the Penn Treebank, with the root TOP, and how it was repaired."""

    text: str
    repairs: Repairs


def tree_of(outputs: Sequence[str], words: Sequence[str], form: Linearization) -> TreeText:
    """Return the tree of ``words`` that the texts ``outputs``, one after the other, stand for.

    There is one text for each part of the sentence. Any texts give a tree, by the rules of
    ``repair`` and ``with_fitting_tags``.
    """
    tokens = [token for output in outputs for token in form.split(output)]
    tree, repairs = repair(tokens, words, form)
    fitted = with_fitting_tags(tree, (form.labels or PENN_TREEBANK).tags)
    repairs.wrong_punctuation = fitted.num_replaced
    return TreeText(str(with_root(fitted.tree)), repairs)
