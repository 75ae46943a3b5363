"""Text with inline codes, such as runs and links, as XML that the translator's markup code takes.

A code becomes ``<span id="1">`` around its text, or ``<img id="2"/>`` or ``<wbr id="3"/>`` if it
has no text: those are the names of inline elements, visible and invisible ones. So the codes are
placed around the translations of their words like the inline elements of a page.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from enum import Enum, auto
from html import escape, unescape
from typing import Any, NamedTuple

from nmt_cli.files.lines import is_blank
from nmt_cli.translating.interface.request import Request

TOKEN = re.compile(r'<(span|img|wbr) id="(\d+)"/?>|</span>|&[^;]*;|[^<&]+')


class Kind(Enum):
    """The kinds of parts."""

    TEXT = auto()
    OPEN = auto()  # a code that has text begins
    CLOSE = auto()  # the innermost one ends
    POINT = auto()  # a code without text
    BREAK = auto()  # one that divides segments; within a code with text, it is a point


class Part(NamedTuple):
    """A part of a text: characters, or a code or one end of it."""

    kind: Kind
    text: str = ""  # its characters
    code: Any = None  # what the code stands for; of a text, how its only character is written
    is_visible: bool = True

    @property
    def nesting(self) -> int:
        """1 if a code with text begins, -1 if one ends, else 0."""
        return (self.kind is Kind.OPEN) - (self.kind is Kind.CLOSE)


def text_part(text: str) -> Part:
    """Return the part of these characters."""
    return Part(Kind.TEXT, text)


CLOSE = Part(Kind.CLOSE)


class InlineText:
    """A segment with inline codes, whose ``request`` asks for its translation."""

    def __init__(self, parts: Sequence[Part], protect: Sequence[str] = ()) -> None:
        """``parts`` are balanced. Codes at the begin and the end are not sent with the text."""
        first, last = _core(parts)
        self._before, self._after = parts[:first], parts[last:]
        self._codes, self._written = list[Part](), dict[str, Part]()
        self.parts = parts
        text = "".join(map(self._as_xml, parts[first:last]))
        self.request = Request(text, markup="xml", protect=protect)

    def _as_xml(self, part: Part) -> str:
        if part.kind is Kind.TEXT and part.code is None:
            return escape(part.text, quote=False)
        if part.kind is Kind.TEXT:
            reference = "".join(f"&#{ord(character)};" for character in part.text)
            self._written.setdefault(reference, part)
            return reference
        if part.kind is Kind.CLOSE:
            return "</span>"
        self._codes.append(part)
        number = len(self._codes)
        if part.kind is Kind.OPEN:
            return f'<span id="{number}">'
        return f'<{"img" if part.is_visible else "wbr"} id="{number}"/>'

    def translated(self, text: str) -> Iterator[Part]:
        """Yield the parts of a translation, with all codes."""
        yield from self._before
        for token in TOKEN.finditer(text):
            if token[1]:
                yield self._codes[int(token[2]) - 1]
            elif token[0] == "</span>":
                yield CLOSE
            else:
                yield self._written.get(token[0]) or text_part(unescape(token[0]))
        yield from self._after


def joined(parts: Iterable[Part], text_of: Callable[[Part], str]) -> str:
    """Return the markup of ``parts``. The code of an OPEN part is a pair: its start and its end.

    ``text_of`` returns how a text is written.
    """
    written, ends = list[str](), list[str]()
    for part in parts:
        if part.kind is Kind.OPEN:
            written.append(part.code[0])
            ends.append(part.code[1])
        elif part.kind is Kind.CLOSE:
            written.append(ends.pop())
        else:
            written.append(text_of(part) if part.code is None else part.code)
    return "".join(written)


def paired(found: Iterable[tuple[Part, Hashable, Hashable]]) -> list[Part]:
    """Return parts in which codes that belong together, such as <i> and </i>, enclose their text.

    Each part comes with what it begins, and what it ends; None is nothing. What has no end within
    its OPEN and CLOSE stays as it is. The code of a CLOSE part becomes the second of its OPEN part.
    """
    parts, opened = list[Part](), list[tuple[int, Hashable]]()
    for part, begun, ended in found:
        if part.kind is Kind.OPEN or begun is not None:
            opened.append((len(parts), None if part.kind is Kind.OPEN else begun))
        elif part.kind is Kind.CLOSE or (ended is not None and opened and opened[-1][1] == ended):
            while part.kind is Kind.CLOSE and opened[-1][1] is not None:
                opened.pop()
            first, _ = opened.pop()
            if part.code is not None:
                parts[first] = Part(Kind.OPEN, code=(parts[first].code, part.code))
            part = CLOSE
        parts.append(part)
    return parts


def divided(parts: Iterable[Part]) -> Iterator[list[Part]]:
    """Yield the parts between breaks, and each break by itself."""
    found, depth = list[Part](), 0
    for part in parts:
        depth += part.nesting
        if part.kind is Kind.BREAK and not depth:
            yield found
            yield [part]
            found = []
        else:
            found.append(part)
    yield found


def has_text(parts: Sequence[Part]) -> bool:
    """Return whether there is text to translate in ``parts``."""
    return not all(is_blank(part.text) for part in parts if part.kind is Kind.TEXT)


def _core(parts: Sequence[Part]) -> tuple[int, int]:
    """Return where the text in ``parts`` begins and ends, without white space and codes around it.

    A code that begins before the text and ends within it, or the reverse, is part of it.
    """
    partner = partners(part.nesting for part in parts)
    first, last = 0, len(parts)
    while True:
        if first < last and _is_outside(parts[first]):
            first += 1
        elif first < last and _is_outside(parts[last - 1]):
            last -= 1
        elif first < last and partner.get(first) == last - 1:
            first, last = first + 1, last - 1
        elif first < last and partner.get(first) == first + 1:
            first += 2
        elif first < last and partner.get(last - 1) == last - 2:
            last -= 2
        else:
            return first, last


def _is_outside(part: Part) -> bool:
    return part.kind in {Kind.POINT, Kind.BREAK} or (part.kind is Kind.TEXT and part.text.isspace())


def partners(nesting: Iterable[int]) -> Mapping[int, int]:
    """Return the place of the other end for each begin, which is 1, and each end, which is -1."""
    found, opened = dict[int, int](), list[int]()
    for place, step in enumerate(nesting):
        if step > 0:
            opened.append(place)
        elif step < 0:
            begin = opened.pop()
            found[begin], found[place] = place, begin
    return found
