"""The words of a line of text, as the leaves of a tree may have them."""

from nmt_cli.trees.reader import WORD
from nmt_cli.trees.tree import ESCAPED_BRACKETS


def words_of(line: str) -> list[str]:
    """Return the words of ``line``, which spaces separate; ( and ) become -LRB- and -RRB-."""
    return WORD.findall(line.translate(ESCAPED_BRACKETS))
