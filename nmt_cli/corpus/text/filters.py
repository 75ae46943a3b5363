"""Filters of training pairs by their text, such as its lengths, letters, URLs and language."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from nmt_cli.corpus.text.characters import (
    COMMON_LETTER,
    DIGIT,
    FOREIGN_LETTER,
    LANGUAGES_WITHOUT_SPACES,
    LETTER,
    SPACE,
    count_kinds,
    kinds_of_characters,
    scripts_of,
)
from nmt_cli.corpus.text.language_codes import base_of, label_of, language_identifier
from nmt_cli.messages.errors import UserError
from nmt_cli.recipe.sections.data import DataConfig

Broken: TypeAlias = npt.NDArray[np.bool_]
Counts: TypeAlias = npt.NDArray[np.int64]

LOOKED_AT = 10_000  # characters of a side; what follows them is counted only in lengths
NGRAM_OF_WORDS, NGRAM_OF_CHARACTERS = 3, 6
URL = re.compile(
    r"(?i:https?|ftp)://[!-~]+|(?:www|Www|WWW)\.[!-~]+|(?<![\w.+-])[\w.+-]+@[\w-]+(?:\.[\w-]+)+",
    re.ASCII,
)
SIGNS_OF_URLS = ("://", "www.", "Www.", "WWW.", "@")
SCHEME_AND_HOST = re.compile(r"(?:[a-z]+://)?[^/?#]*", re.IGNORECASE | re.ASCII)
BEHIND_URLS = ".,;:!?)]}>'\""


class Pairs:
    """Pairs of texts, and what several filters count in them.

    The lists have an entry for each side, the source first.
    """

    def __init__(
        self,
        texts: tuple[Sequence[str], Sequence[str]],
        languages: Sequence[str],
        scripts: Sequence[frozenset[str] | None],
    ) -> None:
        """Take the texts of both sides, their languages, and their scripts if they matter."""
        self.texts, self._languages, self._scripts = texts, languages, scripts
        self.starts = [[text[:LOOKED_AT] for text in side] for side in texts]
        self.left: list[int] = []  # the places of pairs that broke no rule so far

    @cached_property
    def words(self) -> list[Counts]:
        """The number of words of each text."""
        return [_counts(side, lambda text: len(text.split())) for side in self.texts]

    @cached_property
    def characters(self) -> list[Counts]:
        """The number of characters of each text."""
        return [_counts(side, len) for side in self.texts]

    @cached_property
    def kinds(self) -> list[Counts]:
        """The number of characters of each kind; a row for each text."""
        return list(map(count_kinds, self.starts, map(kinds_of_characters, self._scripts)))

    @cached_property
    def urls(self) -> list[list[list[str]]]:
        """The URLs and e-mail addresses of each text."""
        return [list(map(urls_in, side)) for side in self.starts]

    def any_of_left(self, breaks: Callable[[str, str], bool]) -> Broken:
        """Return for each pair that is left whether ``breaks`` is true of a text and its language.

        It is false for all other pairs.
        """
        broken = np.zeros(len(self.starts[0]), dtype=np.bool_)
        for place in self.left:
            texts = (side[place] for side in self.starts)
            broken[place] = any(map(breaks, texts, self._languages))
        return broken


def urls_in(text: str) -> list[str]:
    """Return the URLs and e-mail addresses in ``text``, without punctuation behind them."""
    if not any(sign in text for sign in SIGNS_OF_URLS):
        return []
    return [url.rstrip(BEHIND_URLS) for url in URL.findall(text)]


def _comparable(urls: Iterable[str]) -> list[str]:
    """Return the URLs in order, without the case of schemes and hosts, which means nothing."""
    return sorted(SCHEME_AND_HOST.sub(lambda found: found[0].lower(), url, 1) for url in urls)


def share_repeated(text: str, language: str) -> float:
    """Return the share of the n-grams of ``text`` that occur earlier in it."""
    if base_of(language) in LANGUAGES_WITHOUT_SPACES:
        units, size = list("".join(text.split())), NGRAM_OF_CHARACTERS
    else:
        units, size = text.split(), NGRAM_OF_WORDS
    total = len(units) - size + 1
    if total < 1:
        return 0.0
    different = set(zip(*(units[first:] for first in range(size)), strict=False))
    return (total - len(different)) / total


def _counts(texts: Iterable[str], count: Callable[[str], int]) -> Counts:
    return np.fromiter(map(count, texts), np.int64)


def _longest_word(text: str) -> int:
    return max(map(len, text.split()), default=0)


def _are_unequal(counts: list[Counts], ratio: float) -> Broken:
    return np.maximum(*counts) > ratio * np.minimum(*counts)


def _share(part: Counts, whole: Counts, of_none: float) -> npt.NDArray[np.float64]:
    return np.where(whole, part / np.maximum(whole, 1), of_none)


def _letters(counts: Counts) -> npt.NDArray[np.float64]:
    letters = counts[:, [LETTER, FOREIGN_LETTER, COMMON_LETTER]].sum(axis=1)
    return _share(letters, counts.sum(axis=1) - counts[:, SPACE], of_none=0)


def _letters_of_script(counts: Counts) -> npt.NDArray[np.float64]:
    own = counts[:, LETTER]
    return _share(own, own + counts[:, FOREIGN_LETTER], of_none=1)


def _equal_digits(kinds: list[Counts]) -> npt.NDArray[np.float64]:
    sources, targets = (counts[:, DIGIT:] for counts in kinds)
    common = np.minimum(sources, targets).sum(axis=1)
    return _share(2 * common, sources.sum(axis=1) + targets.sum(axis=1), of_none=1)


def _urls(pairs: Pairs) -> list[npt.NDArray[np.float64]]:
    return [
        _share(_counts(map("".join, urls), len), _counts(side, len), of_none=0)
        for urls, side in zip(pairs.urls, pairs.starts, strict=True)
    ]


def _differ(items: Sequence[Iterable[Any]]) -> Broken:
    return np.array([one != other for one, other in zip(*items, strict=True)], dtype=np.bool_)


def _probability(text: str, language: str) -> float:
    return dict(language_identifier().rank(text))[label_of(language)]


# The filters in the order in which they are applied; each gets its limit in the recipe.
CHECKS: dict[str, Callable[[Pairs, Any], Broken]] = {
    "min_characters": lambda pairs, limit: np.minimum(*pairs.characters) < limit,
    "max_characters": lambda pairs, limit: np.maximum(*pairs.characters) > limit,
    "max_characters_ratio": lambda pairs, limit: _are_unequal(pairs.characters, limit),
    "min_words": lambda pairs, limit: np.minimum(*pairs.words) < limit,
    "max_words": lambda pairs, limit: np.maximum(*pairs.words) > limit,
    "max_words_ratio": lambda pairs, limit: _are_unequal(pairs.words, limit),
    "max_word_length": lambda pairs, limit: (
        np.maximum(*(_counts(side, _longest_word) for side in pairs.texts)) > limit
    ),
    "remove_copies": lambda pairs, _: ~_differ([map(str.strip, side) for side in pairs.texts]),
    "min_letters": lambda pairs, limit: np.minimum(*map(_letters, pairs.kinds)) < limit,
    "min_script": lambda pairs, limit: np.minimum(*map(_letters_of_script, pairs.kinds)) < limit,
    "min_equal_digits": lambda pairs, limit: _equal_digits(pairs.kinds) < limit,
    "remove_different_urls": lambda pairs, _: _differ(
        [map(_comparable, urls) for urls in pairs.urls]
    ),
    "max_urls": lambda pairs, limit: np.maximum(*_urls(pairs)) > limit,
    "max_repeated_ngrams": lambda pairs, limit: pairs.any_of_left(
        lambda text, language: share_repeated(text, language) > limit
    ),
    "min_language": lambda pairs, limit: pairs.any_of_left(
        lambda text, language: _probability(text, language) < limit
    ),
}
TEXT_FILTERS = tuple(CHECKS)


class TextFilters:
    """The filters of a recipe that look at the text of a pair."""

    def __init__(self, data: DataConfig, languages: tuple[str, str] | None = None) -> None:
        """``languages`` are those of the pairs; None: those of ``data``.

        Raises UserError if a filter lacks a language.
        """
        self._limits = {
            name: limit
            for name in TEXT_FILTERS
            if (limit := getattr(data.filters, name)) is not None and limit is not False
        }
        self._languages = languages or data.languages
        uses_scripts = "min_script" in self._limits
        self._scripts = [_scripts(code) if uses_scripts else None for code in self._languages]
        if "min_language" in self._limits:
            _refuse_unknown_languages(self._languages)

    def first_broken(
        self, sources: Sequence[str], targets: Sequence[str], is_left: Broken
    ) -> npt.NDArray[np.int8]:
        """Return for each pair the place in ``TEXT_FILTERS`` of the first that it breaks, or -1.

        Pairs for which ``is_left`` is false broke another rule before; some filters skip them.
        """
        first = np.full(len(sources), -1, dtype=np.int8)
        if self._limits:
            pairs = Pairs((sources, targets), self._languages, self._scripts)
            for name, limit in self._limits.items():
                pairs.left = np.flatnonzero(is_left & (first < 0)).tolist()
                first[CHECKS[name](pairs, limit) & is_left & (first < 0)] = TEXT_FILTERS.index(name)
        return first


def _scripts(language: str) -> frozenset[str]:
    """Return the scripts of a language. Raises UserError if they are not known."""
    if scripts := scripts_of(language):
        return scripts
    raise UserError(
        f"data.filters.min_script: the script of language {language} is not known; name it in "
        f"the code, such as {base_of(language)}-Latn, or leave min_script out."
    )


def _refuse_unknown_languages(languages: Iterable[str]) -> None:
    known = language_identifier().labels
    for language in languages:
        if label_of(language) not in known:
            raise UserError(
                f"data.filters.min_language: py3langid cannot identify the language {language}; "
                "leave min_language out."
            )
