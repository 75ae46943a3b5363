"""Checks of single words, such as those of labels: a model may add words, or guess."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

from nmt_cli.commands.model_checks.results import Row
from nmt_cli.commands.model_checks.shares import Judge, Judged
from nmt_cli.commands.model_checks.texts import Text, Translations
from nmt_cli.corpus.tokenizers.sentencepiece_tokenizer import SPACE_IN_PIECES
from nmt_cli.corpus.tokenizers.tokenizer import source_pieces
from nmt_cli.recipe.limits import WordLimits
from nmt_cli.saved.model_directory import Model

MOST_WORDS = 200
MOST_WORDS_OF_ONE = 3  # in the translation of a word
SHORTEST = 2  # letters


class Word(NamedTuple):
    """A word that is one piece of the source's vocabulary."""

    piece: int
    text: Text


Check = Callable[[Word, str], bool]  # whether a translation fails


def frequent_words(model: Model, tag: str | None) -> list[Word]:
    """Return the first words of the vocabulary, which begins with the most frequent ones.

    With a lexicon, only those that it translates.
    """
    tokenizer, lexicon = model.tokenizer, model.lexicon
    found = list[Word]()
    for piece, text in enumerate(source_pieces(tokenizer)):
        word = text.removeprefix(SPACE_IN_PIECES)
        if len(word) < SHORTEST or not word.isalpha() or tokenizer.encode(word) != [piece]:
            continue
        if lexicon is None or len(lexicon.targets_of(piece)):
            found.append(Word(piece, Text(word, tag)))
        if len(found) == MOST_WORDS:
            break
    return found


def single_words(
    words: Sequence[Word], model: Model, judge: Judge, limits: WordLimits
) -> Iterator[Row]:
    """Yield the rows of long translations and, if MODEL has a lexicon, of those not in it."""
    lexicon = model.lexicon

    def is_unknown(word: Word, translation: str) -> bool:
        assert lexicon is not None
        known, own = (
            set(model.tokenizer.pieces(ids)) - {SPACE_IN_PIECES}
            for ids in (
                lexicon.targets_of(word.piece).tolist(),
                model.tokenizer.encode(translation, "target"),
            )
        )
        return known.isdisjoint(own)

    def judged(fails: Check, word: Word, models: Translations) -> Judged:
        translation = models.get(word.text, "")
        example = {"source": word.text.source, "translation": translation}
        return Judged(fails(word, translation), example, len(translation))

    checks: dict[str, Check] = {
        "long": lambda _, translation: len(translation.split()) > MOST_WORDS_OF_ONE
    }
    if lexicon is not None:
        checks["not_in_lexicon"] = is_unknown
    for name, check in checks.items():
        yield judge.share(
            "single words", name, words, partial(judged, check), getattr(limits, name)
        )
