"""What some lines show of a text: language, script, whether it is tokenized or in lower case."""

import html
import re
from collections import Counter
from collections.abc import Sequence
from itertools import chain
from operator import itemgetter
from typing import NamedTuple

from nmt_cli.corpus.text.characters import LANGUAGES_WITHOUT_SPACES, letters_by_script
from nmt_cli.corpus.text.language_codes import NAMES, base_of, label_of, language_identifier

# The limits are far from what was measured on samples of 200 lines: news, captions, parliament and
# everyday sentences, sentences of 75 languages, and the messages of a web framework in 88.
# The right language and its relatives had at least 0.92 of the probability in running text, 0.79 in
# sentences of three words, 0.55 in short messages: what leaves them 0.3 is another language.
CERTAIN = 0.7
YES, NO = 0.5, 0.2  # shares of tokenized lines: at least 0.97 after a tokenizer, else at most 0.10
ALL_LOWER = 0.9  # share of lines without capitals: 1.00 if they were removed, else at most 0.10
LEAST_BLANKS = 0.15  # for each character between words: 0.4 after KyTea, at most 0.08 in Thai text
# Share of lines: 0.04 to 0.6 in parliament and news after Moses' tokenizer, else at most 0.01.
# Captions have so few quotes that it is 0.01 after the tokenizer, too.
LEAST_ENTITIES = 0.02
FEWEST_ENTITIES = 3  # lines
FEWEST_LINES = 20  # that show something; fewer show nothing
# Characters of what is identified: short lines are joined, for a word alone may be in any language.
SHORTEST, LONGEST = 60, 200
FEWEST_JOINED = 3
# Labels of py3langid for languages that are easily confused, or that some count as one.
RELATIVES = (
    "ar ary arz", "as bn", "bg mk", "bs hr sr", "ca oc", "cs sk", "da nn no", "de lb", "el grc",
    "en pcm", "es an ext", "fa uzs", "fo is", "fr wa", "ga gd", "gl pt", "gom hi mr ne sa",
    "hbo he", "id ms", "it lij vec", "ku sdh", "ltg lv", "nso st", "tl bcl", "wuu yue zh", "xh zu",
)  # fmt: skip
FAMILIES = {label: family.split()[0] for family in RELATIVES for label in family.split()}
CASED = frozenset({"ARMENIAN", "CYRILLIC", "GREEK", "LATIN"})
ENTITY = re.compile(r"&(?:[A-Za-z][A-Za-z0-9]*|#[0-9]+|#[xX][0-9A-Fa-f]+);")
# Moses separates hyphens by @-@, the Penn Treebank has its own quotes.
OF_TOKENIZERS = r"(?:^| )(?:@-@|``|'')(?= |$)"
MARKS = {"br": ".,", "fr": ".,"}  # which put a (no-break) space before marks of two parts
ALL_MARKS = ".,?!"
FOREIGN = re.compile(r"[^\x00-\x7f]")
BLANK_INSIDE = re.compile(r"(?<=[^\x00-\x7f]) (?=[^\x00-\x7f])")


class TextTraits(NamedTuple):
    """What some lines show; None for what they do not show."""

    num_lines: int
    language: str | None  # the most probable label of py3langid
    certainty: float  # from 0 to 1, of this language or one of its relatives
    letters: Counter[str]  # number of the letters of each script
    tokenized: float | None  # share of the lines that a tokenizer may have changed
    lower_case: float | None  # share of the lines with cased letters
    entities: int  # lines with HTML entities
    entity: str  # the most frequent one, "" if there is none

    @property
    def is_tokenized(self) -> bool | None:
        """Whether a tokenizer has put spaces into the text."""
        return _decided(self.tokenized, YES)

    @property
    def is_lower_case(self) -> bool | None:
        """Whether there are no capitals."""
        return _decided(self.lower_case, ALL_LOWER)

    @property
    def has_entities(self) -> bool:
        """Whether there are HTML entities all through the text."""
        return self.entities >= max(FEWEST_ENTITIES, LEAST_ENTITIES * self.num_lines)

    @property
    def certain_language(self) -> str | None:
        """The language if it is certain; relatives of it are possible."""
        return self.language if self.certainty >= CERTAIN else None

    def is_probably(self, language: str) -> bool:
        """Return whether ``language`` or a relative is the most probable language of the text."""
        return self.language is not None and _family(self.language) == _family(label_of(language))

    def is_certainly(self, language: str) -> bool:
        """Return whether the text is certainly in ``language`` or a relative of it."""
        return self.certainty >= CERTAIN and self.is_probably(language)

    def is_certainly_not(self, language: str) -> bool:
        """Return whether the text is certainly in a language that is no relative of this one."""
        if self.certain_language is None or self.is_certainly(language):
            return False
        return label_of(language) in language_identifier().labels


def traits_of(lines: Sequence[str], language: str | None = None) -> TextTraits:
    """Return what ``lines`` show that are not blank.

    ``language`` is what they should be in; None means the one that is found.
    """
    found, certainty = language_in(lines)
    letters = letters_by_script(chain.from_iterable(lines))
    entities = [
        [entity for entity in ENTITY.findall(line) if html.unescape(entity) != entity]
        for line in lines
    ]
    names = Counter(chain.from_iterable(entities)).most_common(1)
    has_case = bool(letters) and letters.most_common(1)[0][0] in CASED
    cased = [line for line in lines if line.lower() != line.upper()] if has_case else []
    return TextTraits(
        num_lines=len(lines),
        language=found,
        certainty=certainty,
        letters=letters,
        tokenized=_share_tokenized(lines, base_of(language or found or "")),
        lower_case=_share([line == line.lower() for line in cased]),
        entities=sum(map(bool, entities)),
        entity=names[0][0] if names else "",
    )


def language_in(lines: Sequence[str]) -> tuple[str | None, float]:
    """Return the most probable language of all lines, and the share of it and its relatives.

    A whole text is always "certain"; the mean over its parts is low where it is in no language.
    """
    if len(_joined(lines)) < FEWEST_JOINED:
        return None, 0.0
    shares, families = _shares(lines), dict[str, float]()
    for label, share in shares.items():
        families[_family(label)] = families.get(_family(label), 0.0) + share
    family, certainty = max(families.items(), key=itemgetter(1))
    language = max(shares, key=lambda label: (_family(label) == family, shares[label]))
    return (language, certainty) if language in NAMES else (None, 0.0)


def probability_of(lines: Sequence[str], language: str) -> float:
    """Return the mean probability of ``language`` and its relatives; 0 if it is not known."""
    family = _family(label_of(language))
    return sum(share for label, share in _shares(lines).items() if _family(label) == family)


def _shares(lines: Sequence[str]) -> dict[str, float]:
    """Return the mean probability of each label."""
    shares, parts = dict[str, float](), _joined(lines)
    for part in parts:
        for label, probability in language_identifier().rank(part):
            shares[label] = shares.get(label, 0.0) + float(probability) / len(parts)
    return shares


def _joined(lines: Sequence[str]) -> list[str]:
    """Return the different lines, short ones joined; a short rest is left out if it can be."""
    parts = [""]
    for line in dict.fromkeys(lines):
        if len(parts[-1]) >= SHORTEST:
            parts.append("")
        parts[-1] = f"{parts[-1]} {line[:LONGEST]}".strip()
    return parts[:-1] if len(parts) > 1 and len(parts[-1]) < SHORTEST else parts


def _family(label: str) -> str:
    return FAMILIES.get(label, label)


def _decided(share: float | None, least: float) -> bool | None:
    if share is None or NO < share < least:
        return None
    return share >= least


def _share(are: Sequence[bool]) -> float | None:
    return sum(are) / len(are) if len(are) >= FEWEST_LINES else None


def _share_tokenized(lines: Sequence[str], language: str) -> float | None:
    """Return the share of the lines with a space where nobody writes one, of those that have marks.

    In languages without spaces, of the lines that have any of their characters.
    """
    if language in LANGUAGES_WITHOUT_SPACES:
        counts = [(len(FOREIGN.findall(line)), len(BLANK_INSIDE.findall(line))) for line in lines]
        return _share([blanks >= LEAST_BLANKS * number for number, blanks in counts if number > 1])
    marks = f"[{MARKS.get(language, ALL_MARKS)}](?= |$)"
    has_marks = re.compile(f"{marks}|{OF_TOKENIZERS}")
    is_tokenized = re.compile(rf"\S {marks}|{OF_TOKENIZERS}")
    return _share([bool(is_tokenized.search(line)) for line in lines if has_marks.search(line)])
