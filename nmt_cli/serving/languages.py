"""Languages: their names, whether two codes mean the same one, and which one a text is in."""

from __future__ import annotations

from collections.abc import Iterable
from copy import copy
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from nmt_cli.corpus.text import language_codes as codes

if TYPE_CHECKING:
    from py3langid.langid import LanguageIdentifier

FOREIGN = 0.9  # the least confidence that a text is in a language of no model
BY_CHANCE = 1.01  # a confidence that is not above 1 / (number of languages) means nothing


class Detected(NamedTuple):
    """A language that a text may be in."""

    language: str
    confidence: float  # from 0 to 1, among the languages of the models
    of_all: float  # among all languages that can be detected; this one is answered


def name_of(code: str) -> str:
    """Return the English name of a language, or its code if the name is not known."""
    return codes.NAMES.get(code.lower()) or codes.NAMES.get(codes.base_of(code), code)


class Detector:
    """Finds the language of a text among ``languages``; of those with regions the first."""

    def __init__(self, languages: Iterable[str]) -> None:
        self._languages = dict[str, str]()  # by the label that py3langid has for it
        for code in languages:
            self._languages.setdefault(codes.label_of(code), code)

    @cached_property
    def _identifier(self) -> LanguageIdentifier:
        """If it knows all languages, it chooses only among these.

        What it does not know would otherwise be taken for one of the others.
        """
        identifier = copy(codes.language_identifier())
        if self._languages.keys() <= set(identifier.labels):
            identifier.set_languages(set(self._languages))
        return identifier

    def detect(self, text: str) -> list[Detected]:
        """Return the languages that ``text`` may be in, the most probable one first.

        The confidence is 0 if nothing in the text belongs to a language, such as in "12:30", and
        for languages that cannot be detected.
        """
        ranked, of_all = dict(self._identifier.rank(text)), self._of_all(text)
        found = [
            Detected(code, float(ranked.get(label, 0.0)), of_all.get(label, 0.0))
            for label, code in self._languages.items()
        ]
        found.sort(key=lambda each: -each.confidence)
        if len(found) > 1 and found[0].confidence * len(ranked) < BY_CHANCE:
            return [each._replace(confidence=0.0, of_all=0.0) for each in found]
        return found

    def foreign(self, text: str) -> Detected | None:
        """Return the language of a long text if it certainly is none of the models' languages.

        If one of these cannot be detected, nothing is certain.
        """
        if len(text) < codes.LEAST_LENGTH:
            return None
        of_all = self._of_all(text)
        if not self._languages.keys() <= of_all.keys():
            return None
        label = max(of_all, key=of_all.__getitem__)
        if label in self._languages or label not in codes.NAMES or of_all[label] < FOREIGN:
            return None
        return Detected(label, of_all[label], of_all[label])

    @staticmethod
    def _of_all(text: str) -> dict[str, float]:
        return {label: float(value) for label, value in codes.language_identifier().rank(text)}
