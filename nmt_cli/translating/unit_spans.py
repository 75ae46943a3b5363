"""Where the words of a translation are in its text, and what of the source they attend to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from nmt_cli.corpus.tokenizers.piece_words import units_of_pieces
from nmt_cli.corpus.tokenizers.sentencepiece_tokenizer import SPACE_IN_PIECES
from nmt_cli.recipe.model_settings import TextSettings
from nmt_cli.search.sentences import Hypothesis
from nmt_cli.translating.segments import Span

# Characters in which a piece is looked for if normalization has changed the text before it.
NEAR = 32


def unit_spans(
    hypothesis: Hypothesis,
    target_pieces: Sequence[str],
    source_pieces: Sequence[str],
    settings: TextSettings,
    source: str,
    text_of: Callable[[Hypothesis], str],
) -> list[Span]:
    """Return the spans of the units of an output, whose text is ``text_of`` it, in order.

    ``source`` is the text that was cut into ``source_pieces``. A unit whose place is not certain
    belongs to the unit after it.
    """
    assert hypothesis.attended is not None, "the search was not asked for attention"
    numbers = [number for (number,) in units_of_pieces(source_pieces, settings)]
    places = places_of_pieces(source_pieces, source)
    of_sources: dict[int, tuple[int, int]] = {}
    for number, (begin, end) in zip(numbers, places, strict=True):
        if end > begin:
            first, last = of_sources.get(number, (begin, end))
            of_sources[number] = min(first, begin), max(last, end)
    text, spans = text_of(hypothesis), list[Span]()
    sizes = Counter(number for (number,) in units_of_pieces(target_pieces, settings))
    sources_of: dict[int, list[int]] = {}
    for number, unit in enumerate(hypothesis.attended.attending):
        if number in of_sources:
            sources_of.setdefault(unit, []).append(of_sources[number][0])
    begin = num_tokens = 0
    attending = list[int]()
    for unit, attended in enumerate(hypothesis.attended.units):
        num_tokens += sizes[unit]
        attending += sources_of.get(unit, [])
        end = len(text)
        if num_tokens < len(hypothesis.tokens):
            known = text_of(hypothesis._replace(tokens=hypothesis.tokens[:num_tokens]))
            if not text.startswith(known) or len(known) < begin:
                continue
            end = len(known)
        word = text[begin:end].strip()
        if word:
            at = text.index(word, begin)
            place = of_sources.get(attended, (0, 0))
            spans.append(Span(at, at + len(word), *place, tuple(attending)))
            attending = []
        begin = end
    return spans


def places_of_pieces(pieces: Sequence[str], text: str) -> list[tuple[int, int]]:
    """Return the begin and the end of each piece in ``text``.

    Pieces that normalization has changed share what is between the pieces around them.
    """
    found, at = list[tuple[int, int] | None](), 0
    for piece in pieces:
        content = piece.replace(SPACE_IN_PIECES, " ").strip()
        if not content:  # a space, which is no part of the word after it
            found.append((at, at))
            continue
        place = text.find(content, at, at + NEAR + len(content))
        if place < 0:
            found.append(None)
            continue
        at = place + len(content)
        found.append((place, at))
    places, end = list[tuple[int, int]](), 0
    for number, known in enumerate(found):
        if known is None:
            following = (each for each in found[number:] if each is not None)
            places.append((end, next(following, (len(text), 0))[0]))
        else:
            places.append(known)
            end = known[1]
    return places
