"""Puts inline elements around the words of a translation that their words became."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from nmt_cli.translating.markup.blocks import Block, Inline
from nmt_cli.translating.segments import Output, Segments, Span

# What words count that are inside of an element and do not belong to it. A word that does counts 1,
# so "a, b" stays one element if the comma belongs to none, but not if it belongs to another one.
OF_NO_ELEMENT, OF_ANOTHER = -0.9, -2.0


class _Cell(NamedTuple):
    """A piece of a translation, as it is written; a word, or what is between words."""

    raw: str
    of: Inline | None = None  # the innermost element that the word belongs to
    begin: int = 0  # of its source, in the text of the block
    end: int = 0
    others: tuple[Inline, ...] = ()  # elements of words that no other word attends to more


_Word = tuple[int, _Cell]  # the place of a word among the cells


class _Interval(NamedTuple):
    """The cells of an element, from ``first`` to before ``last``."""

    first: int
    last: int
    of: Inline


def filled_block(block: Block, segments: Segments, outputs: Sequence[Output]) -> str:
    """Return the source of ``block`` with the translations of its segments."""
    cells = list(_cells(block, segments, outputs))
    if not block.root.children:
        return "".join(cell.raw for cell in cells)
    return "".join(_Writer(block, cells).written(block.root, 0, len(cells)))


def _cells(block: Block, segments: Segments, outputs: Sequence[Output]) -> Iterator[_Cell]:
    innermost = [block.root] * len(block.text)
    _mark(block.root, innermost)
    place = len(segments.gaps[0])
    yield _Cell(_raw_text(block, 0, place))
    for text, gap, output in zip(segments.texts, segments.gaps[1:], outputs, strict=True):
        written = 0
        for span in output.spans or [Span(0, len(output.text), 0, len(text))]:
            begin, end = place + span.source_begin, place + span.source_end
            yield _Cell(block.written(output.text[written : span.begin]))
            word = block.written(output.text[span.begin : span.end])
            others = tuple(innermost[place + each] for each in span.attending)
            yield _Cell(word, innermost[(begin + end) // 2], begin, end, others)
            written = span.end
        yield _Cell(block.written(output.text[written:]))
        place += len(text)
        yield _Cell(_raw_text(block, place, place + len(gap)))
        place += len(gap)


def _mark(inline: Inline, innermost: list[Inline]) -> None:
    for child in inline.children:
        innermost[child.begin : child.end] = [child] * (child.end - child.begin)
        _mark(child, innermost)


def _raw_text(block: Block, begin: int, end: int) -> str:
    """Return a part of a block's text as it is in the source."""
    raw = []
    while begin < end:
        source, following = block.raw_of.get(begin, (None, begin + 1))
        raw.append(block.written(block.text[begin]) if source is None else source)
        begin = following
    return "".join(raw)


class _Writer:
    """Writes the cells of a block with its inline elements between them."""

    def __init__(self, block: Block, cells: Sequence[_Cell]) -> None:
        self._text, self._cells = block.text, [cell for cell in cells if cell.raw]

    def written(self, node: Inline, first: int, last: int) -> Iterator[str]:
        """Yield the cells from ``first`` to before ``last``, which are those of ``node``."""
        last = min(last, len(self._cells))
        within = enumerate(self._cells[first:last], first)
        words = [(place, cell) for place, cell in within if cell.of is not None]
        intervals = self._intervals(node, words, (first, last))
        placed = {interval.of for interval in intervals}
        points = [
            (self._gap(child, (first, last), words, intervals), child)
            for child in node.children
            if child not in placed
        ]
        points.sort(key=lambda point: point[0])  # of equal gaps in the order of the source
        place, waiting = first, list(reversed(points))
        for interval in [*intervals, _Interval(last, last, node)]:
            while waiting and waiting[-1][0] <= interval.first:
                gap, child = waiting.pop()
                yield from (cell.raw for cell in self._cells[place:gap])
                place = gap
                yield from self._point(child, place)
            yield from (cell.raw for cell in self._cells[place : interval.first])
            place = interval.last
            if interval.of is not node:
                yield interval.of.raw
                yield from self.written(interval.of, interval.first, interval.last)
                yield interval.of.end_tag

    def _intervals(
        self, node: Inline, words: Sequence[_Word], around: tuple[int, int]
    ) -> list[_Interval]:
        """Return disjoint cells for each child of ``node`` that has ``words``, in order."""
        owners = [(place, _child_of(node, cell.of)) for place, cell in words]
        counts = Counter(child for _, child in owners if child is not None)
        intervals = list[_Interval]()
        for child in sorted(counts, key=lambda each: -counts[each]):
            if self._is_all(child, node):
                whole = _Interval(words[0][0], words[-1][0] + 1, child)
                return self._with_spaces([whole], around)
            if (found := _best(child, owners, intervals)) is not None:
                intervals.append(found)
        placed = {interval.of for interval in intervals}
        for place, cell in words:
            for other in (_child_of(node, each) for each in cell.others):
                is_free = all(not each.first <= place < each.last for each in intervals)
                if other is not None and other not in placed and is_free:
                    intervals.append(_Interval(place, place + 1, other))
                    placed.add(other)
        return self._with_spaces(sorted(intervals, key=lambda interval: interval.first), around)

    def _with_spaces(
        self, intervals: Sequence[_Interval], around: tuple[int, int]
    ) -> list[_Interval]:
        """Return ``intervals`` with the white space that their elements begin or end with."""
        spaced, (at, last) = list[_Interval](), around
        nexts = [*(interval.first for interval in intervals[1:]), last]
        for (first, end, child), following in zip(intervals, nexts, strict=False):
            if self._text[child.begin].isspace() and first > at and self._is_space(first - 1):
                first -= 1
            if self._text[child.end - 1].isspace() and end < following and self._is_space(end):
                end += 1
            spaced.append(_Interval(first, end, child))
            at = end
        return spaced

    def _is_space(self, place: int) -> bool:
        return self._cells[place].raw.isspace()

    def _is_all(self, child: Inline, node: Inline) -> bool:
        around = self._text[node.begin : child.begin] + self._text[child.end : node.end]
        return not around.strip()

    def _gap(
        self,
        point: Inline,
        around: tuple[int, int],
        words: Sequence[_Word],
        intervals: Sequence[_Interval],
    ) -> int:
        """Return before which cell to write ``point``, which has no words here."""
        node, at = point.parent, point.begin
        assert node is not None
        first, last = around
        if not self._text[node.begin : at].strip():
            return first
        if not self._text[point.end : node.end].strip():
            return last
        before = [(cell.end, place + 1) for place, cell in words if cell.end <= at]
        after = [(cell.begin, place) for place, cell in words if cell.begin >= at]
        gap = max(before)[1] if before else min(after)[1] if after else last
        for interval in intervals:
            if interval.first < gap < interval.last:
                return interval.last
        return gap

    def _point(self, point: Inline, place: int) -> Iterator[str]:
        """Yield what has no words here; around what is visible, with spaces as in the source."""
        begins, ends = point.begin, point.end
        is_after_space = self._text[max(0, begins - 1) : begins].isspace()
        if is_after_space and place > 0 and not self._cells[place - 1].raw[-1:].isspace():
            following = self._cells[place].raw if place < len(self._cells) else ""
            if len(following) > 1 and following.isspace():
                yield following[0]
                self._cells[place] = _Cell(following[1:])
            elif point.is_visible:
                yield " "
        yield from _without_words(point)
        is_before_space = point.is_visible and self._text[ends : ends + 1].isspace()
        if is_before_space and place < len(self._cells):
            yield "" if self._cells[place].raw[0].isspace() else " "


def _child_of(node: Inline, inner: Inline | None) -> Inline | None:
    """Return the child of ``node`` that ``inner`` is in, or is itself."""
    while inner is not None and inner.parent is not node:
        inner = inner.parent
    return inner


def _without_words(inline: Inline) -> Iterator[str]:
    yield inline.raw
    for child in inline.children:
        yield from _without_words(child)
    yield inline.end_tag


def _best(
    child: Inline, words: Sequence[tuple[int, Inline | None]], taken: Sequence[_Interval]
) -> _Interval | None:
    """Return the free cells with the most words of ``child`` and the fewest others."""
    best, best_sum, total, start = None, 0.0, 0.0, 0
    for place, owner in words:
        if any(interval.first <= place < interval.last for interval in taken):
            total = 0.0
            continue
        if total <= 0:
            total, start = 0.0, place
        total += 1.0 if owner is child else OF_NO_ELEMENT if owner is None else OF_ANOTHER
        if owner is child and total > best_sum:
            best, best_sum = _Interval(start, place + 1, child), total
    return best
