"""What translations of validation and test text are compared with, and in which words."""

import re
from collections.abc import Sequence
from importlib.util import find_spec
from itertools import chain, islice
from typing import NamedTuple

from nmt_cli.corpus.text.characters import letters_by_script
from nmt_cli.corpus.tokenizers.whitespace_tokenizer import joined_pieces
from nmt_cli.messages.extras import install_command
from nmt_cli.metrics.tokenization import PACKAGES, Tokenization
from nmt_cli.recipe.schema import Recipe

# The first words of the names of letters in Unicode.
HAN = ("CJK", "IDEOGRAPHIC")
KANA = ("HIRAGANA", "KATAKANA", "KATAKANA-HIRAGANA")
OTHERS_WITHOUT_SPACES = ("THAI", "LAO", "KHMER", "MYANMAR", "TIBETAN")
HANGUL = ("HANGUL",)
# Of the letters; a Chinese character weighs as much as a word of several Latin letters.
LEAST_SHARE_OF_SCRIPT = 0.25
LEAST_SHARE_OF_KANA = 0.1  # of Han and kana in Japanese text, which has much more
LOOKED_AT = 1_000_000  # characters at the start, which decide the script
LONG_WITHOUT_SPACE = re.compile(r"\S{25,}")


class FittingTokenizer(NamedTuple):
    """The tokenizer that fits a text, and what should be known about this choice."""

    tokenize: Tokenization
    remark: str | None = None


def fitting_tokenizer(references: Sequence[str]) -> FittingTokenizer:
    """Return sacreBLEU's tokenizer for the script of ``references``; it ignores language codes.

    13a separates words only at spaces and punctuation. Of text without spaces it would count whole
    clauses as words, and BLEU would be near 0 whatever the translation is.
    """
    scripts = letters_by_script(islice(chain.from_iterable(references), LOOKED_AT))
    least = LEAST_SHARE_OF_SCRIPT * sum(scripts.values())
    han, kana, others, hangul = (
        sum(scripts[name] for name in names) for names in (HAN, KANA, OTHERS_WITHOUT_SPACES, HANGUL)
    )
    if han + kana + others > least:
        if others > han + kana:
            return FittingTokenizer("char")
        return (
            _of_words("ja-mecab", "char")
            if kana > LEAST_SHARE_OF_KANA * han
            else FittingTokenizer("zh")
        )
    if hangul > least:
        return _of_words("ko-mecab", "13a")
    if _has_hardly_any_spaces(references):
        remark = "it has hardly any spaces, and 13a counts what is between spaces as words"
        return FittingTokenizer("13a", f"{remark}; choose another tokenizer, such as char")
    return FittingTokenizer("13a")


def _of_words(tokenize: Tokenization, otherwise: Tokenization) -> FittingTokenizer:
    modules, package = PACKAGES[tokenize]
    if all(find_spec(module) is not None for module in modules):
        return FittingTokenizer(tokenize)
    remark = f"{tokenize} would fit better, but needs packages: {install_command(package)}"
    return FittingTokenizer(otherwise, remark)


def _has_hardly_any_spaces(lines: Sequence[str]) -> bool:
    """Return whether most characters are in stretches that are too long for words."""
    in_stretches = sum(len(found) for line in lines for found in LONG_WITHOUT_SPACE.findall(line))
    return 2 * in_stretches > sum(map(len, lines))


class References(NamedTuple):
    """The references of a text, and sacreBLEU's tokenizer for them and their translations."""

    lines: list[str]
    tokenizer: FittingTokenizer


def references_of(recipe: Recipe | None, targets: Sequence[str]) -> References:
    """Return the references in the form of translations, with pieces joined at the joiner.

    The tokenizer is validation.tokenize, or else none for text that is already in pieces or words,
    or else the one that fits the references. Without a recipe, they are plain text.
    """
    if recipe is None:
        return References([*targets], fitting_tokenizer(targets))
    lines = [joined_pieces(line, recipe.tokenizer.joiner) for line in targets]
    if recipe.validation.tokenize is not None:
        return References(lines, FittingTokenizer(recipe.validation.tokenize))
    if recipe.tokenizer.type == "whitespace":
        return References(lines, FittingTokenizer("none"))
    return References(lines, fitting_tokenizer(lines))
