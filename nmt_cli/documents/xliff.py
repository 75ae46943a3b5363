"""XLIFF 1.2 and 2: each source without a translation is a segment, with the inline codes in it."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import NamedTuple

from nmt_cli.corpus.text.memories import CODES, NOT_TRANSLATED
from nmt_cli.documents.document import DocumentError, decoded
from nmt_cli.documents.inline import CLOSE, InlineText, Part, has_text, text_part
from nmt_cli.documents.inline import Kind as PartKind
from nmt_cli.documents.markup import IN_XML
from nmt_cli.documents.po import PROTECTED
from nmt_cli.files.lines import is_blank
from nmt_cli.translating.markup.tokens import Kind, Token, xml_tokens
from nmt_cli.translating.request import LineError, Request
from nmt_cli.translating.translation import Translation

# What shows that a program translated it: in XLIFF 1.2 on the target, in XLIFF 2 on the segment.
BY_PROGRAM = {"state": "needs-review-translation", "state-qualifier": "leveraged-mt"}
BY_PROGRAM_2 = {"state": "translated"}
MATCHES = 'xmlns:mtc="urn:oasis:names:tc:xliff:matches:2.0"'
DEEPEST = 256  # nested elements


class _Element(NamedTuple):
    """An element, by the places of its tags among the tokens; they are equal if it is empty."""

    name: str  # without prefix
    begin: int
    end: int
    inside: Sequence[_Element] = ()


class _Unit(NamedTuple):
    """A unit of XLIFF 1.2, or a segment of XLIFF 2 and the unit that it is in."""

    element: _Element
    outer: _Element
    source: _Element
    target: _Element | None
    text: InlineText


class XliffDocument:
    """An XLIFF file; what has a translation is only translated ``again`` if that is asked for."""

    def __init__(self, data: bytes, again: bool) -> None:
        """Raise DocumentError for what is no XLIFF."""
        self._decoded = decoded(data, IN_XML)
        try:
            self._tokens = xml_tokens(self._decoded.text)
        except LineError as error:
            raise DocumentError(str(error)) from None
        if any(each.kind is Kind.OTHER and "<!ENTITY" in each.raw for each in self._tokens):
            raise DocumentError("it declares entities; write their texts in their places")
        root = _root(self._tokens)
        if root.name != "xliff":
            raise DocumentError(f"its root is {root.name[:40] or 'missing'}, not xliff")
        version = self._tokens[root.begin].attributes.get("version") or ""
        self._is_version_2 = version.startswith("2")
        self._units = list(self._wanted(root, again))
        self.segments: Sequence[Request] = [
            unit.text.request._replace(protect=PROTECTED) for unit in self._units
        ]

    def filled(self, translations: Sequence[Translation]) -> bytes:
        """Return the file with a target for each translation, and the alternatives beside it."""
        raw = [token.raw for token in self._tokens]
        matches = defaultdict[_Element, list[str]](list)
        for number, (unit, translation) in enumerate(
            zip(self._units, translations, strict=True), 1
        ):
            if translation.error is not None:
                continue
            prefix = self._tokens[unit.source.begin].name.rpartition("source")[0]
            others = [_written(unit.text, other.text) for other in translation.alternatives]
            if self._is_version_2:
                shown = self._mark_segment(raw, unit, number if others else None)
                source = "".join(raw[unit.source.begin + 1 : unit.source.end])
                matches[unit.outer] += [
                    f'<mtc:match {MATCHES} ref="#{shown}" origin="nmt-cli"><{prefix}source>{source}'
                    f"</{prefix}source><{prefix}target>{other}</{prefix}target></mtc:match>"
                    for other in others
                ]
            self._write_target(raw, unit, prefix, _written(unit.text, translation.text))
            if not self._is_version_2:
                last = (unit.target or self._last_of_source(unit)).end
                raw[last] += "".join(
                    f'<{prefix}alt-trans origin="nmt-cli"><{prefix}target>{other}'
                    f"</{prefix}target></{prefix}alt-trans>"
                    for other in others
                )
        for outer, every in matches.items():
            known = next((each for each in outer.inside if each.name == "matches"), None)
            if known is not None and known.begin < known.end:
                raw[known.end] = "".join([*every, raw[known.end]])
            elif every:
                raw[outer.begin] += f"<mtc:matches {MATCHES}>{''.join(every)}</mtc:matches>"
        return self._decoded.encoded("".join(raw))

    def _wanted(self, root: _Element, again: bool) -> Iterator[_Unit]:
        """Yield the units that are translated, in order."""
        waiting = [(root, root, True)]  # elements, those around them, and whether to translate them
        while waiting:
            element, outer, is_wanted = waiting.pop()
            token = self._tokens[element.begin]
            is_wanted = token.attributes.get("translate", "yes" if is_wanted else "no") != "no"
            if element.name in {"trans-unit", "segment"} and is_wanted:
                is_2 = element.name == "segment"
                yield from self._unit(element, outer if is_2 else element, again)
            elif element.name not in {"trans-unit", "segment", "matches", "source", "target"}:
                waiting += [(each, element, is_wanted) for each in reversed(element.inside)]

    def _unit(self, element: _Element, outer: _Element, again: bool) -> Iterator[_Unit]:
        by_name = {each.name: each for each in reversed(element.inside)}
        source, target = by_name.get("source"), by_name.get("target")
        if source is None:
            return
        if target is not None and not again:
            holders = (self._tokens[place] for place in (element.begin, target.begin))
            is_open = any(each.attributes.get("state") in NOT_TRANSLATED for each in holders)
            texts = (token for token in self._between(target) if token.kind is Kind.TEXT)
            if not (is_open or all(is_blank(token.raw) for token in texts)):
                return
        parts = list(_parts(self._between(source)))
        if has_text(parts):
            yield _Unit(element, outer, source, target, InlineText(parts))

    def _between(self, element: _Element) -> Sequence[Token]:
        return self._tokens[element.begin + 1 : element.end]

    def _mark_segment(self, raw: list[str], unit: _Unit, number: int | None) -> str:
        """Give a segment its state, and a ``number`` if it has no id; return its id."""
        tag, given = unit.element.begin, self._tokens[unit.element.begin].attributes.get("id")
        raw[tag] = _with_attributes(raw[tag], BY_PROGRAM_2)
        if given is None and number is not None:
            given = f"nmt-cli-{number}"
            raw[tag] = _with_attributes(raw[tag], {"id": given})
        return given or ""

    def _last_of_source(self, unit: _Unit) -> _Element:
        """Return the source, or the sentences that it is cut into, behind which a target comes."""
        inside = (each for each in unit.element.inside if each.name == "seg-source")
        return next(inside, unit.source)

    def _write_target(self, raw: list[str], unit: _Unit, prefix: str, text: str) -> None:
        attributes = {} if self._is_version_2 else BY_PROGRAM
        if unit.target is None:
            first = place = unit.source.begin
            while self._tokens[first - 1].kind is Kind.TEXT and raw[first - 1].isspace():
                first -= 1
            tag = _with_attributes(f"<{prefix}target>", attributes)
            last = self._last_of_source(unit).end
            raw[last] += "".join([*raw[first:place], tag, text, f"</{prefix}target>"])
            return
        begin, end = unit.target.begin, unit.target.end
        tag = _with_attributes(raw[begin], attributes)
        if begin == end:
            raw[begin] = f"{tag[:-2].rstrip()}>{text}</{self._tokens[begin].name}>"
            return
        raw[begin + 1 : end] = [""] * (end - begin - 1)
        raw[begin] = tag + text


def _root(tokens: Sequence[Token]) -> _Element:
    """Return the root, with all elements inside. Raises DocumentError if too many are nested."""
    opened: list[tuple[str, int, list[_Element]]] = [("", 0, [])]
    for place, token in enumerate(tokens):
        name = token.name.rpartition(":")[2]
        if token.kind is Kind.START:
            opened.append((name, place, []))
            if len(opened) > DEEPEST:
                raise DocumentError(f"its elements are nested more than {DEEPEST} deep")
        elif token.kind is Kind.EMPTY:
            opened[-1][2].append(_Element(name, place, place))
        elif token.kind is Kind.END and token.raw:
            name, begin, inside = opened.pop()
            opened[-1][2].append(_Element(name, begin, place, tuple(inside)))
    return next(iter(opened[0][2]), _Element("", 0, 0))


def _parts(tokens: Sequence[Token]) -> Iterator[Part]:
    """Yield the parts of a text: characters, and codes, which are written as they are."""
    place = 0
    ends = _ends(tokens)
    while place < len(tokens):
        token = tokens[place]
        name = token.name.rpartition(":")[2]
        is_kept = name in CODES or "no" in {token.attributes.get("translate")}
        is_kept = is_kept or token.attributes.get("mtype") == "protected"
        if token.kind is Kind.TEXT:
            for raw, meaning in token.parts:
                yield text_part(raw) if raw == meaning else Part(PartKind.TEXT, meaning, raw)
        elif token.kind is Kind.START and is_kept:
            end = ends[place]
            yield Part(PartKind.POINT, code="".join(each.raw for each in tokens[place : end + 1]))
            place = end
        elif token.kind is Kind.START:
            yield Part(PartKind.OPEN, code=(token.raw, tokens[ends[place]].raw))
        elif token.kind is Kind.END:
            yield CLOSE
        else:
            is_visible = token.kind is Kind.EMPTY or not token.raw.startswith("<!--")
            yield Part(PartKind.POINT, code=token.raw, is_visible=is_visible)
        place += 1


def _ends(tokens: Sequence[Token]) -> Mapping[int, int]:
    """Return the place of the end tag of each start tag."""
    found, opened = dict[int, int](), list[int]()
    for place, token in enumerate(tokens):
        if token.kind is Kind.START:
            opened.append(place)
        elif token.kind is Kind.END:
            found[opened.pop()] = place
    return found


def _written(source: InlineText, text: str) -> str:
    """Return a translation of ``source`` with its codes."""
    written, ends = list[str](), list[str]()
    for part in source.translated(text):
        if part.kind is PartKind.OPEN:
            written.append(part.code[0])
            ends.append(part.code[1])
        elif part.kind is PartKind.CLOSE:
            written.append(ends.pop())
        else:
            written.append(part.code or escape(part.text, quote=False))
    return "".join(written)


def _with_attributes(tag: str, attributes: Mapping[str, str]) -> str:
    """Return a start tag with these attributes."""
    for name, value in attributes.items():
        found = re.search(rf"""(?<=\s){name}\s*=\s*("[^"]*"|'[^']*')""", tag)
        if found is None:
            place = len(tag.rstrip("/>").rstrip())
            tag = f'{tag[:place]} {name}="{value}"{tag[place:]}'
        else:
            tag = f'{tag[: found.start()]}{name}="{value}"{tag[found.end() :]}'
    return tag
