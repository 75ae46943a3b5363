"""Reads HTML and XML into tokens that know their own text, to the last byte.

The parsers are those of Python's standard library, ``html.parser`` and expat, because both report
where a token begins. Parsers that build a tree, such as lxml, write what they read in other bytes.
"""

from __future__ import annotations

import html
import re
from collections.abc import Mapping, Sequence
from enum import Enum, auto
from html.parser import HTMLParser
from itertools import accumulate
from typing import Any, NamedTuple
from xml.parsers import expat

from nmt_cli.translating.request import LineError

# What html.unescape takes for a reference to a character, with or without its semicolon.
REFERENCE = re.compile(r"&(?:#[0-9]+;?|#[xX][0-9a-fA-F]+;?|[^\t\n\f <&#;]{1,32};?)")
# Python reads no numbers of more than 4,300 digits, also not in a reference.
LONG_REFERENCE = re.compile("&#[0-9]{1000}")
# Elements whose content is text to the parsers of browsers, whatever it looks like.
RAW_TEXT = {"script", "style", "textarea", "xmp", "iframe", "noembed", "noframes", "plaintext"}
ENDS_OF_TOKENS = {"<!--": ("-->", "--!>"), "<![CDATA[": ("]]>",), "<": (">",)}


class Kind(Enum):
    """The kinds of tokens."""

    TEXT = auto()
    START = auto()
    END = auto()
    EMPTY = auto()  # a start tag that ends in />
    OTHER = auto()  # comments, declarations, CDATA sections and the like


NO_ATTRIBUTES: Mapping[str, str | None] = {}


class Token(NamedTuple):
    """A part of the source."""

    kind: Kind
    raw: str  # as it is in the source
    name: str = ""  # of a tag
    attributes: Mapping[str, str | None] = NO_ATTRIBUTES
    # Of a text: its parts as they are in the source, and what they mean; references are parts.
    parts: Sequence[tuple[str, str]] = ()


def html_tokens(source: str) -> list[Token]:
    """Return the tokens of ``source``. What the parser ignores is left out, such as ``</>``.

    Raises LineError for what the parser of this version of Python cannot read.
    """
    if (found := LONG_REFERENCE.search(source)) is not None:
        raise LineError(f"it has a reference of 1,000 digits at character {found.start() + 1:,}")
    # What follows the last tag holds none. The parser would look for one again and again.
    source, rest = source[: source.rfind(">") + 1], source[source.rfind(">") + 1 :]
    reader = _HTMLReader(source)
    try:
        reader.feed(source)
        reader.close()
    except AssertionError as error:
        raise LineError(f"it cannot be read as HTML: {error}") from None
    ends = [*(place for place, _ in reader.events[1:]), len(source)]
    tokens, raw_text = list[Token](), None
    for (place, (kind, name, attributes, data)), end in zip(reader.events, ends, strict=False):
        raw = source[place:end]
        if raw_text is not None and not (kind is Kind.END and name == raw_text):
            tokens.append(Token(Kind.OTHER, raw))
            continue
        raw_text = name if kind is Kind.START and name in RAW_TEXT else None
        if kind is Kind.TEXT:
            tokens += _html_text(raw, data)
        elif kind is Kind.OTHER:
            tokens.append(Token(kind, _ended(raw)))
        elif kind is Kind.END:
            tokens.append(Token(kind, raw[: raw.index(">") + 1], name))
        else:
            tokens.append(Token(kind, data, name, attributes))
            if raw_text is not None and len(raw) > len(data):  # it never ends
                tokens.append(Token(Kind.OTHER, raw[len(data) :]))
    if raw_text is not None:
        return [*tokens, Token(Kind.OTHER, rest)]
    text, comment, inside = rest.partition("<!--")
    tokens += _html_text(text.replace("<", "&lt;"), html.unescape(text))
    return [*tokens, Token(Kind.OTHER, _ended(comment + inside))] if comment else tokens


class _HTMLReader(HTMLParser):
    """Collects where each token begins, and its kind, name, attributes and text or tag."""

    CDATA_CONTENT_ELEMENTS = tuple(RAW_TEXT)  # type: ignore[misc]

    def __init__(self, source: str) -> None:
        super().__init__(convert_charrefs=True)
        self.events: list[tuple[int, tuple[Kind, str, Mapping[str, str | None], str]]] = []
        lines = (len(line) + 1 for line in source.split("\n"))
        self._line_starts = [0, *accumulate(lines)]

    def _add(
        self, kind: Kind, name: str = "", attributes: Sequence[Any] = (), data: str = ""
    ) -> None:
        line, column = self.getpos()
        place = self._line_starts[line - 1] + column
        self.events.append((place, (kind, name, dict(attributes), data)))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._add(Kind.START, tag, attrs, self.get_starttag_text() or "")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in RAW_TEXT:  # browsers ignore the / here
            self.handle_starttag(tag, attrs)
            self.set_cdata_mode(tag)
        else:
            self._add(Kind.EMPTY, tag, attrs, self.get_starttag_text() or "")

    def handle_endtag(self, tag: str) -> None:
        self._add(Kind.END, tag)

    def handle_data(self, data: str) -> None:
        self._add(Kind.TEXT, data=data)

    def handle_decl(self, decl: str) -> None:
        self._add(Kind.OTHER)

    def handle_comment(self, data: str) -> None:
        self._add(Kind.OTHER)

    handle_pi = unknown_decl = handle_comment


def _html_text(raw: str, data: str) -> list[Token]:
    """Return the token of a text, whose source is the beginning of ``raw``."""
    if html.unescape(raw) != data:  # markup follows that the parser ignores
        raw = raw[: len(data)] if raw.startswith("<") else raw.partition("<")[0]
    parts, place = list[tuple[str, str]](), 0
    for match in REFERENCE.finditer(raw):
        meaning = html.unescape(match[0])
        if meaning != match[0]:
            parts += [(raw[place : match.start()],) * 2, (match[0], meaning)]
            place = match.end()
    parts.append((raw[place:], raw[place:]))
    return [Token(Kind.TEXT, raw, parts=parts)] if raw else []


def _ended(raw: str) -> str:
    """Return a token with its end, which it may lack, and without what follows and is ignored."""
    if raw in {"<!-->", "<!--->"}:
        return raw
    ends = next(ends for start, ends in ENDS_OF_TOKENS.items() if raw.startswith(start))
    first = len("<!--") if raw.startswith("<!--") else 0
    found = [raw.index(end, first) + len(end) for end in ends if end in raw[first:]]
    return raw[: min(found)] if found else raw + ends[0]


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
    try:
        reader.parser.Parse(data, True)
    except expat.ExpatError as error:
        what = expat.errors.messages[error.code]
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


_Begun = tuple[Kind, str, Mapping[str, str | None], str | None]
OTHER: _Begun = Kind.OTHER, "", NO_ATTRIBUTES, None
PLAIN_TEXT: _Begun = Kind.TEXT, "", NO_ATTRIBUTES, None


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
        parser.DefaultHandler = lambda _: self._add(Kind.OTHER)
        parser.StartElementHandler = lambda name, found: self._add(Kind.START, name, found)
        parser.EndElementHandler = lambda name: self._add(Kind.END, name)
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
        kind: Kind,
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
            self._add(Kind.TEXT, meaning=text if is_reference else None)

    def _end_token(self, end: int) -> None:
        raw = self._data[self._place : end].decode()
        kind, name, attributes, meaning = self._begun
        if kind is Kind.START and raw.endswith("/>"):
            kind = Kind.EMPTY
        if kind is Kind.TEXT:
            parts = [(raw, raw if meaning is None else meaning)]
            self._tokens.append(Token(kind, raw, parts=parts))
        elif raw:
            token = Token(kind, raw, name, attributes)
            self._tokens.append(token if attributes else self._known.setdefault(raw, token))

    def _begin(self, *_: object) -> None:
        self._add(Kind.OTHER)
        self._is_inside = True

    def _end(self) -> None:
        self._is_inside = False
