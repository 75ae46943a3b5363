"""The pieces of a paragraph of an office program, and how they are written again."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from html import escape
from typing import NamedTuple

from nmt_cli.documents.document import DocumentError
from nmt_cli.documents.inline import CLOSE, Kind, Part, text_part

Raw = Callable[[], str]  # what is written; called when the paragraphs within are written
DEEPEST_FIELDS = 20  # in each other, as in Word
# Fields whose results are texts; others show what is computed, as do references to numbers.
TEXT_FIELD = re.compile(
    r"\s*(?:HYPERLINK|FORMTEXT|FILLIN|QUOTE|IF|INCLUDETEXT|AUTOTEXT|AUTOTEXTLIST|TOC|TOA|INDEX"
    r"|(?:STYLE)?REF(?!.*\\[fnprw]\b))\b",
    re.IGNORECASE | re.DOTALL,
)


class Format(NamedTuple):
    """How text is written in a run."""

    before: str = ""
    after: str = ""
    key: str = ""  # equal formats have equal keys


class Code(NamedTuple):
    """What is written before and after text, and the usual format of this text."""

    before: Raw
    after: Raw
    usual: Format


NO_FORMAT = Format()


class Piece(NamedTuple):
    """A part of a paragraph, and of a text the format."""

    part: Part
    format: Format = NO_FORMAT
    mark: str = ""  # of a field or a range: what it is; "space": it is spaces
    name: str = ""  # of a range; the number of spaces


def point(raw: Raw, *, is_visible: bool = True) -> Piece:
    """Return the piece of a code without text."""
    return Piece(Part(Kind.POINT, code=raw, is_visible=is_visible))


def collapsed(pieces: Iterable[Piece]) -> Iterator[Piece]:
    """Yield pieces in which white space that follows other white space is left out.

    An element of spaces gets a space before it if there is none; one space alone becomes that.
    What is visible, such as a field, is no space.
    """
    is_after_space = True  # at the begin of a paragraph
    for piece in pieces:
        if piece.mark == "space" and not is_after_space:
            yield Piece(text_part(" "))
            is_after_space = True
            if piece.name == "1":
                continue
        if piece.part.kind is not Kind.TEXT:
            yield piece
            if piece.part.kind in {Kind.POINT, Kind.BREAK} and piece.part.is_visible:
                is_after_space = False
            continue
        text = re.sub(r"[ \t\r\n]+", " ", piece.part.text)
        text = text.lstrip(" ") if is_after_space else text
        if text:
            yield piece._replace(part=text_part(text))
            is_after_space = text.endswith(" ")


def paired(pieces: Sequence[Piece]) -> list[Piece]:
    """Return pieces in which ranges and fields enclose their text; other fields are one point.

    A field that goes on in another paragraph divides the text; such a range is two points.
    """
    found = list[Piece | None](pieces)
    levels = [_Level({}, [])]
    for place, piece in enumerate(pieces):
        ranges, fields = levels[-1]
        if piece.part.kind is Kind.OPEN:
            levels.append(_Level({}, []))
        elif piece.part.kind is Kind.CLOSE:
            levels.pop()
        elif piece.mark == "begin":
            ranges.pop(piece.name, None)
            ranges[piece.name] = place
        elif piece.mark == "field begin":
            fields.append(place)
            if sum(len(level.fields) for level in levels) > DEEPEST_FIELDS:
                raise DocumentError(f"its fields are nested more than {DEEPEST_FIELDS} deep")
        elif piece.mark == "field end" and fields:
            _pair_field(found, begin := fields.pop(), place)
            _forget_behind(begin, ranges)
        elif piece.mark == "end" and (first := _begin_of(piece.name, *levels[-1])) is not None:
            found[first], found[place] = _enclosing([pieces[first]], [piece])
    return [
        piece._replace(part=piece.part._replace(kind=Kind.BREAK))
        if piece.mark.startswith("field")
        else piece
        for piece in found
        if piece is not None
    ]


class _Level(NamedTuple):
    """What has begun in an element and not ended, and where."""

    ranges: dict[str, int]  # by their names, the last one last
    fields: list[int]


def _begin_of(name: str, ranges: dict[str, int], fields: Sequence[int]) -> int | None:
    """Return the place where the range ``name`` has begun, and remove it from ``ranges``.

    None if it did not begin in the same element, or if it encloses a part of another one.
    """
    if name not in ranges:
        return None
    last, place = ranges.popitem()
    if last == name:
        return None if fields and fields[-1] > place else place
    del ranges[name]
    ranges[last] = place
    return None


def _forget_behind(begin: int, ranges: dict[str, int]) -> None:
    """Remove the ranges that have begun behind ``begin``."""
    while ranges:
        last, place = ranges.popitem()
        if place < begin:
            ranges[last] = place
            return


def _pair_field(found: list[Piece | None], begin: int, end: int) -> None:
    """Make the field from ``begin`` to ``end`` enclose its result, or one point."""
    middle = next(
        (n for n in range(begin, end) if (p := found[n]) and p.mark == "field separate"), end
    )
    head = [piece for piece in found[begin : middle + 1] if piece is not None]
    code = "".join(piece.name for piece in head if piece.mark == "code")
    depth = sum(piece.part.nesting for piece in head)
    if middle < end and not depth and TEXT_FIELD.match(code):
        last = found[end]
        assert last is not None
        found[begin], found[end] = _enclosing(head, [last])
        found[begin + 1 : middle + 1] = [None] * (middle - begin)
        return
    whole = [piece for piece in found[begin : end + 1] if piece is not None]
    found[begin] = point(lambda: _raw(whole))
    found[begin + 1 : end + 1] = [None] * (end - begin)


def _enclosing(before: Sequence[Piece], after: Sequence[Piece]) -> tuple[Piece, Piece]:
    code = Code(lambda: _raw(before), lambda: _raw(after), NO_FORMAT)
    return Piece(Part(Kind.OPEN, code=code)), Piece(CLOSE)


def _raw(pieces: Sequence[Piece]) -> str:
    return "".join(written(*with_formats(pieces)))


def with_formats(pieces: Sequence[Piece]) -> tuple[list[Part], Format]:
    """Return the parts of ``pieces``, and their usual format; codes enclose text in another one.

    The usual format of the text in a code is that of most of its characters.
    """
    usual, levels = _usual_formats(pieces)
    parts, opened, waiting = list[Part](), None, list[Part]()
    for piece, level in zip(pieces, levels, strict=True):
        part, key = piece.part, piece.format.key
        is_other = part.kind is Kind.TEXT and key != usual[level].key
        if opened is not None and part.kind is Kind.POINT and not part.is_visible:
            waiting.append(part)  # it does not divide a word
            continue
        if opened is not None and not (is_other and key == opened):
            parts.append(CLOSE)
            opened = None
        parts += waiting
        waiting = []
        if is_other and opened is None:
            parts.append(Part(Kind.OPEN, code=Code(str, str, piece.format)))
            opened = key
        if part.kind is Kind.OPEN:
            part = part._replace(code=part.code._replace(usual=usual[level]))
        parts.append(part)
    return [*parts, *([] if opened is None else [CLOSE]), *waiting], usual[0]


def _usual_formats(pieces: Sequence[Piece]) -> tuple[list[Format], list[int]]:
    """Return the format of most characters in each code, and the number of each piece's code.

    The first one is that of the text in no code. Text in no run has that of the first run.
    """
    counts, formats = [Counter[str]()], dict[str, Format]()
    stack, levels = [0], list[int]()
    for piece in pieces:
        if piece.part.kind is Kind.OPEN:
            counts.append(Counter())
            stack.append(len(counts) - 1)
        levels.append(stack[-1])
        if piece.part.kind is Kind.CLOSE:
            stack.pop()
        elif piece.part.kind is Kind.TEXT:
            formats.setdefault(piece.format.key, piece.format)
            counts[stack[-1]][piece.format.key] += len(piece.part.text)
    first = next(iter(formats.values()), NO_FORMAT)
    return [formats[c.most_common(1)[0][0]] if c else first for c in counts], levels


def written(parts: Iterable[Part], usual: Format) -> Iterator[str]:
    """Yield what ``parts`` are in the document; text in no code has the ``usual`` format."""
    text, formats, ends = "", [usual], list[Raw]()
    for part in parts:
        if part.kind is Kind.TEXT and part.code is None:
            text += part.text
            continue
        if text:
            yield f"{formats[-1].before}{escape(text, quote=False)}{formats[-1].after}"
            text = ""
        if part.kind is Kind.OPEN:
            formats.append(part.code.usual)
            ends.append(part.code.after)
            yield part.code.before()
        elif part.kind is Kind.CLOSE:
            formats.pop()
            yield ends.pop()()
        else:
            yield part.code()
    if text:
        yield f"{formats[-1].before}{escape(text, quote=False)}{formats[-1].after}"
