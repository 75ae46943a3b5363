"""Kinds of characters, counted in many texts at once, and the scripts of languages."""

import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from nmt_cli.corpus.text.language_codes import subtags_of

# Kinds; DIGIT + 1 to DIGIT + 9 are the digits 1 to 9 of any script, and zeros are OTHER.
SPACE, OTHER, LETTER, FOREIGN_LETTER, COMMON_LETTER, DIGIT = range(6)
NUM_KINDS = DIGIT + 10
# The languages written in a script, by the first word of the names of its letters in Unicode.
LANGUAGES = {
    "ARABIC": "ar arz ckb fa ku ps sd ug ur",
    "ARMENIAN": "hy",
    "BENGALI": "as bn",
    "BOPOMOFO": "zh",
    "CJK": "ja ko wuu yue zh",
    "CYRILLIC": "ba be bg ce cv kk ky mk mn os ru sah sr tg tt uk uz",
    "DEVANAGARI": "bho hi mai mr ne sa",
    "ETHIOPIC": "am ti",
    "GEORGIAN": "ka",
    "GREEK": "el grc",
    "GUJARATI": "gu",
    "GURMUKHI": "pa",
    "HANGUL": "ko",
    "HEBREW": "he yi",
    "HIRAGANA": "ja",
    "IDEOGRAPHIC": "ja zh",
    "KANNADA": "kn",
    "KATAKANA": "ja",
    "KATAKANA-HIRAGANA": "ja",
    "KHMER": "km",
    "LAO": "lo",
    "LATIN": "af an ast az br bs ca ceb co cs cy da de en eo es et eu fi fil fo fr fy ga gd gl gn "
    "ha haw hr ht hu id ig io is it jv ku la lb ln lt lv mg mi ms mt nb nds nl nn no ny oc pl pt "
    "qu rm ro rw scn se sk sl sm sn so sq sr st su sv sw tk tl tn tr ts uz vi vo wa wo xh yo zu",
    "MALAYALAM": "ml",
    "MYANMAR": "my",
    "ORIYA": "or",
    "SINHALA": "si",
    "TAMIL": "ta",
    "TELUGU": "te",
    "THAANA": "dv",
    "THAI": "th",
    "TIBETAN": "bo dz",
}
# A script that a code names, such as zh-Hans, by the first letters of ISO 15924.
SUBTAGS = {
    "arab": "ar", "armn": "hy", "beng": "bn", "cyrl": "ru", "deva": "hi", "ethi": "am",
    "geor": "ka", "grek": "el", "gujr": "gu", "guru": "pa", "hang": "ko", "hani": "zh",
    "hans": "zh", "hant": "zh", "hebr": "he", "jpan": "ja", "khmr": "km", "knda": "kn",
    "kore": "ko", "laoo": "lo", "latn": "la", "mlym": "ml", "mymr": "my", "orya": "or",
    "sinh": "si", "taml": "ta", "telu": "te", "thaa": "dv", "thai": "th", "tibt": "bo",
}  # fmt: skip
LANGUAGES_WITHOUT_SPACES = frozenset(["bo", "dz", "ja", "km", "lo", "my", "th", "wuu", "yue", "zh"])
# First words of the names of letters that belong to no script.
COMMON = frozenset({"COMBINING", "FEMININE", "MASCULINE", "MICRO", "MODIFIER", "VARIATION"})
WIDTHS = frozenset({"FULLWIDTH", "HALFWIDTH"})


def scripts_of(language: str) -> frozenset[str]:
    """Return the scripts of a language code, as first words of the names of letters in Unicode.

    There are none if they are not known.
    """
    base, *subtags = subtags_of(language)
    named = next((SUBTAGS[subtag] for subtag in subtags if subtag in SUBTAGS), base)
    return frozenset(script for script, codes in LANGUAGES.items() if named in codes.split())


@lru_cache
def kinds_of_characters(scripts: frozenset[str] | None = None) -> npt.NDArray[np.uint8]:
    """Return the kind of each code point; ``LETTER`` are those of the scripts, None for all."""
    kinds = np.full(0x110000, OTHER, dtype=np.uint8)
    for code in range(len(kinds)):
        category = unicodedata.category(chr(code))
        if category[0] in "ZC":
            kinds[code] = SPACE
        elif category[0] in "LM":
            kinds[code] = LETTER if scripts is None else _kind_of_letter(chr(code), scripts)
        elif category == "Nd" and (value := unicodedata.decimal(chr(code))):
            kinds[code] = DIGIT + value
    return kinds


def script_of(letter: str) -> str:
    """Return the script of a letter, or a word of ``COMMON``: the first word of its name."""
    words = unicodedata.name(letter, "").split()
    return next((word for word in words if word not in WIDTHS), "")


def letters_by_script(characters: Iterable[str]) -> Counter[str]:
    """Return how many letters and marks, such as vowels of Thai, there are of each script."""
    found: Counter[str] = Counter()
    for character, number in Counter(characters).items():
        if unicodedata.category(character)[0] in "LM":
            found[script_of(character)] += number
    return found


def _kind_of_letter(character: str, scripts: frozenset[str]) -> int:
    script = script_of(character)
    if script in COMMON:
        return COMMON_LETTER
    return LETTER if script in scripts else FOREIGN_LETTER


def count_kinds(texts: Sequence[str], kinds: npt.NDArray[np.uint8]) -> npt.NDArray[np.int64]:
    """Return how many characters of each kind each text has, as a matrix of texts and kinds."""
    codes = np.frombuffer("".join(texts).encode("utf-32-le"), dtype="<u4")
    lengths = np.fromiter(map(len, texts), np.int64, len(texts))
    cells = np.repeat(np.arange(len(texts)) * NUM_KINDS, lengths) + kinds[codes]
    return np.bincount(cells, minlength=len(texts) * NUM_KINDS).reshape(len(texts), NUM_KINDS)
