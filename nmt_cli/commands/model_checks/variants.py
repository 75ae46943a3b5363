"""Checks that a model translates variants of a text as it translates the text."""

from __future__ import annotations

import random
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple

from nmt_cli.commands.model_checks.results import Row
from nmt_cli.commands.model_checks.shares import Judge, Judged
from nmt_cli.commands.model_checks.texts import Case, Text, Translations, short_ones
from nmt_cli.corpus.text.augmentation import END_PUNCTUATION, TextPair, merged, misspelt
from nmt_cli.metrics.bleu import chrf_scorer
from nmt_cli.recipe.sections.corpora import Augmentation

MOST_LINES = 100  # evenly spaced in the test sets, whose variants are translated
ENDS = "".join(END_PUNCTUATION)
STRAIGHT = str.maketrans("“”„‟«»‘’‚‹›", '""""""' + "'" * 5)


class Variant(NamedTuple):
    """How a text is changed, and in which form both translations are compared."""

    changed: Callable[[str], str]
    compared: Callable[[str], str] = str


def _typing_errors(text: str) -> str:
    """Return ``text`` with typing errors, the same each time."""
    draw = random.Random(text)
    return " ".join(misspelt(text.split(), Augmentation().typos_per_word, draw, lambda _: False))


def _typographic(text: str) -> str:
    """Return ``text`` with “these quotation marks” and ’ in place of straight ones."""
    parts = text.replace("'", "’").split('"')
    return parts[0] + "".join("“”"[place % 2] + part for place, part in enumerate(parts[1:]))


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
}
JOINED = "joined_sentences"


class Changed(NamedTuple):
    """A changed line, or two joined lines."""

    cases: Sequence[Case]
    text: Text
    compared: Callable[[str], str] = str


def variants_of(cases: Sequence[Case]) -> dict[str, list[Changed]]:
    """Return the variants of some of the lines, without those that change nothing."""
    cases = short_ones(cases)
    chosen = cases[:: max(1, len(cases) // MOST_LINES)][:MOST_LINES]
    found: dict[str, list[Changed]] = {}
    for name, variant in VARIANTS.items():
        texts = [variant.changed(case.text.source) for case in chosen]
        found[name] = [
            Changed([case], case.text._replace(source=text), variant.compared)
            for case, text in zip(chosen, texts, strict=True)
            if text.strip() and text != case.text.source
        ]
    pairs = zip(chosen[::2], chosen[1::2], strict=False)
    found[JOINED] = [
        Changed(pair, pair[0].text._replace(source=_joined(*pair)))
        for pair in pairs
        if pair[0].text.tag == pair[1].text.tag
    ]
    return found


def _joined(one: Case, other: Case) -> str:
    first, second = (TextPair(each.text.source.split(), []) for each in (one, other))
    return " ".join(merged(first, second, None).source)


def changed_texts(variants: dict[str, list[Changed]]) -> Iterator[Text]:
    """Yield the texts to translate beside the unchanged ones."""
    return (changed.text for changed in chain.from_iterable(variants.values()))


def invariance(
    variants: dict[str, list[Changed]], judge: Judge, limits: Mapping[str, Any]
) -> Iterator[Row]:
    """Yield a row for each kind of variant: how many are translated in another way.

    That is, chrF2 of the translation is below the limit if that of the unchanged text is the
    reference.
    """
    scorer = chrf_scorer()

    def judged(changed: Changed, models: Translations) -> Judged:
        unchanged = " ".join(models.get(case.text, "") for case in changed.cases)
        translation = models.get(changed.text, "")
        hypothesis, reference = map(changed.compared, (translation, unchanged))
        ((score,), _) = scorer.scores_of_each([hypothesis], [[reference]])
        example = {
            "line": changed.cases[0].place,
            "source": changed.text.source,
            "translation": translation,
            "of the unchanged": unchanged,
            "chrF2": f"{score:.2f}",
        }
        return Judged(score < limits["min_chrf"], example, 100 - score)

    for name, changed in variants.items():
        yield judge.share("invariance", name, changed, judged, limits[name])
