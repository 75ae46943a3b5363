"""Texts with translations beside them; of ICU messages, only the texts of branches change."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from html import escape

from nmt_cli.corpus.text.memories import CODES
from nmt_cli.documents import inline
from nmt_cli.documents.inline import InlineText, Kind, Part, has_text, text_part
from nmt_cli.translating.interface.protection import PLACEHOLDERS
from nmt_cli.translating.interface.request import LineError, Request
from nmt_cli.translating.segmentation import icu_messages as icu
from nmt_cli.translating.segmentation.markup.blocks import Element, raw_of, tree_of
from nmt_cli.translating.segmentation.markup.tokens import SECTION, Token, TokenKind

TAG = r"</?[A-Za-z][^<>]*>"
PROTECTED = (PLACEHOLDERS, TAG, r"&#?\w+;")  # patterns of what a translation copies
_escaped = partial(escape, quote=False)
SECTION_END = "]]>"
PAIRS = {"bpt": "ept", "bx": "ex", "sc": "ec"}  # codes that begin, and those that end


@dataclass
class UnitText:
    """A text with a translation beside it: some of its ``pieces`` are translated, others stay."""

    text: str
    pieces: Sequence[str | Request | InlineText]
    write: Callable[[str], str] = str  # returns how a text is written in the document
    fits: Callable[[str], bool] = lambda _: True  # whether a translation may be written
    has_quotation: bool = False  # an apostrophe before a brace would quote it
    is_section: bool = False  # of CDATA

    @property
    def requests(self) -> list[Request]:
        """What is translated, in order."""
        found = (each.request if isinstance(each, InlineText) else each for each in self.pieces)
        return [each._replace(protect_strict=True) for each in found if isinstance(each, Request)]

    def written(self, texts: Sequence[str]) -> str | None:
        """Return the text with these translations; None if they do not fit."""
        changed = (re.sub("'(?=[{}|#])", "\u2019", each) for each in texts)
        rest, parts = changed if self.has_quotation else iter(texts), list[Part]()
        for piece in self.pieces:
            if isinstance(piece, str):
                parts.append(Part(Kind.POINT, piece, piece))
                continue
            text = next(rest)
            parts += piece.translated(text) if isinstance(piece, InlineText) else [text_part(text)]
        whole = _joined(parts, self.write)
        if self.is_section:
            whole = f"{SECTION}{whole.replace(SECTION_END, f']]]]>{SECTION}>')}{SECTION_END}"
        return whole if self.fits(text_of(parts)) else None


def text_of(parts: Sequence[Part]) -> str:
    """Return the text of ``parts``; a character stands for each code."""
    return "".join(part.text or icu.CODE for part in parts)


def _joined(parts: Sequence[Part], write: Callable[[str], str]) -> str:
    return inline.joined(parts, lambda part: write(part.text))


def unit_text(
    parts: Sequence[Part],
    write: Callable[[str], str] = _escaped,
    protect: Sequence[str] = PROTECTED,
) -> UnitText:
    """Return the text with these parts; each text of an ICU message is a piece.

    A message that is not complete has no translation that fits.
    """
    text = text_of(parts)
    if (syntax := icu.syntax_of(text)) is None:
        is_broken = icu.has_branches(text)
        return UnitText(text, [InlineText(parts, protect)], write, lambda _: not is_broken)
    single, broken, end = list[Part](), list[Part](), 0
    for part in parts:
        is_text = part.kind is Kind.TEXT and part.code is None
        single += map(text_part, part.text) if is_text else [part]
    for begin, last in icu.frame_in(text, syntax):
        code = _joined(single[begin:last], write)
        broken += [*single[end:begin], Part(Kind.BREAK, code=code)]
        end = last
    groups, copied = inline.divided([*broken, *single[end:]]), (*protect, "#", icu.QUOTED)
    pieces = [InlineText(g, copied) if has_text(g) else _joined(g, write) for g in groups]

    fits = partial(icu.have_one_frame, text, syntax=syntax)
    is_free = syntax is icu.WITH_QUOTATION and not re.search(icu.QUOTED, text)
    return UnitText(text, pieces, write, fits, is_free)


def name_of(element: Element) -> str:
    """Return the name of an element without its prefix."""
    return element.start.name.rpartition(":")[2]


def parts_of(element: Element) -> list[Part]:
    """Return what is between the tags of an element: characters and codes."""
    return inline.paired(_keyed(element.children))


def element_text(element: Element) -> UnitText:
    """Return the text of an element; that of a single CDATA section is written in one."""
    sections = [raw for each in element.children if not (raw := raw_of(each)).isspace()]
    if len(sections) != 1 or not sections[0].startswith(SECTION):
        return unit_text(parts_of(element))
    text = sections[0].removeprefix(SECTION).removesuffix(SECTION_END)
    found = unit_text([text_part(text)], str)
    if re.search(TAG, text) and not icu.has_branches(text):
        with suppress(LineError):  # then it is no HTML
            if tree_of(text, "html").raw() == text:  # else tags would be added or left out
                found.pieces = [Request(text, markup="html", protect=[PLACEHOLDERS])]
    found.is_section = True
    return found


def has_content(element: Element) -> bool:
    """Return whether there is text to translate in an element."""
    return has_text(parts_of(element))


def _keyed(children: Sequence[Element | Token]) -> Iterator[tuple[Part, Hashable, Hashable]]:
    """Yield the parts of a text, and what each begins and ends.

    Codes that belong together, such as <bpt i="1"> and <ept i="1">, have the same attribute.
    """
    for child in children:
        if isinstance(child, Token):
            yield from ((part, None, None) for part in _of_token(child))
            continue
        name, given = name_of(child), child.start.attributes
        key = next((given[each] for each in ("rid", "i", "startRef", "id") if each in given), None)
        begun = (PAIRS[name], key) if name in PAIRS else None
        is_protected = given.get("translate") == "no" or given.get("mtype") == "protected"
        if child.start.kind is TokenKind.EMPTY or name in CODES or is_protected:
            yield Part(Kind.POINT, code=child.raw()), begun, (name, key)
        else:
            yield Part(Kind.OPEN, code=(child.start.raw, child.end)), None, None
            yield from _keyed(child.children)
            yield inline.CLOSE, None, None


def _of_token(token: Token) -> Iterator[Part]:
    if token.raw.startswith(SECTION):
        yield text_part(token.raw.removeprefix(SECTION).removesuffix(SECTION_END))
    elif token.kind is not TokenKind.TEXT:
        is_comment = token.raw.startswith("<!--")
        yield Part(Kind.POINT, code=token.raw, is_visible=not is_comment)
    for raw, meaning in token.parts:
        yield text_part(raw) if raw == meaning else Part(Kind.TEXT, meaning, raw)
