"""Phrases of outputs as the search takes them: the ids of their pieces."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np

from nmt_cli.corpus.text.glossary import is_in_word
from nmt_cli.corpus.tokenizers.normalization import SIDES
from nmt_cli.corpus.tokenizers.sentencepiece_tokenizer import BYTE_PIECE, SPACE_IN_PIECES
from nmt_cli.corpus.tokenizers.tokenizer import Tokenizer
from nmt_cli.corpus.tokenizers.whitespace_tokenizer import WhitespaceTokenizer
from nmt_cli.files.lines import why_not_unicode
from nmt_cli.messages.errors import NoTextError
from nmt_cli.model.compiled.c_library import Array
from nmt_cli.search.rules import phrases as phrase_rules
from nmt_cli.search.rules.phrases import Constraint, Phrase, PhraseForm
from nmt_cli.translating.interface.request import AnyOf, LineError, TextOrPieces

# What a vocabulary calls pieces that stand for other text, such as <ph>, <url>, [PH1] or ⟨num⟩.
PLACEHOLDER = re.compile(r"[<⟨｟\[{@_]+([A-Za-z]+)[-_]?\d*[>⟩｠\]}@_]+")
MOST_SHOWN = 80  # characters


class TargetPhrase(NamedTuple):
    """The ids of a phrase, and the phrase as messages show it."""

    ids: Phrase
    shown: str
    ends_in_a_word: bool = False  # so that a next piece may continue its last word

    @property
    def form(self) -> PhraseForm:
        """The phrase as the search takes it."""
        return PhraseForm(self.ids, self.ends_in_a_word)

    def contains(self, other: Phrase) -> bool:
        """Return whether ``other`` occurs in it."""
        starts = range(len(self.ids) - len(other) + 1)
        return any(self.ids[start : start + len(other)] == other for start in starts)

    def repeats(self, n: int) -> bool:
        """Return whether some ``n`` pieces in a row occur in it twice."""
        ngrams = [self.ids[start : start + n] for start in range(len(self.ids) - n + 1)]
        return len(set(ngrams)) < len(ngrams)


OneOf = tuple[TargetPhrase, ...]  # at least one of them is required


class TargetPhrases:
    """Encodes phrases with one tokenizer."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer

    def encode_all(self, phrases: Iterable[TextOrPieces]) -> tuple[TargetPhrase, ...]:
        """Return the ids of the pieces of each phrase.

        Raises LineError also if ``phrases`` is one text and not a list.
        """
        _refuse_text(phrases)
        return tuple(map(self.encode, phrases))

    def encode_prefix(self, prefix: TextOrPieces) -> tuple[TargetPhrase, ...]:
        """Return the ids of the pieces of ``prefix``; none if it is blank."""
        is_blank = not prefix or (isinstance(prefix, str) and not prefix.strip())
        return () if is_blank else (self.encode(prefix),)

    def encode_constraints(self, required: Iterable[TextOrPieces | AnyOf]) -> tuple[OneOf, ...]:
        """Return the phrases of each constraint; those that cannot be encoded are left out.

        Raises LineError if a constraint has no other, or if ``required`` is one text.
        """
        _refuse_text(required)
        return tuple(map(self._encode_constraint, required))

    def _encode_constraint(self, constraint: TextOrPieces | AnyOf) -> OneOf:
        if not isinstance(constraint, AnyOf):
            return (self.encode(constraint),)
        encoded, reason = [], LineError("any_of has no phrases")
        for phrase in constraint.phrases:
            try:
                encoded.append(self.encode(phrase))
            except LineError as error:
                reason = error
        if not encoded:
            raise reason
        return tuple(dict.fromkeys(encoded))

    def encode(self, phrase: TextOrPieces) -> TargetPhrase:
        """Return the ids of a text's pieces, or those of the pieces in a list.

        Raises LineError if there are none, or if the vocabulary lacks one.
        """
        ids = self._of_text(phrase) if isinstance(phrase, str) else self._of_pieces(phrase)
        if not ids:
            raise LineError(f"the phrase {shown(phrase)} has no pieces")
        ends_in_a_word = isinstance(phrase, str) and is_in_word(phrase.rstrip()[-1:])
        return TargetPhrase(ids, shown(phrase), ends_in_a_word)

    def _of_text(self, text: str) -> Phrase:
        if (reason := why_not_unicode(text)) is not None:
            raise LineError(f"{reason} in the phrase {shown(text)}")
        ids = tuple(self._tokenizer.encode(text, "target"))
        if self._tokenizer.unk_id in ids:
            raise LineError(f"the vocabulary lacks a piece of the phrase {shown(text)}")
        return ids

    def _of_pieces(self, pieces: Sequence[str]) -> Phrase:
        for piece in pieces:
            if piece not in self._ids:
                raise LineError(f"the vocabulary has no piece {shown(piece)}")
        return tuple(self._ids[piece] for piece in pieces)

    def forms_of_copy(self, text: str, *, is_spaced: bool, goes_on: bool) -> Constraint:
        """Return the pieces of ``text``, a part of a source; ``<unk>`` may be one of them.

        ``is_spaced`` says whether a space or nothing comes before it in the source: otherwise there
        is a second form, without a space. ``goes_on`` says whether it ends within a word there.
        """
        ids = tuple(self._tokenizer.encode(text, "target"))
        forms, pieces = [ids] if ids else [], self._pieces
        if ids and not is_spaced and pieces[ids[0]].startswith(SPACE_IN_PIECES):
            rest = pieces[ids[0]].removeprefix(SPACE_IN_PIECES)
            first = self._ids.get(rest)
            if rest and first is not None:
                forms.append((first, *ids[1:]))
            elif not rest and len(ids) > 1:
                forms.append(ids[1:])
        return tuple(PhraseForm(form, is_text=not goes_on) for form in forms)

    def continues(self, character: str) -> bool:
        """Return whether the pieces of ``character`` continue the word before; bytes always do."""
        pieces = self._tokenizer.pieces(self._tokenizer.encode(character, "target"))
        return _continues("".join(pieces).removeprefix(SPACE_IN_PIECES))

    @cached_property
    def placeholders(self) -> Mapping[str, Sequence[str]]:
        """The pieces that may stand for other text, such as ``<ph>`` and ``<url>``, by name."""
        found = defaultdict[str, list[str]](list)
        for piece in self._pieces:
            match = PLACEHOLDER.fullmatch(piece)
            if match is not None and self._is_one_piece(piece):
                found[match[1].lower()].append(piece)
        return {name: tuple(pieces) for name, pieces in found.items()}

    def _is_one_piece(self, piece: str) -> bool:
        """Return whether a text of this piece is cut into it alone, on both sides."""
        for side in SIDES:
            ids = self._tokenizer.encode(piece, side)
            found = [each for each in self._tokenizer.pieces(ids, side) if each != SPACE_IN_PIECES]
            if [each.removeprefix(SPACE_IN_PIECES) for each in found] != [piece]:
                return False
        return True

    @property
    def have_spaces(self) -> bool:
        """Whether spaces separate all pieces, as in text in pieces."""
        return isinstance(self._tokenizer, WhitespaceTokenizer)

    @cached_property
    def continuing(self) -> Array | None:
        """Which pieces continue the word of the piece before.

        None for models of text in pieces: there the joiner of the piece before continues a word.
        """
        if self.have_spaces:
            return None
        return np.array([_continues(piece) for piece in self._pieces], np.bool_)

    @cached_property
    def _pieces(self) -> list[str]:
        """The pieces of all ids; those without text are empty."""
        ids = range(self._tokenizer.size)
        try:
            return self._tokenizer.pieces(ids)
        except NoTextError:
            return [self._piece(token) for token in ids]

    def _piece(self, token: int) -> str:
        try:
            return self._tokenizer.pieces([token])[0]
        except NoTextError:
            return ""

    @cached_property
    def _ids(self) -> dict[str, int]:
        """The ids of all pieces that outputs may have."""
        marks = (self._tokenizer.bos_id, self._tokenizer.eos_id)
        ids = ((piece, token) for token, piece in enumerate(self._pieces) if piece)
        return {piece: token for piece, token in ids if token not in marks}


def _refuse_text(phrases: object) -> None:
    """Raise LineError if ``phrases`` is one text and not a list."""
    if isinstance(phrases, str):
        raise LineError(f"a list of phrases is needed in place of {shown(phrases)}")


def _continues(piece: str) -> bool:
    return is_in_word(piece[:1]) or BYTE_PIECE.match(piece) is not None


def shown(phrase: TextOrPieces) -> str:
    """Return ``phrase`` as messages show it; the end of a long one is left out."""
    text = phrase if isinstance(phrase, str) else " ".join(phrase)
    if len(text) > MOST_SHOWN:
        text = f"{text[:MOST_SHOWN]}..."
    return json.dumps(text, ensure_ascii=False).encode(errors="backslashreplace").decode()


def refuse_many(phrases: Sequence[Phrase]) -> None:
    """Raise LineError if ``phrases`` are more than a search can require."""
    if phrase_rules.are_too_many(phrases):
        raise LineError(
            f"at most {phrase_rules.MOST_PHRASES} phrases of {phrase_rules.MOST_PIECES} pieces "
            f"together can be required, but there are {len(phrases)} of {sum(map(len, phrases)):,}"
        )
