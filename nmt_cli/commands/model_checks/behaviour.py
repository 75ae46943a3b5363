"""Checks of single translations: what is kept of the source, and gross faults.

Each is a function of a line and its translation. It returns whether the translation fails, or None
if the check does not apply to the line.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from functools import partial

from nmt_cli.commands.model_checks.shares import Check, Judged
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

Fault = Callable[[Case, str], bool | None]  # whether a translation has it


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


def _keeps(feature: Callable[[str], Hashable], line: Case, translation: str) -> bool | None:
    if not feature(line.source):
        return None
    return feature(translation) not in map(feature, line.correct)


def _numbers(line: Case, translation: str) -> bool | None:
    if not any(map(str.isdigit, line.source)):
        return None
    others = (has_other_digits(each, translation, line.languages) for each in line.correct)
    return all(others)


def _empty(line: Case, translation: str) -> bool:
    return is_blank(translation)


def _untranslated(line: Case, translation: str) -> bool | None:
    source = line.source.strip()
    is_short = len(source.split()) < FEWEST_WORDS and len(source) < SHORT
    if is_short or (line.reference is not None and source == line.reference.strip()):
        return None
    return source == translation.strip()


def _language(line: Case, translation: str) -> bool:
    def is_other(text: str) -> bool:
        return is_of_other_script(text, line.languages[1]) or is_of_other_language(
            line.source, text, line.languages
        )

    return is_other(translation) and not (line.reference and is_other(line.reference))


def _length(line: Case, translation: str) -> bool | None:
    if line.reference is None:
        return None
    shorter, longer = sorted(map(len, (translation, line.reference)))
    is_other = longer > MOST_TIMES_AS_LONG * max(shorter, SHORT)
    return is_other and not is_blank(translation)  # which counts as empty


def _repetition(line: Case, translation: str) -> bool:
    usual = max(map(share_repeated, line.correct, line.languages))
    return share_repeated(translation, line.languages[1]) > usual + MOST_REPEATED


def _end_of(text: str) -> str:
    last = text.rstrip().rstrip(BEHIND_PUNCTUATION)[-1:]
    return next((marks for marks in END_PUNCTUATION if last and last in marks), "")


def _end_punctuation(line: Case, translation: str) -> bool:
    return _end_of(translation) not in map(_end_of, line.correct)


def _is_balanced(text: str) -> bool:
    open_ones = list[str]()
    for character in text:
        if character in BRACKETS.values():
            open_ones.append(character)
        elif character in BRACKETS and (not open_ones or open_ones.pop() != BRACKETS[character]):
            return False
    return not open_ones and len(DOUBLE_QUOTES.findall(text)) % 2 == 0


def _brackets_and_quotes(line: Case, translation: str) -> bool | None:
    return not _is_balanced(translation) if any(map(_is_balanced, line.correct)) else None


# In the order of the table, by the names of their limits.
CHECKS: dict[str, Fault] = {
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


def terms_of(glossary: Glossary) -> Fault:
    """Return the check that the terms of a glossary are rendered."""

    def check(line: Case, translation: str) -> bool | None:
        found = glossary.found_in(line.source)
        return any(term.form_in(translation) is None for term in found) if found else None

    return check


def probes(cases: Sequence[Case]) -> list[Case]:
    """Return lines with numbers, URLs and so on, of each kind that few of the lines have."""
    return [
        case._replace(
            source=form.replace("…", case.source), place=f"{case.place} with {name}", reference=None
        )
        for name, form in PROBES.items()
        if sum(CHECKS[name](case, "") is not None for case in cases) < NUM_PROBES
        for case in short_ones(cases)[:NUM_PROBES]
    ]


def behaviour(
    cases: Sequence[Case], limits: Mapping[str, float | None], glossary: Glossary | None
) -> Iterator[Check]:
    """Yield each check of the lines and the probes."""
    scorer = chrf_scorer()
    faults = CHECKS if glossary is None else {**CHECKS, "terms": terms_of(glossary)}

    def judged(has_fault: Fault, case: Case, models: Translations) -> Judged | None:
        translation = models[case.text]
        fails = has_fault(case, translation)
        if not fails or case.reference is None:
            return None if fails is None else Judged(fails)
        return Judged(fails, 100 - scorer.scores_of_each([translation], [[case.reference]])[0][0])

    for name, has_fault in faults.items():
        yield Check("behaviour", name, limits[name], cases, partial(judged, has_fault))
