"""The marks of lists before sentences, such as "1.", "iv)" and "（一）".

Models that have not seen such lines in training translate the mark as if it were a word.
"""

import re
from collections.abc import Iterable
from functools import lru_cache

from nmt_cli.corpus.text.language_codes import base_of
from nmt_cli.corpus.tokenizers.piece_words import RANGES_WITHOUT_SPACES
from nmt_cli.files.lines import INVISIBLE
from nmt_cli.recipe.model_settings import UNKNOWN_LANGUAGE

_DASH = r"[-*+\u2010-\u2015\u2212\uff0d]"
# The last range is that of the fonts of signs, such as Wingdings, from which Word takes bullets.
_BULLET = (
    "[\u00b7\u2022\u2023\u203b\u2043\u2192\u2219\u22c5\u25a0-\u25ff\u2605\u2606\u2610-\u2612"
    "\u2713-\u2718\u2756\u2794-\u27be\u30fb\uff65\uf020-\uf0ff]\ufe0f?"
)
_NUMBER = r"\d{1,3}(?:[.\uff0e]\d{1,3})*"
# From 2 to 39, all letters of one case. One letter alone may be an initial, as in "V. Smith".
_CAPITALS, _SMALL = (
    f"(?=[{i}{v}{x}]{{2}}){x}{{0,3}}(?:{i}{x}|{i}{v}|{v}?{i}{{0,3}})" for i, v, x in ("IVX", "ivx")
)
_ROMAN_SIGN = "[\u2160-\u217f]{1,3}"  # characters of their own
_CHINESE = "[〇零一二三四五六七八九十百壹貳贰參叁肆伍陸陆柒捌玖拾]"
# No ideograph, which may be a word, as in (株); of Korean the syllables that count.
_LETTER = (
    "(?![\u2e80-\u9fff\uac00-\ud7a3\uf900-\ufaff])[^\\W\\d_]"
    "|[\u3041-\u30fa가나다라마바사아자차카타파하]"
)
_OPEN, _CLOSE = r"[(\[\uff08\uff3b\u3010\u3014]", r"[)\]\uff09\uff3d\u3011\u3015]"
_WIDE_CLOSE = "[\uff09\uff3d\u3011\u3015]"
_LABEL = rf"{_NUMBER}[a-z]?|{_LETTER}|{_CAPITALS}|{_SMALL}|{_ROMAN_SIGN}|{_CHINESE}{{1,4}}"
# Without "(I)", which may be a word, and "(x)", which may be a variable.
_IN_BRACKETS = rf"(?!{_OPEN}[xIVX]{_CLOSE}){_OPEN}?(?:{_LABEL}){_CLOSE}|\[[ xX]\]"
_SECTION = rf"\u00a7+\s?{_NUMBER}[a-z]?"
_WITH_DOT = rf"(?:{_NUMBER}|{_CAPITALS})[.\u06d4]"
_LETTER_WITH_DOT = r"[a-z]\.(?!\s+(?:\d|[^\W\d_]{1,2}[.:]))"  # not of "i. e." or "c. 1850"
_CERTAIN = rf"{_BULLET}|{_IN_BRACKETS}|{_SECTION}\.|(?:{_SMALL}|{_ROMAN_SIGN})\."
# These need no space. Between numbers the mark is a comma, as in 一、二年级, the years one and two;
# but 一、一个人 begins with the word for "a". And ①と② are two things.
_CIRCLED = "[\u2460-\u24ff\u2776-\u2793\u3200-\u321b\u3220-\u3247\u3251-\u327b\u3280-\u32bf]"
_UNSPACED = (
    rf"(?:{_NUMBER}|{_ROMAN_SIGN})[\u3001\uff0e](?!\d)"
    rf"|{_CHINESE}{{1,4}}[\u3001\uff0e](?:(?!{_CHINESE})|(?=一(?!{_CHINESE}|月)))"
    rf"|{_CIRCLED}(?!.?{_CIRCLED})|[0-9]\ufe0f?\u20e3|\U0001f51f"
)
# Marks only before a letter that is not small: in "5 - 10 dogs", "§ 4 says" and "1.2.3 has" they
# are parts of the sentence. A number of three parts that ends in two digits may be a date.
_LIKELY = (
    rf"{_OPEN}[xIVX]{_CLOSE}|{_SECTION}|[1-9]\d?(?:\.[1-9]\d?)+\.[1-9]|{_ROMAN_SIGN}"
    r"|\d{1,2}(?:\.?[-\u2013\u2014]|/| [-\u2013\u2014])|[\u0621-\u064a]\u0640? ?[-\u2013\u2014]"
)
# Languages in which vi is a word, so that "vi." may end a sentence.
_WITH_WORD_VI = frozenset(
    f"bs ca da eo es gl hr it mk nb nn no pt sh sl sr sv {UNKNOWN_LANGUAGE}".split()
)
# Languages in which a number with a dot is an ordinal, which belongs to the sentence: in German
# "1. Mai 2020" is a date.
_WITH_ORDINALS = frozenset(
    "az bs cs csb da de dsb et eu fi fo gsw hr hsb hu is lb lt lv nb nds nn pl se sh sk sl sr "
    f"szl tk tr {UNKNOWN_LANGUAGE}".split()
)
_UNSEEN = rf"[\s{INVISIBLE}]*"
LONGEST = 16  # characters of a mark
_NO_SPACES = "".join(f"{each[0]}-{each[-1]}" for each in RANGES_WITHOUT_SPACES)


def is_mark(text: str) -> bool:
    """Return whether ``text`` may be the mark of a list."""
    return len(text) <= LONGEST and _alone().fullmatch(text) is not None


def mark_before(text: str, language: str) -> re.Match[str] | None:
    """Return the match of the list mark before a sentence; None if there is none.

    Its second group is the mark; what nobody sees before and behind the mark belongs to the match.
    """
    word = "".join(text.split(None, 1)[:1])
    if word.isascii() and word.isalpha():  # as usual; compiling the pattern takes milliseconds
        return None
    mark = _before_text(language).match(text)
    if mark is None or not has_letters(rest := text[mark.end() :]):
        return None
    first = next(filter(str.isalnum, rest))
    is_certain = mark[3] is None
    return mark if is_certain or (first.isalpha() and not first.islower()) else None


def has_letters(text: Iterable[str]) -> bool:
    """Return whether a character of ``text`` is a letter (of Unicode's categories L)."""
    return any(map(str.isalpha, text))


@lru_cache
def _alone() -> re.Pattern[str]:
    return re.compile("|".join([_DASH, _CERTAIN, _WITH_DOT, _LETTER_WITH_DOT, _UNSPACED, _LIKELY]))


@lru_cache
def _before_text(language: str) -> re.Pattern[str]:
    base = base_of(language)
    certain = _CERTAIN if base in _WITH_ORDINALS else f"{_CERTAIN}|{_WITH_DOT}|{_LETTER_WITH_DOT}"
    if base in _WITH_WORD_VI:
        certain = rf"(?!vi\.)(?:{certain})"
    # Full-width brackets have their space in them.
    behind = rf"(?:(?<={_WIDE_CLOSE})|(?=\s|(?!\d)[{_NO_SPACES}]))"
    marks = rf"(?:{certain}){behind}|{_UNSPACED}|{_DASH}(?=\s)|((?:{_LIKELY})(?=\s))"
    return re.compile(rf"({_UNSEEN})({marks}){_UNSEEN}")
