"""What is wanted for the output of each line, as sentences for the search."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any, NamedTuple

from nmt_cli.corpus.tokenizers.tokenizer import Tokenizer
from nmt_cli.files.lines import why_not_unicode
from nmt_cli.messages.errors import UserError
from nmt_cli.recipe.search_ranges import LENGTH_PENALTY, MOST_SAMPLES
from nmt_cli.search.beams import SearchSettings
from nmt_cli.search.rules.phrases import (
    BANNED,
    FORCED_PREFIX,
    MOST_PHRASES,
    MOST_PIECES,
    REQUIRED,
    Phrase,
    Phrases,
    completion_of,
)
from nmt_cli.search.sampling import Sampling
from nmt_cli.search.sentences import Sentence
from nmt_cli.translating.output_limits import OutputLimits
from nmt_cli.translating.request import Constraints, Request, TextOrPieces

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


NOTHING_FOUND = "the search found no translation that all its rules allow"
NO_PLACE = "it is too long for one part, and its required phrases have no certain part"
PARSES = "this model parses; of all rules about the output only --max-length is possible"


class Wanted(NamedTuple):
    """What is wanted for a line, or why that is impossible."""

    line: int = 0  # its number, for sampling
    n_best: int = 1  # how many outputs
    beam_size: int | None = None  # None: that of the search
    length_penalty: float | None = None
    shortest: int = 0  # pieces that the longest output must allow
    prefix: Phrase = ()
    required: Phrases | None = None
    banned: Phrases | None = None
    error: str | None = None

    @property
    def rule_data(self) -> dict[str, Any]:
        """The data of the rules about phrases."""
        data = {
            FORCED_PREFIX: self.prefix or None,
            REQUIRED: self.required,
            BANNED: self.banned,
        }
        return {name: each for name, each in data.items() if each is not None}


class Bounds(NamedTuple):
    """What lines ask for by default, and the most that they can ask for."""

    n_best: int  # by default
    most: int  # n best
    beam_size: int | None  # None: lines cannot choose
    prefix: int  # pieces

    @classmethod
    def of(cls, search: SearchSettings, n_best: int, prefix: int, *, is_sampled: bool) -> Bounds:
        """Return the bounds for lines of a search; samples are ``n_best`` searches."""
        if is_sampled:
            return cls(n_best, MOST_SAMPLES, None, prefix)
        return cls(n_best, search.beam_size, search.beam_size, prefix)


class Marks(NamedTuple):
    """The tokens around every source."""

    tag: Sequence[int] = ()
    end: Sequence[int] = ()


class WantedOutputs:
    """Makes the sentences of each line, with all that the search needs to know of them."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        limits: OutputLimits,
        constraints: Constraints,
        bounds: Bounds,
        marks: Marks,
        *,
        sampling: Sampling | None = None,
        is_parser: bool = False,
    ) -> None:
        """Raises UserError if ``constraints`` do not suit the model or contradict each other."""
        self._limits, self._constraints, self._bounds = limits, constraints, bounds
        self._marks, self._sampling, self._is_parser = marks, sampling, is_parser
        self._phrases = TargetPhrases(tokenizer)
        if is_parser and constraints.more_than_max_length():
            raise UserError(f"{PARSES}.")
        try:
            self._required = self._phrases.encode_all(constraints.required)
            self._banned = self._phrases.encode_all(constraints.banned)
            self._banned_by_all = Phrases(phrase.ids for phrase in self._banned)
            self._prefix = self._phrases.encode_all(_given(constraints.prefix))
            self._for_all = self._checked(self._prefix, self._required, self._banned)
        except ContradictionError as error:
            raise UserError(f"{error}; change one of these options.") from None
        # Whether the sentences made so far have data of rules about phrases.
        self.has_phrases = bool(self._for_all.rule_data)

    def wanted(self, request: Request) -> Wanted:
        """Return what is wanted for a line, or why it is impossible."""
        error = request.error or self._error_in_numbers(request)
        if error is not None:
            return Wanted(error=error)
        wanted = self._for_all
        if request.prefix is not None or request.required or request.banned:
            try:
                wanted = self._for_line(request)
            except ContradictionError as contradiction:
                return Wanted(error=str(contradiction))
        return wanted._replace(
            line=request.line or 0,
            n_best=self._bounds.n_best if request.n_best is None else request.n_best,
            beam_size=request.beam_size,
            length_penalty=request.length_penalty,
        )

    def _error_in_numbers(self, request: Request) -> str | None:
        beam_size, most = request.beam_size, self._bounds.most
        if beam_size is not None:
            if self._bounds.beam_size is None:
                return "beam_size is not for samples"
            if not 1 <= beam_size <= self._bounds.beam_size:
                return (
                    f"beam_size must be from 1 to that of all lines, {self._bounds.beam_size:,}, "
                    f"but is {beam_size}"
                )
            most = beam_size
        n_best = self._bounds.n_best if request.n_best is None else request.n_best
        if not 1 <= n_best <= most:
            of_beam = "" if self._bounds.beam_size is None else ", the beam size"
            return f"n_best must be from 1 to {most:,}{of_beam}, but is {n_best}"
        alpha = request.length_penalty
        if alpha is not None and not LENGTH_PENALTY.holds(alpha):
            return f"length_penalty must be {LENGTH_PENALTY}, but is {alpha}"
        return None

    def sentences(
        self, parts: Sequence[Sequence[int]], words: Sequence[str], wanted: Wanted
    ) -> list[Sentence]:
        """Return what is searched for a line: a sentence for each part, or samples of each.

        ``parts`` are the pieces of each part, and ``words`` the leaves of its tree. The prefix is
        that of the first part. An output may be as long as its minimum length, its prefix and its
        required phrases need.
        """
        of_phrases, sentences = wanted.rule_data, list[Sentence]()
        self.has_phrases = self.has_phrases or bool(of_phrases)
        for part in parts:
            tokens = [*self._marks.tag, *part]
            longest, of_trees = self._limits.of_source(len(tokens), words)
            sentence = Sentence(
                [*tokens, *self._marks.end],
                max(longest, wanted.shortest),
                {**of_trees, **of_phrases},
                wanted.n_best,
                beam_size=wanted.beam_size,
                length_penalty=wanted.length_penalty,
            )
            sentences.append(sentence)
            of_phrases.pop(FORCED_PREFIX, None)
        if self._sampling is not None:
            return self._sampling.samples_of(sentences, wanted.line, wanted.n_best)
        return sentences

    def have_rules_for(self, wanted: Wanted) -> bool:
        """Return whether rules restrict the output of a line."""
        rules = self._constraints.min_length, self._constraints.no_repeat_ngram, wanted.rule_data
        return any(rules)

    def _for_line(self, request: Request) -> Wanted:
        if self._is_parser:
            if request.prefix or request.required or request.banned:
                raise ContradictionError(PARSES)
            return self._for_all
        prefix = self._prefix
        if request.prefix is not None:
            prefix = self._phrases.encode_all(_given(request.prefix))
        required = (*self._required, *self._phrases.encode_all(request.required))
        banned = (*self._banned, *self._phrases.encode_all(request.banned))
        return self._checked(prefix, required, banned)

    def _checked(
        self,
        prefix: tuple[TargetPhrase, ...],  # one or none
        required: tuple[TargetPhrase, ...],
        banned: tuple[TargetPhrase, ...],
    ) -> Wanted:
        """Return what is wanted. Raises ContradictionError if it contradicts itself."""
        start = prefix[0].ids if prefix else ()
        all_required = Phrases(phrase.ids for phrase in required)
        shortest = self._shortest(start, all_required.phrases)
        named = [(f"the prefix {phrase.shown}", phrase) for phrase in prefix]
        named += [(f"the required phrase {phrase.shown}", phrase) for phrase in required]
        for name, phrase in named:
            self._refuse_forbidden(name, phrase, banned)
        return Wanted(
            shortest=shortest,
            prefix=start,
            required=all_required if required else None,
            banned=self._banned_phrases(banned),
        )

    def _banned_phrases(self, banned: tuple[TargetPhrase, ...]) -> Phrases | None:
        if not banned:
            return None
        is_shared = banned == self._banned
        return self._banned_by_all if is_shared else Phrases(phrase.ids for phrase in banned)

    def _refuse_forbidden(
        self, name: str, phrase: TargetPhrase, banned: tuple[TargetPhrase, ...]
    ) -> None:
        for other in banned:
            if phrase.contains(other.ids):
                raise ContradictionError(f"{name} contains the banned phrase {other.shown}")
        n = self._constraints.no_repeat_ngram
        if n is not None and phrase.repeats(n):
            raise ContradictionError(f"{name} breaks the rule --no-repeat-ngram {n}")

    def _shortest(self, prefix: Phrase, required: tuple[Phrase, ...]) -> int:
        """Return how many pieces the shortest output has."""
        num_pieces = sum(map(len, required))
        if len(required) > MOST_PHRASES or num_pieces > MOST_PIECES:
            raise ContradictionError(
                f"at most {MOST_PHRASES} phrases of {MOST_PIECES} pieces together can be required, "
                f"but there are {len(required)} of {num_pieces:,}"
            )
        of_phrases = len(prefix)
        if required:
            of_phrases += completion_of(required).num_missing(prefix)
        longest = self._limits.longest
        if longest is not None:
            allowed = f"but an output has at most {longest:,}"
            if of_phrases > longest:
                raise ContradictionError(
                    f"the prefix and the required phrases need {of_phrases:,} pieces, {allowed}"
                )
            if self._constraints.min_length > longest:
                raise ContradictionError(
                    f"--min-length asks for {self._constraints.min_length:,} pieces, {allowed}"
                )
        if len(prefix) > self._bounds.prefix:
            raise ContradictionError(
                f"the prefix has {len(prefix):,} pieces, but only {self._bounds.prefix:,} are "
                "possible"
            )
        return max(of_phrases, self._constraints.min_length)


def _given(prefix: str | Sequence[str]) -> list[str | Sequence[str]]:
    """Return a list with ``prefix``, or an empty one if it is blank."""
    is_blank = not prefix or (isinstance(prefix, str) and not prefix.strip())
    return [] if is_blank else [prefix]
