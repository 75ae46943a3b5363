"""Checks of single words, such as those of labels: a model may add words, or guess."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from nmt_cli.commands.model_checks.results import Row
from nmt_cli.commands.model_checks.shares import Judge, Judged
from nmt_cli.commands.model_checks.texts import Case, Text, Translations
from nmt_cli.corpus.tokenizers.sentencepiece_tokenizer import SPACE_IN_PIECES
from nmt_cli.recipe.limits import WordLimits
from nmt_cli.saved.model_directory import Model

MOST_WORDS = 200
MOST_WORDS_OF_ONE = 3  # in the translation of a word
WORD = re.compile(r"[^\W\d_]{2,}")

Check = Callable[[str, str], bool]  # whether the translation of a word fails


def frequent_words(cases: Sequence[Case], tag: str | None) -> list[Text]:
    """Return the most frequent words of the lines, each in the form that is the most frequent."""
    words = Counter(word for case in cases for word in WORD.findall(case.text.source))
    forms: dict[str, str] = {}
    for word, _ in words.most_common():
        forms.setdefault(word.casefold(), word)
    return [Text(word, tag) for word in list(forms.values())[:MOST_WORDS]]


def single_words(
    words: Sequence[Text], model: Model, judge: Judge, limits: WordLimits
) -> Iterator[Row]:
    """Yield the rows of long translations and, if MODEL has a lexicon, of those not in it."""
    tokenizer, lexicon = model.tokenizer, model.lexicon

    def is_unknown(word: str, translation: str) -> bool:
        assert lexicon is not None
        known = {piece for each in tokenizer.encode(word) for piece in lexicon.targets_of(each)}
        own = tokenizer.encode(translation, "target")
        return set(tokenizer.pieces([*known])).isdisjoint(
            {*tokenizer.pieces(own)} - {SPACE_IN_PIECES}
        )

    def judged(fails: Check, word: Text, models: Translations) -> Judged:
        translation = models.get(word, "")
        example = {"source": word.source, "translation": translation}
        return Judged(fails(word.source, translation), example, len(translation))

    checks: dict[str, Check] = {
        "long": lambda _, translation: len(translation.split()) > MOST_WORDS_OF_ONE
    }
    if lexicon is not None:
        checks["not_in_lexicon"] = is_unknown
    for name, check in checks.items():
        yield judge.share(
            "single words", name, words, partial(judged, check), getattr(limits, name)
        )
