"""The segments of markup, and the inline elements around the words that their words became."""

from __future__ import annotations

import html
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from nmt_cli.recipe.translation_options import Markup
from nmt_cli.translating.interface.request import NO_TAG_RULES, TagRules
from nmt_cli.translating.interface.translation import in_groups
from nmt_cli.translating.segmentation.markup.blocks import Block, Inline, blocks_of
from nmt_cli.translating.segmentation.segments import Output, Segments, Span

# An element surrounds the words with the greatest sum: each of its own words counts 1, and other
# words between them count this. So "a, b" stays one element if the comma belongs to no element, but
# not if it belongs to another one.
OF_NO_ELEMENT, OF_ANOTHER = -0.9, -2.0
# Line ends are spaces in a paragraph of HTML; sentencex takes two of them for the end of one.
SPACES = str.maketrans(dict.fromkeys("\t\n\f\r", " "))
NOT_IN_XML = str.maketrans(
    dict.fromkeys([*range(9), 11, 12, *range(14, 32), 0xFFFE, 0xFFFF], "\ufffd")
)


class _Cell(NamedTuple):
    """A part of a translation, as it is written: a word, or the text between two words."""

    raw: str
    of: Inline | None = None  # the innermost element that the word belongs to
    begin: int = 0  # of its source, in the text of the block
    end: int = 0
    others: tuple[Inline, ...] = ()  # of words that this one attends to more than all others do


_Word = tuple[int, _Cell]  # the place of a word among the cells


class _Interval(NamedTuple):
    """The cells of an element, from ``first`` to before ``last``."""

    first: int
    last: int
    of: Inline


class MarkupSegments(Segments):
    """The segments of markup: those of each block of text, and what is between the blocks."""

    def __init__(
        self,
        text: str,
        markup: Markup,
        cut: Callable[[str], Segments],
        tags: TagRules = NO_TAG_RULES,
        cut_untagged: Callable[[str], Segments] | None = None,
    ) -> None:
        """``cut_untagged`` cuts blocks without inline elements, if that is not the same."""
        self._parts, self._markup = list[str | tuple[Block, Segments]](), markup
        self._need_spans = list[bool]()
        texts, separators, is_by_default = list[str](), list[str](), False
        for block in blocks_of(text, markup, tags):
            if isinstance(block, str):
                self._parts.append(block)
                continue
            cut_block = cut if block.root.children else cut_untagged or cut
            segments = cut_block(block.text.translate(SPACES) if markup == "html" else block.text)
            self._parts.append((block, segments))
            texts += segments.texts
            separators += [" ", *segments.separators[1:]]
            self._need_spans += [bool(block.root.children)] * len(segments.texts)
            is_by_default |= segments.is_by_default
        super().__init__(texts, [*separators, ""], is_by_default=is_by_default)

    @property
    def need_spans(self) -> Sequence[bool]:
        """Which of the segments need the spans of their words: those with inline elements."""
        return self._need_spans

    def filled(self, outputs: Sequence[Output]) -> str:
        """Return the markup with the translation of each segment in its place."""
        if self._markup == "xml":
            outputs = [each._replace(text=each.text.translate(NOT_IN_XML)) for each in outputs]
        sizes = [0 if isinstance(part, str) else len(part[1].texts) for part in self._parts]
        return "".join(
            part if isinstance(part, str) else _filled_block(*part, own)
            for part, own in zip(self._parts, in_groups(outputs, sizes), strict=True)
        )


def _filled_block(block: Block, segments: Segments, outputs: Sequence[Output]) -> str:
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
    target_gaps = (segments.target_gaps or segments.gaps)[1:]
    gaps = zip(segments.gaps[1:], target_gaps, strict=True)
    for text, (gap, target_gap), output in zip(segments.texts, gaps, outputs, strict=True):
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
        is_same = target_gap == gap
        yield _Cell(_raw_text(block, place, place + len(gap)) if is_same else target_gap)
        place += len(gap)


def _mark(inline: Inline, innermost: list[Inline]) -> None:
    for child in (each for each in inline.children if not each.has_space):
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
        self._spaces_inside = block.spaces_inside

    def written(self, node: Inline, first: int, last: int) -> Iterator[str]:
        """Yield the cells from ``first`` to before ``last``, which are those of ``node``."""
        last = min(last, len(self._cells))
        within = enumerate(self._cells[first:last], first)
        words = [(place, cell) for place, cell in within if cell.of is not None]
        begin, end = self._without_spaces(node)
        intervals = list[_Interval]()
        if words:
            parts = [e for e in node.children if e.begin < e.end and not e.has_space]
            if len(parts) == 1 and parts[0].begin <= begin and parts[0].end >= end:
                intervals = [_Interval(words[0][0], words[-1][0] + 1, parts[0])]
            else:
                intervals = _intervals(node, words)
            intervals = self._with_spaces(intervals, first, last)
        points = self._points(node, words, intervals, first, last)
        place = first
        for interval in [*intervals, _Interval(last, last, node)]:
            while points and points[-1][0] <= interval.first:
                gap, child = points.pop()
                together = [child]
                while points and points[-1][0] == gap and points[-1][1].begin == together[-1].end:
                    together.append(points.pop()[1])
                yield from (cell.raw for cell in self._cells[place:gap])
                place = gap
                yield from self._written_together(together, place)
            yield from (cell.raw for cell in self._cells[place : interval.first])
            place = interval.last
            if interval.of is not node:
                yield interval.of.raw
                yield from self.written(interval.of, interval.first, interval.last)
                yield interval.of.end_tag

    def _without_spaces(self, node: Inline) -> tuple[int, int]:
        """Return the begin and the end of the text of ``node`` without white space around it."""
        text = self._text[node.begin : node.end]
        return node.end - len(text.lstrip()), node.begin + len(text.rstrip())

    def _with_spaces(
        self, intervals: Sequence[_Interval], begin: int, last: int
    ) -> list[_Interval]:
        """Return ``intervals`` with the white space that their elements begin or end with."""
        spaced = list[_Interval]()
        nexts = [*(interval.first for interval in intervals[1:]), last]
        for (first, end, child), following in zip(intervals, nexts, strict=False):
            if self._text[child.begin].isspace() and first > begin and self._is_space(first - 1):
                first -= 1
            if self._text[child.end - 1].isspace() and end < following and self._is_space(end):
                end += 1
            spaced.append(_Interval(first, end, child))
            begin = end
        return spaced

    def _is_space(self, place: int) -> bool:
        return self._cells[place].raw.isspace()

    def _points(
        self,
        node: Inline,
        words: Sequence[_Word],
        intervals: Sequence[_Interval],
        first: int,
        last: int,
    ) -> list[tuple[int, Inline]]:
        """Return the children of ``node`` without words, and before which cell each is written.

        A child is written after the word that is before it in the source, or beside the first or
        the last word if no text is before or behind it. Children with only white space between them
        stay in their order. The last one is returned first, for ``pop``.
        """
        begin, end = self._without_spaces(node)
        leading, trailing = self._cells_without_spaces(first, last)
        ends = sorted((cell.end, place + 1) for place, cell in words)
        begins = sorted((cell.begin, place) for place, cell in words)
        places, placed = [each.first for each in intervals], {each.of for each in intervals}
        points = list[tuple[int, Inline]]()
        for child, before in self._with_ends_of_text(node):
            if child in placed:
                continue
            if child.begin <= begin:
                gap = first if child.begin < begin else leading
            elif child.end >= end:
                gap = last if child.begin > end else trailing
            else:
                num_before = bisect_right(ends, (before, len(self._cells)))
                following = begins[bisect_left(begins, (before, 0)) :][:1]
                gap = following[0][1] if following else last
                gap = ends[num_before - 1][1] if num_before else gap
            inside = intervals[bisect_left(places, gap) - 1] if intervals else None
            if inside is not None and inside.first < gap < inside.last:
                gap = inside.last
            points.append((gap, child))
        points.sort(key=lambda point: point[0])  # of equal gaps in the order of the source
        return points[::-1]

    def _with_ends_of_text(self, node: Inline) -> Iterator[tuple[Inline, int]]:
        """Yield each child of ``node``, and the end of the text before it without white space."""
        seen = end = node.begin
        for child in node.children:
            if text := self._text[seen : child.begin].rstrip():
                end = seen + len(text)
            seen = child.begin
            yield child, end

    def _cells_without_spaces(self, first: int, last: int) -> tuple[int, int]:
        """Return the range of cells that is left without white space around it."""
        while first < last and not self._meaning(first).strip():
            first += 1
        while first < last and not self._meaning(last - 1).strip():
            last -= 1
        return first, last

    def _written_together(self, points: Sequence[Inline], place: int) -> Iterator[str]:
        """Yield children without words that have no text between them.

        Around visible ones there are spaces as in the source.
        """
        for _ in (point for point in points if point.has_space):
            if place < len(self._cells) and self._cells[place].raw[:1].isspace():
                self._cells[place] = _Cell(self._cells[place].raw[1:])
        is_visible = any(point.is_visible for point in points)
        is_after_space = self._has_space(points[0].begin - 1)
        is_before_space = self._has_space(points[-1].end)
        if is_after_space and place > 0 and not self._meaning(place - 1)[-1:].isspace():
            following = self._cells[place].raw if place < len(self._cells) else ""
            if following.isspace() and (len(following) > 1 or not is_before_space):
                num_before = 1 if is_before_space else len(following)
                yield following[:num_before]
                self._cells[place] = _Cell(following[num_before:])
            elif is_visible:
                yield " "
        for point in points:
            yield from _without_words(point)
        if is_visible and is_before_space and place < len(self._cells):
            yield "" if self._meaning(place)[:1].isspace() else " "

    def _meaning(self, place: int) -> str:
        """Return the text of a cell without references."""
        return html.unescape(self._cells[place].raw)

    def _has_space(self, place: int) -> bool:
        """Return whether the text has white space at a place, outside of elements without words."""
        return self._text[max(0, place) : place + 1].isspace() and place not in self._spaces_inside


def _without_words(inline: Inline) -> Iterator[str]:
    yield inline.raw
    for child in inline.children:
        yield from _without_words(child)
    yield inline.end_tag


def _intervals(node: Inline, words: Sequence[_Word]) -> list[_Interval]:
    """Return disjoint cells for each child of ``node`` that ``words`` belong to, in order."""
    owners = [_child_of(node, cell.of) for _, cell in words]
    own: dict[Inline, list[int]] = {}
    for number, child in enumerate(owners):
        if child is not None:
            own.setdefault(child, []).append(number)
    numbers, taken = dict[Inline, range](), bytearray(len(words))
    for child in sorted(own, key=lambda each: -len(own[each])):
        found = _best(child, owners, taken, range(own[child][0], own[child][-1] + 1))
        if found:
            numbers[child] = found
            taken[found.start : found.stop] = b"\1" * len(found)
    for number, (_, cell) in enumerate(words):
        for other in (_child_of(node, each) for each in cell.others):
            if other is not None and other not in numbers and not taken[number]:
                numbers[other], taken[number] = range(number, number + 1), True
    intervals = [
        _Interval(words[each[0]][0], words[each[-1]][0] + 1, child)
        for child, each in numbers.items()
    ]
    return sorted(intervals, key=lambda interval: interval.first)


def _child_of(node: Inline, inner: Inline | None) -> Inline | None:
    """Return the child of ``node`` that ``inner`` is in, or is itself."""
    while inner is not None and inner.parent is not node:
        inner = inner.parent
    return inner


def _best(
    child: Inline, owners: Sequence[Inline | None], taken: bytearray, numbers: range
) -> range:
    """Return the words that are not ``taken`` with the most of ``child`` and the fewest others.

    ``numbers`` are those from its first to its last word.
    """
    best, best_sum, total, start = range(0), 0.0, 0.0, 0
    for number in numbers:
        if taken[number]:
            total = 0.0
            continue
        if total <= 0:
            total, start = 0.0, number
        owner = owners[number]
        total += 1.0 if owner is child else OF_NO_ELEMENT if owner is None else OF_ANOTHER
        if owner is child and total > best_sum:
            best, best_sum = range(start, number + 1), total
    return best
