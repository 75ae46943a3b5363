"""Which words of a line the words of its translation attend to."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from nmt_cli.corpus.text.links import Links
from nmt_cli.files.lines import one_line
from nmt_cli.search.beams import Hypothesis
from nmt_cli.translating.copies import ProtectedText
from nmt_cli.translating.over_long import Part


class WordLinks(NamedTuple):
    """The links of the words of a part of a line, or of a segment that is kept."""

    links: Links
    num_sources: int
    num_targets: int
    separator: str  # before it; "": it goes on with the last word before it


def links_of_parts(hypotheses: Sequence[Hypothesis], parts: Sequence[Part]) -> Iterator[WordLinks]:
    """Yield, for each part, which source word each word of its output attends to most."""
    for hypothesis, part in zip(hypotheses, parts, strict=True):
        assert hypothesis.attended is not None, "the search was not asked for attention"
        words = hypothesis.attended.words
        links = tuple((source, n) for n, source in enumerate(words))
        yield WordLinks(links, hypothesis.attended.num_source_words, len(words), part.separator)


def links_of_segments(
    sources: Sequence[ProtectedText],
    separators: Sequence[str],
    hypotheses: Sequence[Sequence[Hypothesis]],
    parts: Sequence[Sequence[Part]],
) -> Iterator[WordLinks]:
    """Yield the links of the parts of each segment; a kept one is its own translation."""
    for number, (source, separator) in enumerate(zip(sources, separators, strict=True)):
        if not source.is_kept:
            yield from links_of_parts(hypotheses[number], parts[number])
            continue
        num_words = len(one_line(source.source).split())
        links = tuple((place, place) for place in range(num_words))
        yield WordLinks(links, num_words, num_words, separator)


def joined_links(every: Iterable[WordLinks]) -> Links:
    """Return the links of a line whose parts and segments have these."""
    links: list[tuple[int, int]] = []
    num_sources = num_targets = 0
    for each in every:
        if each.separator == "":
            num_sources, num_targets = max(0, num_sources - 1), max(0, num_targets - 1)
        links += [(num_sources + source, num_targets + target) for source, target in each.links]
        num_sources += each.num_sources
        num_targets += each.num_targets
    return tuple(links)
