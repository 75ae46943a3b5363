"""Trees in brackets as the text that a model that parses writes for them."""

from nmt_cli.corpus.lines import one_line
from nmt_cli.errors import UserError
from nmt_cli.figures import counted
from nmt_cli.trees.cleaning import with_root, without_root
from nmt_cli.trees.linearization import Linearization
from nmt_cli.trees.reader import read_trees


def linearized(line: str, num_words: int, form: Linearization, *, spaced: bool) -> str:
    """Return the text of the tree in ``line``, which has ``num_words`` leaves.

    ``spaced`` puts spaces between the tokens in every notation. Raises UserError if the line is not
    one tree, has other leaves, or has a label that the model does not know.
    """
    name = "tree"
    try:
        trees = list(read_trees([one_line(line)], name))
    except UserError as error:
        raise UserError(str(error).removeprefix(f"{name}:1: ").rstrip(".")) from None
    if len(trees) != 1:
        raise UserError(f"its target has {len(trees)} trees in brackets, not one")
    (tree,) = trees
    if len(tree.words) != num_words:
        raise UserError(
            f"its source has {counted(num_words, 'word')}, but the tree has "
            f"{counted(len(tree.words), 'leaf', 'leaves')}"
        )
    tokens = form.linearize(without_root(with_root(tree)))
    return " ".join(tokens) if spaced else form.join(tokens)
