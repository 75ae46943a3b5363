"""Checks of single translations: what is kept of the source, and gross faults.

Each is a function of a line. It returns whether the line fails, or None if it does not apply.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from nmt_cli.commands.model_checks.results import Row
from nmt_cli.commands.model_checks.shares import Judge, Judged
from nmt_cli.commands.model_checks.texts import Case, Translations, short_ones
from nmt_cli.corpus.text.augmentation import END_PUNCTUATION
from nmt_cli.corpus.text.filters import share_repeated
from nmt_cli.corpus.text.glossary import Glossary
from nmt_cli.corpus.text.translation_faults import (
    TAG,
    has_other_digits,
    is_of_other_language,
    is_of_other_script,
)
from nmt_cli.files.lines import is_blank
from nmt_cli.metrics.bleu import chrf_scorer
from nmt_cli.translating.interface.protection import COMMON_PATTERNS

MOST_TIMES_AS_LONG, SHORT = 2.0, 20  # characters: shorter texts count as such
MOST_REPEATED = 0.1  # share of repeated n-grams beyond that of the source and the reference
FEWEST_WORDS = 3  # of a source whose copy is a fault: names stay
BRACKETS = dict(zip(")]}）］｝」』】》〉", "([{（［｛「『【《〈", strict=True))
DOUBLE_QUOTES = re.compile('["“”„‟«»＂]')
BEHIND_PUNCTUATION = "\"'“”„«»‘’)]}」』）】 \u00a0\u202f"
# Of a kind that fewer lines have, so many lines are checked with one, where … is the line.
NUM_PROBES = 50
PROBES = {
    "numbers": "… 3,481",
    "urls": "… https://example.com/news?id=27",
    "emails": "… info@example.org",
    "placeholders": "… {name}",
    "tags": "<b>…</b>",
    "emoji": "… 🙂",
    "symbols": "… €",
}


class Line(NamedTuple):
    """A source and its translation; a reference if there is one."""

    source: str
    translation: str
    reference: str | None
    languages: tuple[str, str]

    @property
    def correct(self) -> Sequence[str]:
        """The texts whose features a translation may have: the source and the reference."""
        return [self.source, *([] if self.reference is None else [self.reference])]


Check = Callable[[Line], bool | None]


def _found(patterns: Iterable[str], text: str) -> tuple[str, ...]:
    """Return what matches one of the patterns, in any order."""
    return tuple(sorted(match[0] for each in patterns for match in re.finditer(each, text)))


def _symbols(text: str) -> tuple[str, ...]:
    without_emoji = re.sub(COMMON_PATTERNS["emoji"], "", text)
    return tuple(sorted(c for c in without_emoji if unicodedata.category(c) in {"Sc", "So"}))


FEATURES: dict[str, Callable[[str], Hashable]] = {
    "urls": partial(_found, [COMMON_PATTERNS["url"]]),
    "emails": partial(_found, [COMMON_PATTERNS["email"]]),
    "placeholders": partial(_found, [COMMON_PATTERNS["placeholder"], COMMON_PATTERNS["format"]]),
    "tags": partial(_found, [TAG]),
    "emoji": partial(_found, [COMMON_PATTERNS["emoji"]]),
    "symbols": _symbols,
}


def _keeps(feature: Callable[[str], Hashable], line: Line) -> bool | None:
    if not feature(line.source):
        return None
    return feature(line.translation) not in map(feature, line.correct)


def _numbers(line: Line) -> bool | None:
    if not any(map(str.isdigit, line.source)):
        return None
    others = (has_other_digits(each, line.translation, line.languages) for each in line.correct)
    return all(others)


def _empty(line: Line) -> bool:
    return is_blank(line.translation)


def _untranslated(line: Line) -> bool | None:
    source, translation = line.source.strip(), line.translation.strip()
    is_short = len(source.split()) < FEWEST_WORDS and len(source) < SHORT
    if is_short or (line.reference is not None and source == line.reference.strip()):
        return None
    return source == translation


def _language(line: Line) -> bool:
    def is_other(text: str) -> bool:
        return is_of_other_script(text, line.languages[1]) or is_of_other_language(
            line.source, text, line.languages
        )

    return is_other(line.translation) and not (line.reference and is_other(line.reference))


def _length(line: Line) -> bool | None:
    if line.reference is None or is_blank(line.translation):
        return None if line.reference is None else False  # it counts as empty
    shorter, longer = sorted(map(len, (line.translation, line.reference)))
    return longer > MOST_TIMES_AS_LONG * max(shorter, SHORT)


def _repetition(line: Line) -> bool:
    usual = max(map(share_repeated, line.correct, line.languages))
    return share_repeated(line.translation, line.languages[1]) > usual + MOST_REPEATED


def _end_of(text: str) -> str:
    last = text.rstrip().rstrip(BEHIND_PUNCTUATION)[-1:]
    return next((marks for marks in END_PUNCTUATION if last and last in marks), "")


def _end_punctuation(line: Line) -> bool:
    return _end_of(line.translation) not in map(_end_of, line.correct)


def _is_balanced(text: str) -> bool:
    open_ones = list[str]()
    for character in text:
        if character in BRACKETS.values():
            open_ones.append(character)
        elif character in BRACKETS and (not open_ones or open_ones.pop() != BRACKETS[character]):
            return False
    return not open_ones and len(DOUBLE_QUOTES.findall(text)) % 2 == 0


def _brackets_and_quotes(line: Line) -> bool | None:
    return not _is_balanced(line.translation) if any(map(_is_balanced, line.correct)) else None


# In the order of the table, by the names of their limits.
CHECKS: dict[str, Check] = {
    "empty": _empty,
    "untranslated": _untranslated,
    "language": _language,
    "repetition": _repetition,
    "length": _length,
    "numbers": _numbers,
    **{name: partial(_keeps, feature) for name, feature in FEATURES.items()},
    "end_punctuation": _end_punctuation,
    "brackets_and_quotes": _brackets_and_quotes,
}
# The largest share of lines that may fail, by default; None: the figure is only shown.
SHARES: dict[str, float | None] = {
    **dict.fromkeys([*CHECKS, "terms"]),  # terms need a glossary
    "empty": 0.0,
    "untranslated": 0.1,
    "language": 0.1,
    "repetition": 0.02,
}


def terms_of(glossary: Glossary) -> Check:
    """Return the check that the terms of a glossary are rendered."""

    def check(line: Line) -> bool | None:
        found = glossary.found_in(line.source)
        return any(term.form_in(line.translation) is None for term in found) if found else None

    return check


def probes(cases: Sequence[Case]) -> list[Case]:
    """Return lines with numbers, URLs and so on, of each kind that few of the lines have."""
    added, repeated = list[Case](), short_ones(cases)[:NUM_PROBES]
    for name, form in PROBES.items():
        lines = (Line(case.text.source, "", None, case.languages) for case in cases)
        if sum(CHECKS[name](line) is not None for line in lines) < NUM_PROBES:
            added += (
                case._replace(
                    place=f"{case.place} with {name}",
                    text=case.text._replace(source=form.replace("…", case.text.source)),
                    reference=None,
                )
                for case in repeated
            )
    return added


def behaviour(
    cases: Sequence[Case],
    judge: Judge,
    limits: Mapping[str, float | None],
    glossary: Glossary | None,
) -> Iterator[Row]:
    """Yield a row for each check of the lines and the probes."""
    scorer = chrf_scorer()
    checks = CHECKS if glossary is None else {**CHECKS, "terms": terms_of(glossary)}

    def judged(check: Check, case: Case, models: Translations) -> Judged | None:
        translation = models.get(case.text, "")
        fails = check(Line(case.text.source, translation, case.reference, case.languages))
        if fails is None:
            return None
        badness = 0.0
        if fails and case.reference is not None:
            badness = 100 - scorer.scores_of_each([translation], [[case.reference]])[0][0]
        return Judged(fails, case.shown(translation), badness)

    for name, check in checks.items():
        yield judge.share("behaviour", name, cases, partial(judged, check), limits[name])
