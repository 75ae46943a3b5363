"""What translations of validation and test text are compared with, and in which words."""

from collections.abc import Sequence
from typing import NamedTuple

from nmt_cli.corpus.tokenizers.whitespace_tokenizer import joined_pieces
from nmt_cli.metrics.tokenization import Fitting, fitting_tokenizer
from nmt_cli.recipe.schema import Recipe


class References(NamedTuple):
    """The references of a text, and sacreBLEU's tokenizer for them and their translations."""

    lines: list[str]
    tokenizer: Fitting


def references_of(recipe: Recipe, targets: Sequence[str]) -> References:
    """Return the references in the form of translations: pieces are joined as ``translate`` does.

    The tokenizer is validation.tokenize, or else none for text that is already in pieces or words,
    or else the one that fits the references.
    """
    lines = [joined_pieces(line, recipe.tokenizer.joiner) for line in targets]
    if recipe.validation.tokenize is not None:
        return References(lines, Fitting(recipe.validation.tokenize))
    if recipe.tokenizer.type == "whitespace":
        return References(lines, Fitting("none"))
    return References(lines, fitting_tokenizer(lines))
