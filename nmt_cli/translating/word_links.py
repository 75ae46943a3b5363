"""Which words of a line the words of its translation attend to."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from nmt_cli.corpus.text.links import Links
from nmt_cli.files.lines import one_line
from nmt_cli.search.sentences import Hypothesis
from nmt_cli.translating.copies import ProtectedText
from nmt_cli.translating.over_long import Part


class WordLinks(NamedTuple):
    """The links of the words of a part of a line, or of a segment."""

    links: Links
    num_sources: int
    num_targets: int
    separator: str = ""  # before it; without white space: it goes on with the last word before it


def links_of_parts(hypotheses: Sequence[Hypothesis], parts: Sequence[Part]) -> Iterator[WordLinks]:
    """Yield, for each part, which source word each word of its output attends to most."""
    for hypothesis, part in zip(hypotheses, parts, strict=True):
        assert hypothesis.attended is not None, "the search was not asked for attention"
        words = hypothesis.attended.words
        links = tuple((source, n) for n, source in enumerate(words))
        yield WordLinks(links, hypothesis.attended.num_source_words, len(words), part.separator)


def links_of_segments(
    sources: Sequence[ProtectedText],
    separators: Iterable[str],
    hypotheses: Sequence[Sequence[Hypothesis]],
    parts: Sequence[Sequence[Part]],
    have_pieces: Callable[[str], list[bool]],
) -> Iterator[WordLinks]:
    """Yield the links of each segment; a kept one is its own translation.

    ``have_pieces`` returns for each word of a text whether the model gets a piece of it.
    """
    for number, (source, separator) in enumerate(zip(sources, separators, strict=True)):
        if source.known is not None:  # nobody knows which of its words belong together
            sizes = (len(source.source.split()), len(source.known.split()))
            of_segment = WordLinks((), *sizes)
        elif source.is_kept:
            of_segment = _links_of_kept(source.source)
        else:
            of_segment = joined_links(links_of_parts(hypotheses[number], parts[number]))
            of_segment = _with_words_without_pieces(of_segment, have_pieces(source.text))
        yield of_segment._replace(separator=separator)


def _links_of_kept(text: str) -> WordLinks:
    words = text.split()
    sources = [number for number, word in enumerate(words) for _ in one_line(word).split()]
    links = tuple((source, target) for target, source in enumerate(sources))
    return WordLinks(links, len(words), len(sources))


def _with_words_without_pieces(of_segment: WordLinks, have_pieces: Sequence[bool]) -> WordLinks:
    """Return ``of_segment`` with numbers that count all words of the source."""
    numbers = [number for number, has_pieces in enumerate(have_pieces) if has_pieces]
    num_without = len(have_pieces) - len(numbers)
    if num_without == 0:
        return of_segment
    links = tuple(
        (numbers[source] if source < len(numbers) else source + num_without, target)
        for source, target in of_segment.links
    )
    return of_segment._replace(links=links, num_sources=of_segment.num_sources + num_without)


def joined_links(every: Iterable[WordLinks]) -> WordLinks:
    """Return the links of a segment or a line whose parts or segments have these."""
    links: list[tuple[int, int]] = []
    num_sources = num_targets = 0
    for each in every:
        num_sources += _num_words_between(num_sources, each.separator)
        num_targets += _num_words_between(num_targets, each.separator)
        links += [(num_sources + source, num_targets + target) for source, target in each.links]
        num_sources += each.num_sources
        num_targets += each.num_targets
    return WordLinks(tuple(dict.fromkeys(links)), num_sources, num_targets)


def _num_words_between(num_words: int, separator: str) -> int:
    """Return the number of words in what follows ``num_words``; -1 if it separates nothing."""
    before = "x" if num_words else ""
    return len(f"{before}{separator}x".split()) - len(f"{before}x")
