"""Documents of Markdown: CommonMark, with tables, and strikethrough as in GitHub's.

Paragraphs, headings and cells of tables are segments; line breaks that Markdown keeps divide them.
Code, links, tags, front matter and the forms of other programs stay as they are. A paragraph that
is translated becomes a line.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from nmt_cli.documents.document import decoded
from nmt_cli.documents.inline import InlineText, Kind, Part, has_text, joined, paired, text_part
from nmt_cli.documents.markdown_forms import COMPONENT, FRONT_MATTER, LABEL, parser_of_forms
from nmt_cli.messages import logs
from nmt_cli.translating.interface.request import Request
from nmt_cli.translating.interface.translation import Translation
from nmt_cli.translating.segmentation.markup.blocks import SEPARATING, VOID

if TYPE_CHECKING:
    from markdown_it.token import Token

LINE_END = re.compile(r"\r\n?|\n")
# What lines of a paragraph begin with that is no text. They stay lines.
BEFORE_TEXT = re.compile(
    r"\*\[[^\[\]]+\]:[ \t]*|\|[ \t]*|:[a-z][\w ]{0,60}:[ \t]+"
    rf"|(?=\{{[:.#])|:::.*|(?:(?:{COMPONENT}[ \t]*)+(?:\n|$))+"
)
# Boxes to tick; tags that are HTML because they are alone on the first line.
FIRST = re.compile(r"\[[ xX]\][ \t]+|(?:<[^<>]*>\s*)+\n")
HTML_TAG = re.compile(r"<(/?)([A-Za-z][\w.-]*)(?![\w.:@+-]).*?(/?)>", re.DOTALL)
NO_TEXT = re.compile(r"(?is)\s*<(?:!(?!--.*?-->\s*\S)|\?|(?:pre|script|style|svg|textarea)\b)")
ATTRIBUTES = re.compile(r"\{(?![{%=+-])[^{}]*\}")  # of what is before them
INVISIBLE = re.compile(r"<(?!\w+[:@])|%%|\{\s*[#.:]")
# A text must not become the mark of a list, a heading or a quotation.
MARK = re.compile(r"(\d{1,9})[.)](?=\s|$)|(?:#{1,6}|[>+-])(?=\s|$)")
SPECIAL = "\\`*_[]<|{"  # escaped in translations of texts without them
BREAK = "\\\n"
MOST_BRACKETS = 2_000  # of a block; the time for them is quadratic, and no text has so many

# A translation with "\ufdd0" and "\ufdd1" around the begins of codes, and "\ufdd2" around ends.
EMPHASIS = {"*": "em", "_": "em", "**": "strong", "__": "strong", "~~": "s"}
_MARK = r"(?:\*\*?|__?|~~)"
EMPTY = re.compile(rf"\ufdd0{_MARK}\ufdd1(\s*)\ufdd2{_MARK}\ufdd2")
BEGINS = re.compile(r"(?<!\s)\s*((?:\ufdd0[^\ufdd1]*\ufdd1)+)\s+")
ENDS = re.compile(r"(?<!\s)\s+((?:\ufdd2[^\ufdd2]*\ufdd2)+)\s*")
MARKS = re.compile(rf"([\ufdd0\ufdd2])({_MARK})[\ufdd1\ufdd2]")
SAME_LABEL = re.compile(rf"\[([^\[\]{LABEL}]*)\]{LABEL}\[\1\]{LABEL}")


class _Segment(NamedTuple):
    begin: int  # in the document
    end: int
    text: InlineText


class _Block(NamedTuple):
    """A text of several lines, without what is before each in the document, such as "> "."""

    text: str
    places: Sequence[tuple[int, int]]  # where each line begins in the text and in the document
    line: int  # the number of the first one
    is_html: bool = False

    def place(self, in_text: int) -> int:
        """Return the place in the document of a place in the text."""
        begin, found = self.places[bisect_right(self.places, (in_text, math.inf)) - 1]
        return found + in_text - begin


class MarkdownDocument:
    """A document of Markdown."""

    def __init__(self, data: bytes) -> None:
        self._decoded = found = decoded(data)
        front = FRONT_MATTER.match(found.text)
        start = front.end() if front else 0
        self._parser = parser_of_forms()
        self._left = list[tuple[int, str]]()  # the lines of what is left out, and what it is
        self._environment = dict[str, Any](left=self._left, is_mdx=False)
        tokens = self._parser.parse(found.text[start:], self._environment)
        if self._environment["is_mdx"]:  # where what is indented is no code
            self._left.clear()
            tokens = self._parser.disable("code").parse(found.text[start:], self._environment)
        blocks = self._blocks(start, tokens)
        self._segments = [segment for block in blocks for segment in self._of_block(block)]
        self.segments: Sequence[Request] = [each.text.request for each in self._segments]
        if self._left:
            first = len(LINE_END.findall(found.text[:start])) + 1
            named = [f"{what} in line {first + line:,}" for line, what in sorted(self._left)]
            named[10:] = ["..."] if len(named) > 10 else []
            logs.warning(f"Not all of the document is translated. Left are {', '.join(named)}.")

    def filled(self, translations: Sequence[Translation]) -> bytes:
        """Return the document with the translation of each segment in its place."""
        source, written, place = self._decoded.text, list[str](), 0
        for segment, translation in zip(self._segments, translations, strict=True):
            if translation.text != segment.text.request.text:
                text = self._written(segment.text, translation.text)
                written += [source[place : segment.begin], text]
                place = segment.end
        return self._decoded.encoded("".join([*written, source[place:]]))

    def _blocks(self, start: int, tokens: Sequence[Token]) -> Iterator[_Block]:
        """Yield the blocks of text of ``tokens``, which are those of the text from ``start``."""
        source = self._decoded.text
        ends = [start, *(start + each.end() for each in LINE_END.finditer(source[start:]))]
        ends += [len(source)] * 2
        last_end = start
        for number, token in enumerate(tokens):
            is_html = token.type == "html_block" and not NO_TEXT.match(token.content)
            if token.map is None or not (is_html or token.type == "inline"):
                continue
            is_cell = number > 0 and tokens[number - 1].type in {"th_open", "td_open"}
            lines, places, length = list[str](), list[tuple[int, int]](), 0
            for number, content in enumerate(token.content.rstrip("\n").split("\n"), token.map[0]):
                line = content.lstrip()
                if is_cell:
                    line = line.replace("|", "\\|")
                    place = source.find(line, max(ends[number], last_end), ends[number + 1])
                else:
                    place = source.rfind(line, ends[number], ends[number + 1])
                if place < 0:  # a tab that is partly an indent, or NUL
                    self._left.append((token.map[0], "a text behind a tab"))
                    break
                lines.append(line)
                places.append((length, place))
                length, last_end = length + len(line) + 1, place + len(line)
            else:
                yield _Block("\n".join(lines), places, token.map[0], is_html)

    def _of_block(self, block: _Block) -> Iterator[_Segment]:
        """Yield the segments of a block, between the line breaks that Markdown keeps."""
        mark = FIRST.match(block.text) or BEFORE_TEXT.match(block.text)
        begin = mark.end() if mark else 0
        if block.text.count("[") > MOST_BRACKETS:
            self._left.append((block.line, f"a text with more than {MOST_BRACKETS:,} ["))
            return
        parts, depth = list[Part](), 0
        found = list(self._parts(block, begin))
        if block.is_html and any("{" in part.text or "}" in part.text for _, _, part in found):
            self._left.append((block.line, "HTML with expressions"))
            return
        last = len(block.text), len(block.text), Part(Kind.BREAK)
        for place, end, part in [*found, last]:
            depth += part.nesting
            if not parts and part.kind is Kind.TEXT and part.text.isspace():
                begin = end
            elif part.kind is not Kind.BREAK or depth:
                parts.append(part)
            else:
                if has_text(parts):
                    # Spaces may be part of the break.
                    length = len(block.text[begin:place].rstrip())
                    last_place = block.place(begin + length - 1) + 1
                    yield _Segment(block.place(begin), last_place, InlineText(parts))
                begin, parts = end, []

    def _parts(self, block: _Block, begin: int) -> Iterator[tuple[int, int, Part]]:
        """Yield the parts of a text, and where each begins and ends.

        They are balanced. There are none if the tokens of the text are not in order.
        """
        text = block.text
        found, place = list[tuple[int, int, Part]](), begin
        for first, end, token in self._placed(text, begin):
            if first < place < end:
                self._left.append((block.line, "marks within others"))
                return
            if first < place:  # in what the line begins with
                continue
            is_break = token is not None and token.type in {"softbreak", "hardbreak"}
            between = text[place:first].rstrip() if is_break else text[place:first]
            if between:
                found.append((place, place + len(between), text_part(between)))
            if is_break and (mark := BEFORE_TEXT.match(text, end)):
                end = mark.end()
                found.append((first, end, Part(Kind.BREAK, code=text[first:end])))
            elif token is not None:
                part = _part(text[first:end], token)
                if text[first:end] == "^[" and first > begin:  # apart from the word before
                    found.append((first, first, text_part(" ")))
                before = found[-1][2] if first == place and found else part
                if before is not part and _takes_attributes(before, text[first:end]):
                    first, part = found.pop()[0], before._replace(code=before.code + part.code)
                found.append((first, end, part))
            place = end
        parts = paired(_with_tag(part) for _, _, part in found)
        yield from ((first, end, part) for (first, end, _), part in zip(found, parts, strict=True))

    def _placed(self, text: str, begin: int) -> Iterator[tuple[int, int, Token | None]]:
        """Yield the tokens that are more than text, and their places; None is at the end."""
        from markdown_it.rules_inline import StateInline

        state = StateInline(text[begin:], self._parser, self._environment, [])
        self._parser.inline.tokenize(state)
        for rule in self._parser.inline.ruler2.getRules(""):
            rule(state)
        for token in state.tokens:
            if token.type != "text":
                first, end = token.meta["place"]
                # Each character of these is a token.
                first -= token.type == "strong_open"
                end += token.type == "strong_close"
                yield begin + first, begin + end, token
        yield len(text), len(text), None

    def _written(self, segment: InlineText, text: str) -> str:
        """Return the translation ``text`` of a segment as Markdown."""
        source = "".join(part.text for part in segment.parts if part.code is None)
        escaped = str.maketrans({c: f"\\{c}" for c in SPECIAL if c not in source})
        parts = _apart(segment.translated(text))
        noted = _tidied(joined(parts, lambda part: part.text.translate(escaped)))
        whole = _plain(noted)
        tokens = [token for _, _, token in self._placed(whole, 0) if token and token.nesting > 0]
        if len(MARKS.findall(noted)) != 2 * sum(token.markup in EMPHASIS for token in tokens):
            whole = _plain(MARKS.sub(_as_tag, noted))  # between letters, marks may be signs
        mark = None if MARK.match(source) else MARK.match(whole)
        return whole if mark is None else f"{mark[1] or ''}\\{whole[len(mark[1] or '') :]}"


def _part(raw: str, token: Token) -> Part:
    """Return the part of a token that is more than text."""
    if token.type == "softbreak":
        return text_part(" ")
    if token.type == "hardbreak":
        return Part(Kind.BREAK, code=BREAK)
    if token.type == "text_special":
        return Part(Kind.TEXT, token.content, raw)
    raw = token.meta.get("code", raw).replace("\n", " ")
    if (tag := HTML_TAG.fullmatch(raw)) and (_name(tag) in SEPARATING):
        return Part(Kind.BREAK, code=raw)
    if token.nesting == 0:
        return Part(Kind.POINT, code=raw, is_visible=not INVISIBLE.match(raw))
    if token.nesting > 0:
        return Part(Kind.OPEN, code=f"\ufdd0{raw}\ufdd1")
    return Part(Kind.CLOSE, code=f"\ufdd2{raw}\ufdd2")


def _apart(parts: Iterable[Part]) -> Iterator[Part]:
    """Yield ``parts`` with a space between codes whose marks would be another mark."""
    before = ""
    for part in parts:
        code = part.code if part.kind is Kind.POINT else ""
        if code[:1] in ("`", "$") and before.endswith(code[:1]):
            yield text_part(" ")
        yield part
        before = code


def _takes_attributes(before: Part, raw: str) -> bool:
    """Return whether ``raw`` are attributes of the part before."""
    is_code = before.kind in {Kind.CLOSE, Kind.POINT} and not before.code.startswith("<")
    return is_code and ATTRIBUTES.fullmatch(raw) is not None


def _name(tag: re.Match[str]) -> str:
    """Return the name of a tag; "Link" is a component, and "LINK" an element of HTML."""
    return tag[2].lower() if tag[2].isupper() else tag[2]


def _with_tag(part: Part) -> tuple[Part, str | None, str | None]:
    """Return a part, and the names of the elements of HTML that it begins and ends."""
    tag = HTML_TAG.fullmatch(part.code) if part.kind is Kind.POINT else None
    if tag is None or tag[1]:
        return part, None, _name(tag) if tag else None
    return part, None if tag[3] or _name(tag) in VOID else _name(tag), None


def _tidied(noted: str) -> str:
    """Return a text without emphasis of nothing, and with spaces outside of emphasis and links.

    Marks of emphasis with nothing in them, or beside a space, would be signs.
    """
    for _ in range(3):  # emphasis in emphasis
        noted = EMPTY.sub(r"\1", noted)
    return ENDS.sub(r"\1 ", BEGINS.sub(r" \1", noted)).strip()


def _plain(noted: str) -> str:
    """Return a text without what was noted in it."""
    text = re.sub("[\ufdd0-\ufdd2]", "", noted).replace(" ^[", "^[")
    return SAME_LABEL.sub(r"[\1]", text).replace(f"{LABEL}[]", "").replace(LABEL, "")


def _as_tag(mark: re.Match[str]) -> str:
    """Return a tag of HTML for a mark of emphasis."""
    return ("</" if mark[1] == "\ufdd2" else "<") + EMPHASIS[mark[2]] + ">"
