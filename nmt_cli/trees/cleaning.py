"""Removes from a treebank's trees what parsers do not predict: traces, function labels, roots."""

import re

from nmt_cli.trees.tree import Close, Leaf, Open, Part, Tree

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
    while _has_root(tree) and _has_one_child(tree):
        tree = Tree(tree.parts[1:-1])
    return tree


def with_root(tree: Tree) -> Tree:
    """Return the tree with exactly one root, which has the label TOP."""
    tree = without_root(tree)
    children = tree.parts[1:-1] if _has_root(tree) else tree.parts
    return Tree((Open(ROOT), *children, Close(ROOT)))


def _without_functions(part: Part) -> Part:
    if isinstance(part, Leaf):
        return Leaf(plain_label(part.tag), part.word)
    return type(part)(plain_label(part.label))


def _has_root(tree: Tree) -> bool:
    first = tree.parts[0]
    return isinstance(first, Open) and first.label in ROOTS


def _has_one_child(tree: Tree) -> bool:
    depth = 0
    for place, part in enumerate(tree.parts[1:], 1):
        depth += isinstance(part, Open) - isinstance(part, Close)
        if depth == 0:  # the first child ends here
            return place == len(tree.parts) - 2
    return False
