"""Writes outputs with spans of their sources in place of the pieces that stand for these."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from nmt_cli.corpus.tokenizers.sentencepiece_tokenizer import SPACE_IN_PIECES
from nmt_cli.corpus.tokenizers.tokenizer import Tokenizer
from nmt_cli.corpus.tokenizers.whitespace_tokenizer import WhitespaceTokenizer
from nmt_cli.search.rules.phrases import Constraint, Phrase
from nmt_cli.search.sentences import Hypothesis
from nmt_cli.translating.copies import Copy
from nmt_cli.translating.over_long import Part
from nmt_cli.translating.unit_spans import places_of_pieces


class _Place(NamedTuple):
    """Where pieces that stand for a span are in an output."""

    begin: int
    end: int
    forms: Constraint


class CopiedOutputs:
    """Writes outputs of one tokenizer."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._have_spaces = isinstance(tokenizer, WhitespaceTokenizer)

    def written(
        self,
        hypothesis: Hypothesis,
        part: Part,
        text_of: Callable[[Hypothesis], str],
    ) -> str:
        """Return the text of an output, in which spans of ``part`` replace the pieces for them.

        ``part`` is the source of the output, and ``text_of`` decodes it.
        """
        whole = text_of(hypothesis)
        places = _occurrences(hypothesis.tokens, part.copies)
        texts = self._texts(hypothesis, part, places)
        written, done = "", 0
        for (begin, end, _), text in zip(places, texts, strict=True):
            if text is None:
                continue
            before = text_of(hypothesis._replace(tokens=hypothesis.tokens[:begin]))
            known = text_of(hypothesis._replace(tokens=hypothesis.tokens[:end]))
            if not (done <= len(before) <= len(known) and whole.startswith(known)):
                continue
            (first,) = self._tokenizer.pieces(hypothesis.tokens[begin : begin + 1])
            starts_word = self._have_spaces or first.startswith(SPACE_IN_PIECES)
            is_spaced = starts_word and known[len(before) : len(before) + 1].isspace()
            written += whole[done : len(before)] + " " * is_spaced + text
            done = len(known)
        return written + whole[done:]

    def _texts(
        self,
        hypothesis: Hypothesis,
        part: Part,
        places: Sequence[_Place],
    ) -> list[str | None]:
        """Return the text for each of ``places``; None if its pieces are written as this text.

        Of several spans with the same pieces, the one that a place attends to comes there.
        """
        waiting = defaultdict[Constraint, list[Copy]](list)
        for copy in part.copies:
            waiting[copy.forms].append(copy)
        attended = list(self._attended(hypothesis, part))
        texts = list[str | None]()
        for begin, end, forms in places:
            among = waiting[forms]
            own = [copy for copy in attended[begin:end] if copy in among]
            if len({copy.text for copy in among}) == 1 and among[0].is_exact:
                texts.append(None)
            elif among:
                copy = own[0] if own else among[0]
                among.remove(copy)
                texts.append(copy.text)
            else:
                texts.append(None)
        return texts

    def _attended(self, hypothesis: Hypothesis, part: Part) -> Iterator[Copy | None]:
        """Yield, for each token of an output, the span that it attends to, if there is one."""
        if hypothesis.attended is None:
            return
        places = places_of_pieces(self._tokenizer.pieces(part.tokens, "source"), part.text)
        for token in hypothesis.attended.tokens:
            begin = places[token][0] if token < len(places) else -1
            inside = (copy for copy in part.copies if copy.begin <= begin < copy.end)
            yield next(inside, None)


def _occurrences(tokens: Phrase, copies: Sequence[Copy]) -> list[_Place]:
    """Return where pieces of ``copies`` are in ``tokens``: the longest ones that come first."""
    by_first = defaultdict[int, list[tuple[Phrase, Constraint]]](list)
    for forms in dict.fromkeys(copy.forms for copy in copies if copy.forms):
        for form in forms:
            by_first[form.ids[0]].append((form.ids, forms))
    found, place = list[_Place](), 0
    while place < len(tokens):
        fitting = [
            (place + len(ids), forms)
            for ids, forms in by_first.get(tokens[place], ())
            if tokens[place : place + len(ids)] == ids
        ]
        if fitting:
            end, forms = max(fitting, key=lambda each: each[0])
            found.append(_Place(place, end, forms))
            place = end
        else:
            place += 1
    return found
