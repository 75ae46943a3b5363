"""Documents of Markdown: CommonMark, with tables, and strikethrough as in GitHub's.

Paragraphs, headings and cells of tables are segments; line breaks that Markdown keeps divide them.
Code, links, HTML and front matter stay as they are. A paragraph that is translated becomes a line.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

from nmt_cli.documents.document import DocumentError, decoded
from nmt_cli.documents.inline import InlineText, Kind, Part, has_text, joined, paired, text_part
from nmt_cli.translating.interface.request import Request
from nmt_cli.translating.interface.translation import Translation
from nmt_cli.translating.segmentation.markup.blocks import VOID

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.rules_block import StateBlock
    from markdown_it.rules_inline import StateInline
    from markdown_it.token import Token

FRONT_MATTER = re.compile(r"\A(---|\+\+\+)[ \t]*\r?\n.*?^(?:\1|\.\.\.)[ \t]*\r?$", re.DOTALL | re.M)
LINE_END = re.compile(r"\r\n?|\n")
# What paragraphs begin with that is no text: labels of footnotes, boxes to tick.
BEFORE_TEXT = re.compile(r"\[\^[^\]\s]+\]:[ \t]*|\[[ xX]\][ \t]+")
# Lines of boxes and tabs of MkDocs, which may have a title; ends of boxes of other programs.
BOX = re.compile(r'(?:(?:!!!|\?\?\?\+?) [\w \t-]*|===[+!]? )(?:"(.+)")?$|:::')
# A line within a paragraph that stays one: a definition, attributes.
OWN_LINE = re.compile(r":[ \t]+|(?=\{[:.#])")
# As Pandoc and GitHub have formulas: "$5 and $6" is none.
FORMULA = re.compile(r"\$\$.+?\$\$|\$(?![\s$])[^$\\]*(?:\\.[^$\\]*)*(?<!\s)\$(?!\d)", re.DOTALL)
# In text: footnotes, templates, attributes, addresses, :emoji:, and characters that XML excludes.
KEPT = re.compile(
    r"\[\^[^\[\]\s]+\]|\{\{(?:(?!\{\{).)*?\}\}|\{%(?:(?!\{%).)*?%\}|\{[#.:][^{}]*\}"
    r"|https?://[^\s<>]*[^\s<>.,;:!?)*_]"
    r"|(?<!\w):[a-z][\w+-]*:(?!\w)|[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]"
)
DELIMITERS = ("emphasis", "strikethrough")
HTML_BREAK = re.compile(r"<br\s*/?>", re.IGNORECASE)
HTML_TAG = re.compile(r"<(/?)([A-Za-z][\w-]*)[^>]*?(/?)>")
# A text must not become the mark of a list, a heading or a quotation.
MARK = re.compile(r"(\d{1,9})[.)](?=\s|$)|(?:#{1,6}|[>+-])(?=\s|$)")


SPECIAL = "\\`*_[<|"  # escaped in translations of texts without them
BREAK = "\\\n"
MOST_FORMULA_LINES = 100  # the time to look for the ends of some is quadratic
MOST_TOKENS = 1 << 20  # of a document with tables; a short one may have cells without number
MOST_BRACKETS = 2_000  # of a block; the time for them is quadratic, and no text has so many


class _Segment(NamedTuple):
    begin: int  # in the document
    end: int
    text: InlineText


class MarkdownDocument:
    """A document of Markdown."""

    def __init__(self, data: bytes) -> None:
        self._decoded = found = decoded(data)
        front = FRONT_MATTER.match(found.text)
        start = front.end() if front else 0
        parser, environment = _parser(), dict[str, Any]()
        tokens = parser.parse(found.text[start:], environment)
        self._segments = [
            segment
            for block in _blocks(found.text, start, tokens)
            for segment in _segments(block, parser, environment)
        ]
        self.segments: Sequence[Request] = [each.text.request for each in self._segments]

    def filled(self, translations: Sequence[Translation]) -> bytes:
        """Return the document with the translation of each segment in its place."""
        source, written, place = self._decoded.text, list[str](), 0
        for segment, translation in zip(self._segments, translations, strict=True):
            if translation.text != segment.text.request.text:
                written += [source[place : segment.begin], _written(segment.text, translation.text)]
                place = segment.end
        return self._decoded.encoded("".join([*written, source[place:]]))


def _parser() -> MarkdownIt:
    """Return a parser that notes in ``meta`` of each inline token where it begins and ends."""
    from markdown_it import MarkdownIt  # takes 0.1 s, and other documents do not need it

    parser = MarkdownIt("commonmark").enable(["table", "strikethrough"])
    # The text of blocks is parsed here. Joined tokens would have no place.
    parser.disable(["inline", "text_join", "fragments_join"])
    rules = parser.inline.ruler
    for name, rule in zip(rules.get_active_rules(), rules.getRules(""), strict=True):
        rules.at(name, _placing(name, rule))
    parser.inline.ruler.before("escape", "formula", _formula)
    parser.block.ruler.at("table", _limited_table, {"alt": ["paragraph", "reference"]})
    for name, lines in (("formulas", _formulas), ("box", _box)):
        others = ["paragraph", "reference", "blockquote", "list"]  # which these may end
        parser.block.ruler.before("fence", name, lines, {"alt": others})
    return parser


def _limited_table(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    """Parse a table. Raises DocumentError if the document has too many cells by now.

    Rows have as many cells as the head of their table, also those that are not written.
    """
    from markdown_it.rules_block import table

    found = table(state, start, end, silent)
    if found and len(state.tokens) > MOST_TOKENS:
        raise DocumentError("its tables have too many cells; divide it")
    return found


def _formula(state: StateInline, silent: bool) -> bool:
    """Parse a formula in a text."""
    found = FORMULA.match(state.src, state.pos) if state.src[state.pos] == "$" else None
    if found is None:
        return False
    if not silent:
        state.push("formula", "", 0).meta["place"] = found.span()
    state.pos = found.end()
    return True


def _line(state: StateBlock, number: int) -> str:
    """Return a line without its indent; an empty one if it is code."""
    begin = state.bMarks[number] + state.tShift[number]
    return "" if state.is_code_block(number) else state.src[begin : state.eMarks[number]].rstrip()


def _formulas(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    """Parse lines from one that begins with $$ to one that ends with it; they have no text."""
    first = _line(state, start)
    if not first.startswith("$$"):
        return False
    if len(first) > 3 and first.endswith("$$"):
        last: int | None = start
    else:
        others = range(start + 1, min(end, start + MOST_FORMULA_LINES))
        last = next((n for n in others if _line(state, n).endswith("$$")), None)
    if last is not None and not silent:
        state.line = last + 1
    return last is not None


def _box(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    """Parse a line that begins or ends a box, and what is in it by its indent."""
    found = BOX.match(_line(state, start))
    if found is None or silent:
        return found is not None
    state.push("box", "", 1)
    if found[1]:
        title = state.push("inline", "", 0)
        title.content, title.map, title.children = found[1], [start, start + 1], []
    state.line, indent = start + 1, state.blkIndent + 4
    if not found[0].startswith(":::"):
        last = state.line
        while last < end and (state.isEmpty(last) or state.sCount[last] >= indent):
            last += 1
        state.blkIndent, before, state.lineMax, whole = indent, state.blkIndent, last, state.lineMax
        state.md.block.tokenize(state, start + 1, last)
        state.blkIndent, state.lineMax, state.line = before, whole, last
    state.push("box", "", -1)
    return True


def _placing(name: str, rule: Callable[[StateInline, bool], bool]) -> Any:
    """Return ``rule``, which then notes the places of the tokens that it adds."""

    def placing(state: StateInline, silent: bool) -> bool:
        begin, count = state.pos, len(state.tokens)
        is_link = name == "link" and not silent and state.src[begin] == "["
        label = state.md.helpers.parseLinkLabel(state, begin, True) if is_link else begin
        found = rule(state, silent)
        added, end = [] if silent or not found else state.tokens[count:], state.pos
        own = [token for token in added if token.type != "text"]
        if name in DELIMITERS:  # a token for each, before which there may be one of text
            place = end
            for token in reversed(added):
                if place > begin:
                    token.meta["place"] = place - len(token.content), place
                    place -= len(token.content)
        elif len(own) > 1:  # a link: its begin, what is in it, its end
            own[0].meta["place"], own[-1].meta["place"] = (begin, begin + 1), (label, end)
            # The text of these is their address, or the name of it.
            own[0].meta["is_kept"] = name == "autolink" or state.src[label:end] in {"]", "][]"}
        elif own:
            own[0].meta["place"] = begin, end
        return found

    return placing


class _Block(NamedTuple):
    """A text of several lines, without what is before each in the document, such as "> "."""

    text: str
    places: Sequence[tuple[int, int]]  # where each line begins in the text and in the document

    def place(self, in_text: int) -> int:
        """Return the place in the document of a place in the text."""
        begin, found = self.places[bisect_right(self.places, (in_text, math.inf)) - 1]
        return found + in_text - begin


def _blocks(source: str, start: int, tokens: Sequence[Token]) -> Iterator[_Block]:
    """Yield the blocks of text that ``tokens`` have, which are those of ``source[start:]``."""
    ends = [start, *(start + each.end() for each in LINE_END.finditer(source[start:]))]
    ends += [len(source)] * 2
    last_end = start
    for token, before in zip(tokens[1:], tokens, strict=False):
        if token.type != "inline" or token.map is None:
            continue
        is_cell = before.type in {"th_open", "td_open"}
        lines, places, length = list[str](), list[tuple[int, int]](), 0
        for number, content in enumerate(token.content.split("\n"), token.map[0]):
            line = content.lstrip()
            if is_cell:
                line = line.replace("|", "\\|")
                place = source.find(line, max(ends[number], last_end), ends[number + 1])
            else:
                place = source.rfind(line, ends[number], ends[number + 1])
            if place < 0:
                break  # a tab that is partly an indent, or NUL; the text stays as it is
            lines.append(line)
            places.append((length, place))
            length, last_end = length + len(line) + 1, place + len(line)
        else:
            yield _Block("\n".join(lines), places)


def _segments(block: _Block, parser: MarkdownIt, environment: dict[str, Any]) -> Iterator[_Segment]:
    """Yield the segments of a block, between the line breaks that Markdown keeps."""
    mark = BEFORE_TEXT.match(block.text)
    begin = mark.end() if mark else 0
    parts, depth = list[Part](), 0
    found = list(_parts(block.text, begin, parser, environment))
    last = len(block.text), len(block.text), Part(Kind.BREAK)
    for place, end, part in [*found, last]:
        depth += part.nesting
        if part.kind is not Kind.BREAK or depth:
            parts.append(part)
            continue
        if has_text(parts):
            length = len(block.text[begin:place].rstrip())  # two spaces may be part of the break
            last_place = block.place(begin + length - 1) + 1
            yield _Segment(block.place(begin), last_place, InlineText(parts))
        begin, parts = end, []


def _parts(
    text: str, begin: int, parser: MarkdownIt, environment: dict[str, Any]
) -> Iterator[tuple[int, int, Part]]:
    """Yield the parts of a text, and where each begins and ends.

    They are balanced. A text whose tokens are not in order is one part, without codes.
    """
    if text.count("[") > MOST_BRACKETS:
        yield begin, len(text), text_part(text[begin:])
        return
    found, place = list[tuple[int, int, Part]](), begin
    for first, end, token in _placed(text, begin, parser, environment):
        if first < place:
            yield begin, len(text), text_part(text[begin:])
            return
        is_break = token is not None and token.type in {"softbreak", "hardbreak"}
        between = text[place:first].rstrip() if is_break else text[place:first]
        found += _kept(between, place)
        if is_break and (mark := OWN_LINE.match(text, end)):
            end = mark.end()
            found.append((first, end, Part(Kind.BREAK, code=text[first:end])))
        elif token is not None:
            found.append((first, end, _part(text[first:end], token)))
        place = end
    parts = paired(_with_tag(part) for _, _, part in found)
    yield from ((first, end, part) for (first, end, _), part in zip(found, parts, strict=True))


def _placed(
    text: str, begin: int, parser: MarkdownIt, environment: dict[str, Any]
) -> Iterator[tuple[int, int, Token | None]]:
    """Yield the tokens that are more than text, and where each begins and ends; None is the end."""
    from markdown_it.rules_inline import StateInline

    state = StateInline(text[begin:], parser, environment, [])
    parser.inline.tokenize(state)
    for rule in parser.inline.ruler2.getRules(""):
        rule(state)
    kept, level = None, 0  # the link that is one part, and how deep its tokens are
    for token in state.tokens:
        level += token.nesting
        if kept is not None:
            if level == 0 and token.type == "link_close":
                yield begin + kept.meta["place"][0], begin + token.meta["place"][1], kept
                kept = None
        elif token.meta.get("is_kept"):
            kept, level = token, 1
        elif token.type != "text":
            first, end = token.meta["place"]
            # Each character of these is a token.
            first -= token.type == "strong_open"
            end += token.type == "strong_close"
            yield begin + first, begin + end, token
    yield len(text), len(text), None


def _part(raw: str, token: Token) -> Part:
    """Return the part of a token that is more than text."""
    if token.type == "softbreak":
        return text_part(" ")
    if token.type == "hardbreak":
        return Part(Kind.BREAK, code=BREAK)
    if token.type == "html_inline" and HTML_BREAK.fullmatch(raw):
        return Part(Kind.BREAK, code=raw)
    if token.type == "text_special":
        return Part(Kind.TEXT, token.content, raw)
    if token.nesting == 0 or token.meta.get("is_kept"):
        return Part(Kind.POINT, code=raw, is_visible=token.type != "html_inline")
    return Part(Kind.OPEN if token.nesting > 0 else Kind.CLOSE, code=raw)


def _kept(text: str, begin: int) -> Iterator[tuple[int, int, Part]]:
    """Yield the parts of a text, and where they are, if it begins at ``begin``."""
    ends = [0, *(place for match in KEPT.finditer(text) for place in match.span()), len(text)]
    for number, (first, end) in enumerate(pairwise(ends)):
        raw = text[first:end]
        part = Part(Kind.POINT, code=raw) if number % 2 else text_part(raw)
        if raw:
            yield begin + first, begin + end, part


def _with_tag(part: Part) -> tuple[Part, str | None, str | None]:
    """Return a part, and the names of the elements of HTML that it begins and ends."""
    tag = HTML_TAG.fullmatch(part.code) if part.kind is Kind.POINT else None
    if tag is None or tag[1]:
        return part, None, tag[2].lower() if tag else None
    name = tag[2].lower()
    return part, None if tag[3] or name in VOID else name, None


def _written(segment: InlineText, text: str) -> str:
    """Return the translation ``text`` of a segment as Markdown."""
    source = "".join(part.text for part in segment.parts if part.code is None)
    escaped = str.maketrans({c: f"\\{c}" for c in SPECIAL if c not in source})
    whole = joined(segment.translated(text), lambda part: part.text.translate(escaped))
    mark = None if MARK.match(source) else MARK.match(whole)
    return whole if mark is None else f"{mark[1] or ''}\\{whole[len(mark[1] or '') :]}"
