"""Checks of single words, such as those of labels: a model may add words, or guess."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

from nmt_cli.commands.model_checks.shares import Check, Judged
from nmt_cli.commands.model_checks.texts import Case, Translations
from nmt_cli.corpus.tokenizers.sentencepiece_tokenizer import SPACE_IN_PIECES
from nmt_cli.saved.model_directory import Model

MOST_WORDS = 200
MOST_WORDS_OF_ONE = 3  # in the translation of a word
WORD = re.compile(r"[^\W\d_]{2,}")


def is_long(_: Model, word: str, translation: str) -> bool:
    """Return whether a translation has more words than that of one word may have."""
    return len(translation.split()) > MOST_WORDS_OF_ONE


def is_unknown(model: Model, word: str, translation: str) -> bool:
    """Return whether the lexicon of ``model`` has no piece of the translation of a word."""
    assert model.lexicon is not None
    tokenizer, targets_of = model.tokenizer, model.lexicon.targets_of
    known = {target for piece in tokenizer.encode(word) for target in targets_of(piece)}
    own = tokenizer.pieces(tokenizer.encode(translation, "target"))
    return set(tokenizer.pieces([*known])).isdisjoint({*own} - {SPACE_IN_PIECES})


Fault = Callable[[Model, str, str], bool]  # whether the translation of a word fails
CHECKS: dict[str, Fault] = {"long": is_long, "not_in_lexicon": is_unknown}


def frequent_words(cases: Sequence[Case]) -> list[Case]:
    """Return the most frequent words of the lines, each in the form that is the most frequent."""
    words = Counter(word for case in cases for word in WORD.findall(case.source))
    forms: dict[str, str] = {}
    for word, _ in words.most_common():
        forms.setdefault(word.casefold(), word)
    first = cases[0]
    return [Case(word, first.tag, first.languages) for word in list(forms.values())[:MOST_WORDS]]


def single_words(
    words: Sequence[Case], model: Model, limits: Mapping[str, float | None]
) -> Iterator[Check]:
    """Yield the checks for long translations and, if MODEL has a lexicon, for those not in it."""

    def judged(has_fault: Fault, word: Case, models: Translations) -> Judged:
        translation = models[word.text]
        return Judged(has_fault(model, word.source, translation), len(translation))

    for name, has_fault in CHECKS.items():
        if has_fault is is_long or model.lexicon is not None:
            yield Check("single words", name, limits[name], words, partial(judged, has_fault))
