"""Writes outputs with spans of their sources in place of the pieces that stand for these."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence

from nmt_cli.corpus.tokenizers.sentencepiece_tokenizer import SPACE_IN_PIECES
from nmt_cli.corpus.tokenizers.tokenizer import Tokenizer
from nmt_cli.corpus.tokenizers.whitespace_tokenizer import WhitespaceTokenizer
from nmt_cli.search.rules.phrases import Constraint, Phrase
from nmt_cli.search.sentences import Hypothesis
from nmt_cli.translating.copies import Copy
from nmt_cli.translating.over_long import Part
from nmt_cli.translating.unit_spans import places_of_pieces


def with_copies(
    tokenizer: Tokenizer, hypothesis: Hypothesis, part: Part, text_of: Callable[[Hypothesis], str]
) -> str:
    """Return the text of an output, in which spans of ``part`` replace the pieces for them.

    ``part`` is the source of the output, and ``text_of`` decodes it.
    """
    whole, have_spaces = text_of(hypothesis), isinstance(tokenizer, WhitespaceTokenizer)
    written, done = "", 0
    for begin, end, text in _texts(tokenizer, hypothesis, part):
        before = text_of(hypothesis._replace(tokens=hypothesis.tokens[:begin]))
        known = text_of(hypothesis._replace(tokens=hypothesis.tokens[:end]))
        if not (done <= len(before) <= len(known) and whole.startswith(known)):
            continue
        (first,) = tokenizer.pieces(hypothesis.tokens[begin : begin + 1])
        starts_word = have_spaces or first.startswith(SPACE_IN_PIECES)
        is_spaced = starts_word and known[len(before) : len(before) + 1].isspace()
        written += whole[done : len(before)] + " " * is_spaced + text
        done = len(known)
    return written + whole[done:]


def _texts(
    tokenizer: Tokenizer, hypothesis: Hypothesis, part: Part
) -> Iterator[tuple[int, int, str]]:
    """Yield the first and the last place of pieces that a text replaces, and this text.

    Of several spans with the same pieces, the one that a place attends to comes there.
    """
    waiting = defaultdict[Constraint, list[Copy]](list)
    for copy in part.copies:
        waiting[copy.forms].append(copy)
    attended = list(_attended(tokenizer, hypothesis, part))
    for begin, end, forms in _occurrences(hypothesis.tokens, part.copies):
        among = waiting[forms]
        is_written = len({copy.text for copy in among}) == 1 and among[0].is_exact
        if among and not is_written:
            own = [copy for copy in attended[begin:end] if copy in among]
            copy = own[0] if own else among[0]
            among.remove(copy)
            yield begin, end, copy.text


def _attended(tokenizer: Tokenizer, hypothesis: Hypothesis, part: Part) -> Iterator[Copy | None]:
    """Yield, for each token of an output, the span that it attends to, if there is one."""
    if hypothesis.attended is None:
        return
    places = places_of_pieces(tokenizer.pieces(part.tokens, "source"), part.text)
    for token in hypothesis.attended.tokens:
        begin = places[token][0] if token < len(places) else -1
        yield next((copy for copy in part.copies if copy.begin <= begin < copy.end), None)


def _occurrences(tokens: Phrase, copies: Sequence[Copy]) -> Iterator[tuple[int, int, Constraint]]:
    """Yield where pieces of ``copies`` are in ``tokens``: the longest ones that come first."""
    by_first = defaultdict[int, list[tuple[Phrase, Constraint]]](list)
    for forms in dict.fromkeys(copy.forms for copy in copies if copy.forms):
        for form in forms:
            by_first[form.ids[0]].append((form.ids, forms))
    place = 0
    while place < len(tokens):
        fitting = [
            (place + len(ids), forms)
            for ids, forms in by_first.get(tokens[place], ())
            if tokens[place : place + len(ids)] == ids
        ]
        if fitting:
            end, forms = max(fitting, key=lambda each: each[0])
            yield place, end, forms
            place = end
        else:
            place += 1
