"""Languages: their names, whether two codes mean the same one, and which one a text is in."""

from __future__ import annotations

from collections.abc import Iterable
from copy import copy
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from nmt_cli.corpus.text import language_codes as codes

if TYPE_CHECKING:
    from py3langid.langid import LanguageIdentifier

BY_CHANCE = 1.01  # a confidence that is not above 1 / (number of languages) means nothing


class Detected(NamedTuple):
    """A language that a text may be in."""

    language: str
    confidence: float  # from 0 to 1


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
        if len(self._languages) == 1:
            return [Detected(code, 1.0) for code in self._languages.values()]
        ranked = dict(self._identifier.rank(text))
        found = [Detected(code, ranked.get(label, 0.0)) for label, code in self._languages.items()]
        found.sort(key=lambda each: -each.confidence)
        if found[0].confidence * len(ranked) < BY_CHANCE:
            return [each._replace(confidence=0.0) for each in found]
        return found
