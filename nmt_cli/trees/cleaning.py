"""Removes from a treebank's trees what parsers do not predict: traces, function labels, roots."""

import re
from collections.abc import Sequence

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
    if not _has_root(tree):
        return tree
    ends, last, num_roots = _ends(tree.parts), len(tree.parts) - 1, 0
    # The constituent at place n ends at last - n if all those around it have one child.
    while _is_root(tree.parts[num_roots]) and ends[num_roots + 1] == last - num_roots - 1:
        num_roots += 1
    return Tree(tree.parts[num_roots : len(tree.parts) - num_roots])


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
    return _is_root(tree.parts[0])


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
