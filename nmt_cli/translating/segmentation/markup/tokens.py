"""Reads HTML and XML into tokens that know their own text, to the last byte.

Tokens of HTML are those of browsers (https://html.spec.whatwg.org/#tokenization), which a scanner
here finds in a time that is linear in the length, whatever is sent. XML is read by expat. Parsers
that build a tree, such as lxml, write what they read in other bytes.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator, Mapping, Sequence
from enum import Enum, auto
from typing import NamedTuple
from xml.parsers import expat

from nmt_cli.translating.interface.request import LineError

# What html.unescape takes for a reference to a character, with or without its semicolon.
REFERENCE = re.compile(r"&(?:#[0-9]+;?|#[xX][0-9a-fA-F]+;?|[^\t\n\f <&#;]{1,32};?)")
# Python reads no numbers of more than 4,300 digits, also not in a reference.
LONG_REFERENCE = re.compile("&#[0-9]{1000}")
# Elements whose content is text to the parsers of browsers, whatever it looks like.
RAW_TEXT = {"script", "style", "textarea", "xmp", "iframe", "noembed", "noframes", "plaintext"}
SPACE = r"\t\n\f\r "
TAG_BEGIN = re.compile(rf"</?([A-Za-z][^{SPACE}/>]*)")
# A name may begin with an equals sign. The second group is there if a value follows.
ATTRIBUTE = re.compile(rf"[{SPACE}/]*([^{SPACE}/>][^{SPACE}/>=]*)([{SPACE}]*=[{SPACE}]*)?")
VALUE = re.compile(rf"""\"([^"]*)"|'([^']*)'|(?!["'])([^{SPACE}>]*)""")
TAG_END = re.compile(rf"[{SPACE}/]*>")
XHTML = re.compile(r"""xmlns\s*=\s*["']http://www\.w3\.org/1999/xhtml["']""")
SEARCHED = 4096  # characters in which a document says that it is XHTML
COMMENT, SECTION = "<!--", "<![CDATA["
COMMENT_END = re.compile("--!?>")
EMPTY_COMMENTS = ("<!-->", "<!--->")
RAW_END = {
    name: re.compile(f"</{name}(?=[{SPACE}/>])", re.IGNORECASE)
    for name in RAW_TEXT - {"script", "plaintext"}
}
# Within what looks like a comment, a script may hold others, which end there.
SCRIPT_PART = re.compile(rf"<!(?=--)|-->|<(/?)script(?=[{SPACE}/>])", re.IGNORECASE)


class TokenKind(Enum):
    """The kinds of tokens."""

    TEXT = auto()
    START = auto()
    END = auto()
    EMPTY = auto()  # a start tag that ends in />
    OTHER = auto()  # comments, declarations, CDATA sections and the like
    REST = auto()  # of HTML: a tag, a comment or the like without an end, which has all behind it


NO_ATTRIBUTES: Mapping[str, str | None] = {}


class Token(NamedTuple):
    """A part of the source."""

    kind: TokenKind
    raw: str  # as it is in the source
    name: str = ""  # of a tag
    attributes: Mapping[str, str | None] = NO_ATTRIBUTES
    # Of a text: its parts as they are in the source, and what they mean; references are parts, here
    # with a semicolon.
    parts: Sequence[tuple[str, str]] = ()


def html_tokens(source: str) -> list[Token]:
    """Return the tokens of ``source``. What browsers ignore is left out, such as ``</>``.

    Raises LineError for references of too many digits.
    """
    if (found := LONG_REFERENCE.search(source)) is not None:
        raise LineError(f"it has a reference of 1,000 digits at character {found.start() + 1:,}")
    return list(_html_tokens(source))


def _html_tokens(source: str) -> Iterator[Token]:
    last_section_end = source.rfind("]]>")  # so that it is not looked for in vain again and again
    text_begin = place = 0
    while (begin := source.find("<", place)) >= 0:
        tag, sign = TAG_BEGIN.match(source, begin), source[begin + 1 : begin + 3]
        if tag is None and (sign[:1] not in {"!", "?", "/"} or sign == "/"):
            place = begin + 1  # it is part of a text
            continue
        if text_begin < begin:
            yield _html_text(source[text_begin:begin])
        if tag is not None:
            token, end = _tag(source, tag)
        else:
            end = _end_of_other(source, begin, has_section_end=begin < last_section_end)
            token = Token(TokenKind.REST if end is None else TokenKind.OTHER, source[begin:end])
        if token.raw != "</>":
            yield token
        text_begin = place = len(source) if end is None else end
        if token.kind is TokenKind.START and token.name in RAW_TEXT:
            text_begin = place = _end_of_raw_text(source, token.name, place)
            if source[end:place]:
                yield Token(TokenKind.OTHER, source[end:place])
    if text_begin < len(source):
        yield _html_text(source[text_begin:])


def _tag(source: str, begin: re.Match[str]) -> tuple[Token, int | None]:
    """Return the tag that begins with this match, and where it ends; None if it has no end."""
    attributes, place = _attributes(source, begin.end())
    last = None if place is None else TAG_END.match(source, place)
    if last is None:
        return Token(TokenKind.REST, source[begin.start() :]), None
    raw, name = source[begin.start() : last.end()], begin[1].lower()
    if raw.startswith("</"):
        return Token(TokenKind.END, raw, name), last.end()
    is_empty = last[0].endswith("/>") and name not in RAW_TEXT  # there browsers ignore the /
    kind = TokenKind.EMPTY if is_empty else TokenKind.START
    return Token(kind, raw, name, attributes), last.end()


def _attributes(source: str, place: int) -> tuple[Mapping[str, str | None], int | None]:
    """Return the attributes from ``place``, and where they end; None if a quotation does not."""
    found = dict[str, str | None]()
    while (attribute := ATTRIBUTE.match(source, place)) is not None:
        place, value = attribute.end(), None
        if attribute[2] is not None:
            if (given := VALUE.match(source, place)) is None:
                return NO_ATTRIBUTES, None
            value, place = html.unescape(given[given.lastindex or 0]), given.end()
        found.setdefault(attribute[1].lower(), value)
    return found or NO_ATTRIBUTES, place


def _end_of_other(source: str, begin: int, *, has_section_end: bool) -> int | None:
    """Return where a comment, a section or the like ends; None if it has no end."""
    if source.startswith(COMMENT, begin):
        empty = next((each for each in EMPTY_COMMENTS if source.startswith(each, begin)), None)
        if empty is not None:
            return begin + len(empty)
        found = COMMENT_END.search(source, begin + len(COMMENT))
        return None if found is None else found.end()
    last = "]]>" if has_section_end and source.startswith(SECTION, begin) else ">"
    end = source.find(last, begin)
    return None if end < 0 else end + len(last)


def _end_of_raw_text(source: str, name: str, begin: int) -> int:
    """Return where the content of an element ends: where its end tag begins, if it has one."""
    if name != "script":
        end = None if name == "plaintext" else RAW_END[name].search(source, begin)
        return len(source) if end is None else end.start()
    is_comment = is_inner = False
    for part in SCRIPT_PART.finditer(source, begin):
        if part[1] is None:
            is_comment, is_inner = part[0] == "<!", is_inner and part[0] == "<!"
        elif not part[1]:
            is_inner = is_comment
        elif is_inner:
            is_inner = False
        else:
            return part.start()
    return len(source)


def _html_text(raw: str) -> Token:
    parts, place = list[tuple[str, str]](), 0
    for match in REFERENCE.finditer(raw):
        meaning = html.unescape(match[0])
        if meaning != match[0]:
            # A digit of a translation may be put behind it.
            ended = match[0] if html.unescape(f"{match[0]};") != meaning else f"{match[0]};"
            parts += [(raw[place : match.start()],) * 2, (ended, meaning)]
            place = match.end()
    parts.append((raw[place:], raw[place:]))
    return Token(TokenKind.TEXT, raw, parts=parts)


def xml_tokens(source: str) -> list[Token]:
    """Return the tokens of a document, or of a fragment, which has any number of roots.

    Raises LineError if it is not well-formed.
    """
    opening, closing = (b"<fragment>", b"</fragment>")
    if _is_document(source):
        opening = closing = b""
    data = opening + source.encode() + closing
    end = len(data) - len(closing)
    reader = _XMLReader(data, len(opening), end)
    # Entities such as &nbsp; are declared by the DTD of XHTML, which few documents name.
    reader.parser.UseForeignDTD(XHTML.search(source[:SEARCHED]) is not None)
    try:
        reader.parser.Parse(data, True)
    except expat.ExpatError as error:
        what = expat.ErrorString(error.code)
        before = data[len(opening) : min(end, reader.parser.ErrorByteIndex)]
        place = len(before.decode(errors="ignore"))
        raise LineError(f"it is not XML: {what} at character {place + 1:,}") from None
    return reader.finished()


def _is_document(source: str) -> bool:
    """Return whether an XML declaration or a DOCTYPE comes before the first element."""
    place = len(source) - len(source.removeprefix("\ufeff").lstrip())
    if source.startswith("<?xml", place):
        return True
    while not source.startswith("<!DOCTYPE", place):
        ends = {"<!--": "-->", "<?": "?>"}
        end = next((ends[start] for start in ends if source.startswith(start, place)), None)
        found = -1 if end is None else source.find(end, place)
        if end is None or found < 0:
            return False
        place = found + len(end)
        while source[place : place + 1].isspace():
            place += 1
    return True


_Begun = tuple[TokenKind, str, Mapping[str, str | None], str | None]
OTHER: _Begun = TokenKind.OTHER, "", NO_ATTRIBUTES, None
PLAIN_TEXT: _Begun = TokenKind.TEXT, "", NO_ATTRIBUTES, None


class _XMLReader:
    """Makes a token of each event of expat when the next one shows where it ends.

    Tags without attributes that are written alike are one object.
    """

    def __init__(self, data: bytes, begin: int, end: int) -> None:
        """``begin`` and ``end`` are the places, in bytes, between which tokens are wanted."""
        self._data, self._places = data, range(begin, end)
        self._tokens, self._known = list[Token](), dict[str, Token]()
        self._is_inside = False  # a declaration or a section that is kept whole
        # The kind, name, attributes and meaning of the token that begins at a place. Expat reports
        # a DOCTYPE late, and a byte order mark not at all.
        self._place, self._begun = begin, OTHER
        parser = self.parser = expat.ParserCreate("utf-8")
        # With this handler, entities that a document declares are not expanded.
        parser.DefaultHandler = lambda _: self._add(TokenKind.OTHER)
        parser.StartElementHandler = lambda name, found: self._add(TokenKind.START, name, found)
        parser.EndElementHandler = lambda name: self._add(TokenKind.END, name)
        parser.CharacterDataHandler = self._add_text
        parser.StartCdataSectionHandler = self._begin
        parser.EndCdataSectionHandler = self._end
        parser.StartDoctypeDeclHandler = self._begin
        parser.EndDoctypeDeclHandler = self._end

    def finished(self) -> list[Token]:
        """Return all tokens."""
        self._end_token(self._places.stop)
        return self._tokens

    def _add(
        self,
        kind: TokenKind,
        name: str = "",
        attributes: Mapping[str, str | None] = NO_ATTRIBUTES,
        meaning: str | None = None,
    ) -> None:
        place = self.parser.CurrentByteIndex
        if not self._is_inside and place in self._places:
            self._end_token(place)
            self._place, self._begun = place, (kind, name, attributes or NO_ATTRIBUTES, meaning)

    def _add_text(self, text: str) -> None:
        """Add a text, whose meaning is None if that is how it is written.

        Expat reports references and line ends by themselves.
        """
        is_reference = self._data[self.parser.CurrentByteIndex] in b"&\r"
        if is_reference or self._begun != PLAIN_TEXT:
            self._add(TokenKind.TEXT, meaning=text if is_reference else None)

    def _end_token(self, end: int) -> None:
        raw = self._data[self._place : end].decode()
        kind, name, attributes, meaning = self._begun
        if kind is TokenKind.START and raw.endswith("/>"):
            kind = TokenKind.EMPTY
        if kind is TokenKind.TEXT:
            parts = [(raw, raw if meaning is None else meaning)]
            self._tokens.append(Token(kind, raw, parts=parts))
        elif raw:
            token = Token(kind, raw, name, attributes)
            self._tokens.append(token if attributes else self._known.setdefault(raw, token))

    def _begin(self, *_: object) -> None:
        self._add(TokenKind.OTHER)
        self._is_inside = True

    def _end(self) -> None:
        self._is_inside = False
