"""Phrases of the target language, as text or as pieces, become ids."""

import json
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import NamedTuple

from nmt_cli.corpus.lines import why_not_unicode
from nmt_cli.corpus.tokenizer import Tokenizer
from nmt_cli.decoding.constraints import TextOrPieces
from nmt_cli.decoding.rules.phrases import Phrase

MOST_SHOWN = 80  # characters


class ContradictionError(ValueError):
    """No output can be as it is wanted; the message is the reason."""


class TargetPhrase(NamedTuple):
    """The ids of a phrase, and the phrase as messages show it."""

    ids: Phrase
    shown: str

    def contains(self, other: Phrase) -> bool:
        """Return whether ``other`` occurs in it."""
        starts = range(len(self.ids) - len(other) + 1)
        return any(self.ids[start : start + len(other)] == other for start in starts)

    def repeats(self, n: int) -> bool:
        """Return whether some ``n`` pieces in a row occur in it twice."""
        ngrams = [self.ids[start : start + n] for start in range(len(self.ids) - n + 1)]
        return len(set(ngrams)) < len(ngrams)


class TargetPhrases:
    """Encodes phrases with one tokenizer."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer

    def encode_all(self, phrases: Iterable[TextOrPieces]) -> tuple[TargetPhrase, ...]:
        """Return what ``encode`` returns for each phrase.

        Raises ContradictionError also if ``phrases`` is one text and not a list.
        """
        if isinstance(phrases, str):
            raise ContradictionError(f"a list of phrases is needed in place of {shown(phrases)}")
        return tuple(map(self.encode, phrases))

    def encode(self, phrase: TextOrPieces) -> TargetPhrase:
        """Return the ids of a text's pieces, or those of the pieces in a list.

        Raises ContradictionError if there are none, or if the vocabulary lacks one.
        """
        ids = self._of_text(phrase) if isinstance(phrase, str) else self._of_pieces(phrase)
        if not ids:
            raise ContradictionError(f"the phrase {shown(phrase)} has no pieces")
        return TargetPhrase(ids, shown(phrase))

    def _of_text(self, text: str) -> Phrase:
        if (reason := why_not_unicode(text)) is not None:
            raise ContradictionError(f"{reason} in the phrase {shown(text)}")
        ids = tuple(self._tokenizer.encode(text, "target"))
        if self._tokenizer.unk_id in ids:
            raise ContradictionError(f"the vocabulary lacks a piece of the phrase {shown(text)}")
        return ids

    def _of_pieces(self, pieces: Sequence[str]) -> Phrase:
        for piece in pieces:
            if piece not in self._ids:
                raise ContradictionError(f"the vocabulary has no piece {shown(piece)}")
        return tuple(self._ids[piece] for piece in pieces)

    @cached_property
    def _ids(self) -> dict[str, int]:
        """The ids of all pieces that outputs may have."""
        ids = range(self._tokenizer.size)
        marks = (self._tokenizer.bos_id, self._tokenizer.eos_id)
        pieces = zip(self._tokenizer.pieces(ids), ids, strict=True)
        return {piece: token for piece, token in pieces if token not in marks}


def shown(phrase: TextOrPieces) -> str:
    """Return ``phrase`` as messages show it; the end of a long one is left out."""
    text = phrase if isinstance(phrase, str) else " ".join(phrase)
    if len(text) > MOST_SHOWN:
        text = f"{text[:MOST_SHOWN]}..."
    return json.dumps(text, ensure_ascii=False).encode(errors="backslashreplace").decode()
