"""What outputs attend to: links of words, spans of words in the text, and copies of the source."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from nmt_cli.corpus.text.links import Links
from nmt_cli.corpus.tokenizers.piece_words import units_of_pieces
from nmt_cli.corpus.tokenizers.sentencepiece_tokenizer import SPACE_IN_PIECES
from nmt_cli.corpus.tokenizers.tokenizer import Tokenizer
from nmt_cli.corpus.tokenizers.whitespace_tokenizer import WhitespaceTokenizer
from nmt_cli.files.lines import one_line
from nmt_cli.recipe.model_settings import TextSettings
from nmt_cli.search.rules.phrases import Constraint, Phrase
from nmt_cli.search.sentences import Hypothesis
from nmt_cli.translating.encoding.copies import Copy, Part, ProtectedText
from nmt_cli.translating.outputs.line_job import LineJob
from nmt_cli.translating.segmentation.segments import Output, Span

# Characters in which a piece is looked for if normalization has changed the text before it.
NEAR = 32


class WordLinks(NamedTuple):
    """The links of the words of a part of a line, or of a segment."""

    links: Links
    num_sources: int
    num_targets: int
    separator: str = ""  # before it; without white space: it goes on with the last word before it
    target_separator: str | None = None  # before its translation, where that is another


def links_of_parts(hypotheses: Sequence[Hypothesis], parts: Sequence[Part]) -> Iterator[WordLinks]:
    """Yield, for each part, which source word each word of its output attends to most."""
    for hypothesis, part in zip(hypotheses, parts, strict=True):
        assert hypothesis.attended is not None, "the search was not asked for attention"
        words = hypothesis.attended.words
        links = tuple((source, n) for n, source in enumerate(words))
        yield WordLinks(links, hypothesis.attended.num_source_words, len(words), part.separator)


def links_of_segments(
    job: LineJob, choice: Sequence[Sequence[Hypothesis]], have_pieces: Callable[[str], list[bool]]
) -> Iterator[WordLinks]:
    """Yield the links of each segment of a line, whose parts have the outputs ``choice``.

    A kept segment is its own translation. ``have_pieces`` returns for each word of a text whether
    the model gets a piece of it.
    """
    separators = zip(job.layout.separators, job.layout.target_separators, strict=True)
    for number, (source, separator) in enumerate(zip(job.sources, separators, strict=True)):
        if source.known is not None:  # nobody knows which of its words belong together
            sizes = (len(source.source.split()), len(source.known.split()))
            of_segment = WordLinks((), *sizes)
        elif source.is_kept:
            of_segment = _links_of_kept(source.source)
        else:
            of_segment = joined_links(links_of_parts(choice[number], job.parts_of_each[number]))
            of_segment = _with_words_without_pieces(of_segment, have_pieces(source.text))
        yield of_segment._replace(separator=separator[0], target_separator=separator[1])


def _links_of_kept(text: str) -> WordLinks:
    words = text.split()
    sources = [number for number, word in enumerate(words) for _ in one_line(word).split()]
    links = tuple((source, target) for target, source in enumerate(sources))
    return WordLinks(links, len(words), len(sources))


def _with_words_without_pieces(of_segment: WordLinks, have_pieces: Sequence[bool]) -> WordLinks:
    """Return ``of_segment`` with numbers that count all words of the source, also those cut off."""
    numbers = [number for number, has_pieces in enumerate(have_pieces) if has_pieces]
    num_without = len(have_pieces) - len(numbers)
    links = tuple(
        (numbers[source] if source < len(numbers) else source + num_without, target)
        for source, target in of_segment.links
    )
    num_sources = max(len(have_pieces), of_segment.num_sources + num_without)
    return of_segment._replace(links=links, num_sources=num_sources)


def with_links_of_runs(
    of_segment: WordLinks, source: ProtectedText, output: Output, joiner: str | None
) -> WordLinks:
    """Return the links of a segment with those of the runs that were put into its translation.

    ``of_segment`` has those of the texts without runs.
    """
    sources, targets = _begins(source.source, joiner), _begins(output.text)
    own_sources = [source.source_place(each) for each in _begins(source.text, joiner)]
    own_targets = [output.place_of(each) for each in _begins(output.without_runs)]
    links = [
        (_number(sources, own_sources[i]), _number(targets, own_targets[j]))
        for i, j in of_segment.links
        if i < len(own_sources) and j < len(own_targets)
    ]
    for span, *_ in output.insertions:
        first, last = _number(sources, span.source_begin), _number(sources, span.source_end - 1)
        written = range(_number(targets, span.begin), _number(targets, span.end - 1) + 1)
        links += zip(range(first, last + 1), written, strict=False)
    links.sort(key=lambda link: link[::-1])
    return of_segment._replace(
        links=tuple(links), num_sources=len(sources), num_targets=len(targets)
    )


def _begins(text: str, joiner: str | None = None) -> list[int]:
    """Return where the words of ``text`` begin, whose pieces are joined at ``joiner``."""
    begins, goes_on = list[int](), False
    for piece in re.finditer(r"\S+", text):
        begins += [] if goes_on else [piece.start()]
        goes_on = joiner is not None and piece[0].endswith(joiner)
    return begins


def _number(begins: Sequence[int], place: int) -> int:
    return max(0, bisect_right(begins, place) - 1)


def joined_links(every: Iterable[WordLinks]) -> WordLinks:
    """Return the links of a segment or a line whose parts or segments have these."""
    links: list[tuple[int, int]] = []
    num_sources = num_targets = 0
    for each in every:
        num_sources += _num_words_between(num_sources, each.separator)
        own = each.separator if each.target_separator is None else each.target_separator
        num_targets += _num_words_between(num_targets, own)
        links += [(num_sources + source, num_targets + target) for source, target in each.links]
        num_sources += each.num_sources
        num_targets += each.num_targets
    return WordLinks(tuple(dict.fromkeys(links)), num_sources, num_targets)


def _num_words_between(num_words: int, separator: str) -> int:
    """Return the number of words in what follows ``num_words``; -1 if it separates nothing."""
    before = "x" if num_words else ""
    return len(f"{before}{separator}x".split()) - len(f"{before}x")


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
