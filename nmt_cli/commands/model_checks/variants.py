"""Checks that a model translates variants of a text as it translates the text."""

from __future__ import annotations

import random
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from nmt_cli.commands.model_checks.shares import Check, Judged
from nmt_cli.commands.model_checks.texts import Case, Translations, short_ones
from nmt_cli.corpus.text.augmentation import END_PUNCTUATION, TextPair, merged, misspelt
from nmt_cli.metrics.bleu import chrf_scorer
from nmt_cli.recipe.sections.corpora import Augmentation

MOST_LINES = 100  # evenly spaced in the test sets, whose variants are translated
ENDS = "".join(END_PUNCTUATION)
STRAIGHT = str.maketrans("“”„‟«»‘’‚‹›", '""""""' + "'" * 5)


class Variant(NamedTuple):
    """How a text is changed, and in which form both translations are compared."""

    changed: Callable[..., str]  # the text of a line, or those of several lines
    compared: Callable[[str], str] = str
    num_lines: int = 1


def _typing_errors(text: str) -> str:
    """Return ``text`` with typing errors, the same each time."""
    draw = random.Random(text)
    return " ".join(misspelt(text.split(), Augmentation().typos_per_word, draw, lambda _: False))


def _typographic(text: str) -> str:
    """Return ``text`` with “these quotation marks” and ’ in place of straight ones."""
    parts = text.replace("'", "’").split('"')
    return parts[0] + "".join("“”"[place % 2] + part for place, part in enumerate(parts[1:]))


def _joined(first: str, second: str) -> str:
    """Return both texts as one, as ``augment`` merges them."""
    return " ".join(merged(TextPair(first.split(), []), TextPair(second.split(), []), None).source)


VARIANTS: dict[str, Variant] = {
    "upper_case": Variant(str.upper, str.casefold),
    "title_case": Variant(
        lambda text: " ".join(word[:1].title() + word[1:] for word in text.split()), str.casefold
    ),
    "no_end_punctuation": Variant(lambda text: text.rstrip(ENDS), lambda text: text.rstrip(ENDS)),
    "doubled_blanks": Variant(lambda text: text.replace(" ", "  ")),
    "typographic_quotes": Variant(_typographic, lambda text: text.translate(STRAIGHT)),
    "typing_errors": Variant(_typing_errors),
    "decomposed_letters": Variant(
        lambda text: unicodedata.normalize("NFD", text),
        lambda text: unicodedata.normalize("NFC", text),
    ),
    "joined_sentences": Variant(_joined, num_lines=2),
}


def invariance(cases: Sequence[Case], limits: Mapping[str, Any]) -> Iterator[Check]:
    """Yield a check for each kind of variant: which ones are translated in another way.

    That is, chrF2 of the translation is below the limit if that of the unchanged text is the
    reference.
    """
    scorer = chrf_scorer()

    def judged(compared: Callable[[str], str], case: Case, models: Translations) -> Judged:
        unchanged = " ".join(models[each.text] for each in case.unchanged)
        hypothesis, reference = compared(models[case.text]), compared(unchanged)
        ((score,), _) = scorer.scores_of_each([hypothesis], [[reference]])
        more = {"of the unchanged": unchanged, "chrF2": f"{score:.2f}"}
        return Judged(score < limits["min_chrf"], 100 - score, more)

    for name, variant in VARIANTS.items():
        changed = variants_of(cases, variant)
        yield Check("invariance", name, limits[name], changed, partial(judged, variant.compared))


def variants_of(cases: Sequence[Case], variant: Variant) -> list[Case]:
    """Return variants of some of the lines, without those that change nothing."""
    cases = short_ones(cases)
    chosen = cases[:: max(1, len(cases) // MOST_LINES)][:MOST_LINES]
    parts = (chosen[first :: variant.num_lines] for first in range(variant.num_lines))
    found = []
    for group in zip(*parts, strict=False):
        source, tag = variant.changed(*(case.source for case in group)), group[0].tag
        if source.strip() and source != group[0].source and all(each.tag == tag for each in group):
            found.append(Case(source, tag, group[0].languages, group[0].place, None, group))
    return found
