"""Elements of translators' XML, TMX and XLIFF, as tokens that are written as they were read."""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterator, Mapping, Sequence
from html import escape
from typing import NamedTuple

from nmt_cli.corpus.text.memories import CODES
from nmt_cli.documents.document import DocumentError, decoded
from nmt_cli.documents.inline import CLOSE, InlineText, Part, joined, paired, partners, text_part
from nmt_cli.documents.inline import Kind as PartKind
from nmt_cli.documents.markup import IN_XML
from nmt_cli.translating.markup.tokens import Kind, Token, xml_tokens

PAIRS = {"bpt": "ept", "bx": "ex", "sc": "ec"}  # codes that begin, and those that end
DEEPEST = 256  # nested elements
ATTRIBUTE = re.compile(r"""([^\s=<]+)\s*=\s*(?:"[^"]*"|'[^']*')""")


class Element(NamedTuple):
    """An element, by the places of its tags among the tokens; they are equal if it is empty."""

    name: str  # without prefix
    begin: int
    end: int
    inside: Sequence[Element] = ()


class TokenizedXml:
    """A file of XML: its tokens, and the root with all elements in it."""

    def __init__(self, data: bytes, root: str) -> None:
        """Raise LineError if it is not well-formed, and DocumentError if it has another root."""
        self.decoded = decoded(data, IN_XML)
        self.tokens = xml_tokens(self.decoded.text)
        if any(each.kind is Kind.OTHER and "<!ENTITY" in each.raw for each in self.tokens):
            raise DocumentError("it declares entities; write their texts in their places")
        self.root = _root_of(self.tokens)
        if self.root.name != root:
            raise DocumentError(f"its root is {self.root.name[:40] or 'missing'}, not {root}")

    def parts(self, element: Element) -> list[Part]:
        """Return what is between the tags of an element: characters and codes."""
        return paired(_keyed(self.tokens[element.begin + 1 : element.end]))

    def space_before(self, element: Element) -> str:
        """Return the white space before an element."""
        first = element.begin
        while self.tokens[first - 1].kind is Kind.TEXT and self.tokens[first - 1].raw.isspace():
            first -= 1
        return "".join(token.raw for token in self.tokens[first : element.begin])

    def fill(self, raw: list[str], element: Element, tag: str, text: str) -> None:
        """Write ``text`` between the tags of an element, whose start tag becomes ``tag``.

        ``raw`` holds the tokens as they are written.
        """
        begin, end = element.begin, element.end
        if begin == end:
            raw[begin] = f"{tag[:-2].rstrip()}>{text}</{self.tokens[begin].name}>"
            return
        raw[begin + 1 : end] = [""] * (end - begin - 1)
        raw[begin] = tag + text


def _root_of(tokens: Sequence[Token]) -> Element:
    """Return the root, with all elements inside. Raises DocumentError if too many are nested."""
    opened: list[tuple[str, int, list[Element]]] = [("", 0, [])]
    for place, token in enumerate(tokens):
        name = token.name.rpartition(":")[2]
        if token.kind is Kind.START:
            opened.append((name, place, []))
            if len(opened) > DEEPEST:
                raise DocumentError(f"its elements are nested more than {DEEPEST} deep")
        elif token.kind is Kind.EMPTY:
            opened[-1][2].append(Element(name, place, place))
        elif token.kind is Kind.END and token.raw:
            name, begin, inside = opened.pop()
            opened[-1][2].append(Element(name, begin, place, tuple(inside)))
    return next(iter(opened[0][2]), Element("", 0, 0))


def _keyed(tokens: Sequence[Token]) -> Iterator[tuple[Part, Hashable, Hashable]]:
    """Yield the parts of a text, and what each begins and ends.

    Codes that belong together, such as <bpt i="1"> and <ept i="1">, have the same attribute.
    """
    for token, part in _parts(tokens):
        name, given = token.name.rpartition(":")[2], token.attributes
        key = next((given[each] for each in ("rid", "i", "startRef", "id") if each in given), None)
        begun = (PAIRS[name], key) if name in PAIRS else None
        yield part, begun, (name, key) if name else None


def _parts(tokens: Sequence[Token]) -> Iterator[tuple[Token, Part]]:
    """Yield the parts of a text, and the token that each begins with."""
    place = 0
    ends = partners((each.kind is Kind.START) - (each.kind is Kind.END) for each in tokens)
    while place < len(tokens):
        token = tokens[place]
        name = token.name.rpartition(":")[2]
        is_kept = name in CODES or "no" in {token.attributes.get("translate")}
        is_kept = is_kept or token.attributes.get("mtype") == "protected"
        if token.kind is Kind.TEXT:
            for raw, meaning in token.parts:
                is_plain = raw == meaning
                yield token, text_part(raw) if is_plain else Part(PartKind.TEXT, meaning, raw)
        elif token.kind is Kind.START and is_kept:
            end = ends[place]
            code = "".join(each.raw for each in tokens[place : end + 1])
            yield token, Part(PartKind.POINT, code=code)
            place = end
        elif token.kind is Kind.START:
            yield token, Part(PartKind.OPEN, code=(token.raw, tokens[ends[place]].raw))
        elif token.kind is Kind.END:
            yield token, CLOSE
        else:
            is_visible = token.kind is Kind.EMPTY or not token.raw.startswith("<!--")
            yield token, Part(PartKind.POINT, code=token.raw, is_visible=is_visible)
        place += 1


def written_codes(source: InlineText, text: str) -> str:
    """Return a translation of ``source`` with its codes."""
    return joined(source.translated(text), lambda part: escape(part.text, quote=False))


def with_attributes(tag: str, attributes: Mapping[str, str]) -> str:
    """Return a start tag with these attributes."""
    for name, value in attributes.items():
        found = next((each for each in ATTRIBUTE.finditer(tag) if each[1] == name), None)
        if found is None:
            place = len(tag.rstrip("/>").rstrip())
            tag = f'{tag[:place]} {name}="{value}"{tag[place:]}'
        else:
            tag = f'{tag[: found.start()]}{name}="{value}"{tag[found.end() :]}'
    return tag
