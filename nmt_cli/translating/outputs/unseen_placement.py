"""Puts the runs of characters that a model never saw into a translation.

Each comes to the place that it has in the source: an end, or else beside the word that translates
the one beside it.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from itertools import chain
from operator import itemgetter

from nmt_cli.files.lines import one_line
from nmt_cli.translating.encoding.unseen import (
    CLOSING,
    RunPosition,
    UnseenRun,
    before_spaces,
    behind_spaces,
    have_spaces,
)
from nmt_cli.translating.segmentation.segments import Insertion, Output, Span


def place_runs(source: str, runs: Sequence[UnseenRun], output: Output, least: int = 0) -> Output:
    """Return the translation of ``source`` with its ``runs``, none before the place ``least``.

    ``output`` is that of the text without them. It has the spans of its words if a run is among
    words.
    """
    gaps = [max(least, gap) for gap in _gaps(source, runs, output)]
    text, done, insertions = "", 0, list[Insertion]()
    for gap, run in sorted(zip(gaps, runs, strict=True), key=itemgetter(0)):
        text += output.text[done:gap]
        done = max(done, gap)
        text += _space_before(source, run.begin, text[-1:])
        begin = len(text)
        text += run.text_in(source)
        end, following = len(text), output.text[done : done + 1]
        if run.written and following.isspace() and _goes_on(output, done, run.end):
            done += 1
        elif following and not (following.isspace() or (gap > 0 and following in CLOSING)):
            text += _space_behind(source, run.end, following)
        span = Span(begin, end, run.begin, run.end)
        insertions.append(Insertion(span, gap, moved=len(text) - done))
    text = one_line(text + output.text[done:])
    placed = output._replace(text=text, insertions=insertions, without_runs=output.text)
    # Of each character one, because a tag may be around some of them.
    spans = list(chain.from_iterable(_spans_of(each.span, text, source) for each in insertions))
    for span in output.spans:
        begin, end = placed.place_of(span.begin), placed.end_of(span.end)
        spans.append(span._replace(begin=begin, end=end))
    return placed._replace(spans=sorted(spans))


def _spans_of(whole: Span, text: str, source: str) -> Iterator[Span]:
    begin, end, source_begin, source_end = whole[:4]
    if text[begin:end] != source[source_begin:source_end]:  # the translation of a term
        yield whole
        return
    for n, place in enumerate(range(source_begin, source_end)):
        if not source[place].isspace():
            yield Span(begin + n, begin + n + 1, place, place + 1)


def _gaps(source: str, runs: Sequence[UnseenRun], output: Output) -> Iterator[int]:
    """Yield the place of each run in the text of ``output``.

    It is behind what translates the word before it, or before what translates the word behind it
    if only this one is beside it without a space.
    """
    text = output.text
    words = [place for place, each in enumerate(text) if each.isalnum()] or [0, len(text) - 1]
    at_ends = {
        RunPosition.FIRST: 0,
        RunPosition.BEFORE_WORDS: words[0],
        RunPosition.BEHIND_WORDS: words[-1] + 1,
        RunPosition.LAST: len(text),
    }
    known = [each for each in output.spans if each.source_begin < each.source_end]
    ends = sorted((each.source_end, each.end) for each in known)
    begins = sorted((each.source_begin, each.begin) for each in known)
    for run in runs:
        if run.where in at_ends:
            yield at_ends[run.where]
            continue
        num_before = bisect_right(ends, (run.begin, len(text)))
        number = bisect_left(begins, (run.end, 0))
        behind = source[run.end]
        is_apart = behind.isspace() or behind in CLOSING
        is_of_next = source[run.begin - 1].isspace() and not is_apart
        if num_before and not (is_of_next and number < len(begins)):
            yield ends[num_before - 1][1]
        else:
            yield begins[number][1] if number < len(begins) else len(text)


def _goes_on(output: Output, place: int, source_place: int) -> bool:
    """Return whether the next word behind ``place`` translates that at ``source_place``."""
    number = bisect_left(output.spans, (place,))
    if number == len(output.spans):
        return False
    word = output.spans[number]
    return word.source_begin <= source_place < word.source_end


def _space_before(source: str, place: int, before: str) -> str:
    """Return what separates a run at ``place`` from the character ``before`` it."""
    if not before or before.isspace():
        return ""
    spaces = source[before_spaces(source, place) : place]
    return spaces or _space_between(source[max(0, place - 1) : place], before)


def _space_behind(source: str, place: int, following: str) -> str:
    spaces = source[place : behind_spaces(source, place)]
    return spaces or _space_between(source[place : place + 1], following)


def _space_between(of_source: str, of_output: str) -> str:
    """Return a space if a run is beside a word of the output, but not in the source.

    A script without spaces between words has no such words.
    """
    beside_words = [each.isalnum() and have_spaces(each) for each in (of_source, of_output)]
    return " " if beside_words == [False, True] else ""
