"""Cuts a line into segments that are translated each by itself, such as its sentences."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from nmt_cli.files.lines import is_blank
from nmt_cli.messages.errors import UserError
from nmt_cli.messages.extras import importing
from nmt_cli.translating.request import Request

UNKNOWN_LANGUAGE = "und"  # the code of ISO 639 for a language that is not known
LANGUAGE_MISSING = (
    "the rules for cutting sentences depend on the language, and this model does not name its "
    "source language; give --source-language"
)
PARSES = "this model parses, and cannot put the trees of several sentences together"


class SegmentsError(ValueError):
    """A line cannot be cut as it is wanted; the message is the reason."""


class Segments(NamedTuple):
    """The segments of a line, and the text around them, which stays as it is."""

    texts: Sequence[str]
    gaps: Sequence[str]  # before, between and after the segments: one more than there are segments

    @property
    def separators(self) -> Iterator[str]:
        """What is before each segment; "" if nothing separates it from the segment before."""
        return (gap and " " for gap in self.gaps[:-1])

    def filled(self, translations: Sequence[str]) -> str:
        """Return the line with the translation of each segment in its place."""
        filled = [self.gaps[0]]
        for translation, gap in zip(translations, self.gaps[1:], strict=True):
            filled += [translation, gap]
        return "".join(filled)


class Segmenter:
    """Cuts lines as the options of a translator, or those of a line itself, ask for.

    ``language`` is a code, such as "de". With ``split_sentences``, lines are cut into sentences,
    unless a line asks for something else. Raises UserError if that is not possible.
    """

    def __init__(self, language: str, *, split_sentences: bool, is_parser: bool) -> None:
        self._language, self._split_sentences = language, split_sentences
        self._is_parser = is_parser
        if split_sentences:
            try:
                sentences("", self._possible_language())
            except SegmentsError as error:
                raise UserError(f"--split-sentences: {error}.") from None

    def segments(self, request: Request) -> Segments | None:
        """Return the segments of a line; None if it is one segment, or blank, as it is.

        Raises SegmentsError if the line cannot be cut.
        """
        split = self._split_sentences if request.split is None else request.split
        if not split:
            return None
        try:
            return sentences(request.text, self._possible_language())
        except UserError as error:
            raise SegmentsError(str(error)) from None

    def _possible_language(self) -> str:
        if self._is_parser:
            raise SegmentsError(PARSES)
        if self._language == UNKNOWN_LANGUAGE:
            raise SegmentsError(LANGUAGE_MISSING)
        return self._language


def sentences(text: str, language: str) -> Segments:
    """Return the sentences of ``text``, by the rules of ``language`` or those of English.

    White space and invisible characters between sentences belong to none of them. Raises UserError
    if sentencex is not installed.
    """
    with importing("text", "sentences are cut"):
        import sentencex
    pieces = sentencex.segment(language, text)
    assert "".join(pieces) == text, "sentencex has changed the text"
    texts, gaps = list[str](), [""]
    for piece in pieces:
        if is_blank(piece):
            gaps[-1] += piece
            continue
        sentence = piece.strip()
        start = piece.index(sentence)
        gaps[-1] += piece[:start]
        texts.append(sentence)
        gaps.append(piece[start + len(sentence) :])
    return Segments(texts, gaps)
