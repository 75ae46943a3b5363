"""Elements of translators' XML, TMX and XLIFF, which are written as they were read."""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterator, Mapping, Sequence
from html import escape

from nmt_cli.corpus.text.memories import CODES
from nmt_cli.documents.document import DocumentError, decoded
from nmt_cli.documents.inline import CLOSE, InlineText, Part, joined, paired, text_part
from nmt_cli.documents.inline import Kind as PartKind
from nmt_cli.documents.markup import IN_XML
from nmt_cli.translating.markup.blocks import Element, tree_of
from nmt_cli.translating.markup.tokens import Kind, Token

PAIRS = {"bpt": "ept", "bx": "ex", "sc": "ec"}  # codes that begin, and those that end
ATTRIBUTE = re.compile(r"""([^\s=<]+)\s*=\s*(?:"[^"]*"|'[^']*')""")


class TranslatorsXml:
    """A file of XML, whose elements are changed in place."""

    def __init__(self, data: bytes, root: str) -> None:
        """Raise LineError if it is not well-formed, and DocumentError if it has another root."""
        self._decoded = decoded(data, IN_XML)
        self._tree = tree_of(self._decoded.text, "xml")
        if any(isinstance(each, Token) and "<!ENTITY" in each.raw for each in self._tree.children):
            raise DocumentError("it declares entities; write their texts in their places")
        self.root = next(iter(inside(self._tree)), self._tree)
        if name_of(self.root) != root:
            raise DocumentError(f"its root is {name_of(self.root)[:40] or 'missing'}, not {root}")

    def written(self) -> bytes:
        """Return the file with what was changed."""
        return self._decoded.encoded(self._tree.raw())


def name_of(element: Element) -> str:
    """Return the name of an element without its prefix."""
    return element.start.name.rpartition(":")[2]


def inside(element: Element) -> list[Element]:
    """Return the elements that are in an element, but in no other one there."""
    return [each for each in element.children if isinstance(each, Element)]


def parts_of(element: Element) -> list[Part]:
    """Return what is between the tags of an element: characters and codes."""
    return paired(_keyed(element.children))


def space_before(element: Element, outer: Element) -> str:
    """Return the white space before an element, which is in ``outer``."""
    space = ""
    for each in outer.children:
        if each is element:
            break
        is_space = isinstance(each, Token) and each.kind is Kind.TEXT and each.raw.isspace()
        space = f"{space}{each.raw}" if is_space else ""
    return space


def fill(element: Element, tag: str, text: str) -> None:
    """Write ``text`` between the tags of an element, whose start tag becomes ``tag``."""
    if element.start.kind is Kind.EMPTY:
        tag, element.end = f"{tag[:-2].rstrip()}>", f"</{element.start.name}>"
    element.start = element.start._replace(raw=tag)
    element.children = [Token(Kind.OTHER, text)]


def _keyed(
    children: Sequence[Element | Token],
) -> Iterator[tuple[Part, Hashable, Hashable]]:
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
        if child.start.kind is Kind.EMPTY or name in CODES or is_protected:
            yield Part(PartKind.POINT, code=child.raw()), begun, (name, key)
        else:
            yield Part(PartKind.OPEN, code=(child.start.raw, child.end)), None, None
            yield from _keyed(child.children)
            yield CLOSE, None, None


def _of_token(token: Token) -> Iterator[Part]:
    if token.kind is not Kind.TEXT:
        is_comment = token.raw.startswith("<!--")
        yield Part(PartKind.POINT, code=token.raw, is_visible=not is_comment)
    for raw, meaning in token.parts:
        yield text_part(raw) if raw == meaning else Part(PartKind.TEXT, meaning, raw)


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
