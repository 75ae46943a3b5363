"""What shows that a text does not translate another one: other numbers, another language."""

import unicodedata
from collections import Counter

from nmt_cli.corpus.text import language_codes
from nmt_cli.corpus.text.characters import letters_by_script, scripts_of

TAG = r"</?[A-Za-z][^<>]{0,200}>"
MONTHS_ARE_NUMBERS = {"ja", "ko", "zh"}  # 5月 is May
LEAST_PROBABILITY = 0.01  # of the language of a translation
LEAST_CERTAIN = 0.8  # of another language
LEAST_LETTERS = 10  # whose script can be judged: names keep theirs
LEAST_OWN_LETTERS = 0.25  # share of the letters of a text


def has_other_digits(source: str, text: str, languages: tuple[str, str]) -> bool:
    """Return whether other digits from 1 to 9 are in ``text``, unless they may be months."""
    own, others = map(digits_of, (source, text))
    is_own, is_other = (language_codes.base_of(each) in MONTHS_ARE_NUMBERS for each in languages)
    return own != others and not (is_own and own > others) and not (is_other and own < others)


def digits_of(text: str) -> Counter[int]:
    """Count the digits of any script, without zeros, as the filters do."""
    return Counter(filter(None, (unicodedata.decimal(each, 0) for each in text)))


def is_of_other_language(
    source: str,
    text: str,
    languages: tuple[str, str],
    least_probability: float = LEAST_PROBABILITY,
) -> bool:
    """Return whether ``text`` is certainly not in the language of the target.

    Names are of the same other language on both sides.
    """
    identifier = language_codes.language_identifier()
    own, wanted = map(language_codes.label_of, languages)
    if len(text) < language_codes.LEAST_LENGTH or wanted not in identifier.labels:
        return False
    label, certainty = identifier.classify(text)
    if label == wanted or certainty < LEAST_CERTAIN:
        return False
    if dict(identifier.rank(text))[wanted] >= least_probability:
        return False
    return label == own or identifier.classify(source)[0] != label


def is_of_other_script(text: str, language: str) -> bool:
    """Return whether ``text`` has few letters in the script of ``language``, if it is known."""
    scripts, letters = scripts_of(language), letters_by_script(text)
    if not scripts or letters.total() < LEAST_LETTERS:
        return False
    return sum(letters[each] for each in scripts) < LEAST_OWN_LETTERS * letters.total()
