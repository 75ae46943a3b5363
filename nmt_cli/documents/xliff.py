"""XLIFF 1.2 and 2: each source without a translation is a segment, with the inline codes in it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from nmt_cli.corpus.text.memories import NOT_TRANSLATED
from nmt_cli.documents.elements import (
    Element,
    TokenizedXml,
    parts_of,
    with_attributes,
    written_codes,
)
from nmt_cli.documents.inline import InlineText, has_text
from nmt_cli.documents.po import PROTECTED
from nmt_cli.translating.request import Request
from nmt_cli.translating.translation import Translation

# What shows that a program translated it: in XLIFF 1.2 on the target, in XLIFF 2 on the segment.
BY_PROGRAM = {"state": "needs-review-translation", "state-qualifier": "leveraged-mt"}
BY_PROGRAM_2 = {"state": "translated"}
MATCHES = 'xmlns:mtc="urn:oasis:names:tc:xliff:matches:2.0"'


class _Unit(NamedTuple):
    """A unit of XLIFF 1.2, or a segment of XLIFF 2 and the unit that it is in."""

    element: Element
    outer: Element
    source: Element
    target: Element | None
    text: InlineText


class XliffDocument:
    """An XLIFF file; what has a translation is only translated ``again`` if that is asked for."""

    def __init__(self, data: bytes, again: bool) -> None:
        """Raise DocumentError for what is no XLIFF."""
        self._xml = TokenizedXml(data, "xliff")
        self._tokens, root = self._xml.tokens, self._xml.root
        version = self._tokens[root.begin].attributes.get("version") or ""
        self._is_version_2 = version.startswith("2")
        self._units = list(self._wanted(root, again))
        self.segments: Sequence[Request] = [
            unit.text.request._replace(protect=PROTECTED) for unit in self._units
        ]

    def filled(self, translations: Sequence[Translation]) -> bytes:
        """Return the file with a target for each translation, and the alternatives beside it."""
        raw = [token.raw for token in self._tokens]
        matches = defaultdict[int, list[str]](list)  # by the place of the unit
        for number, (unit, translation) in enumerate(
            zip(self._units, translations, strict=True), 1
        ):
            if translation.error is not None:
                continue
            prefix = self._tokens[unit.source.begin].name.rpartition("source")[0]
            others = [written_codes(unit.text, other.text) for other in translation.alternatives]
            if self._is_version_2:
                shown = self._mark_segment(raw, unit, number if others else None)
                source = "".join(raw[unit.source.begin + 1 : unit.source.end])
                matches[unit.outer.begin] += [
                    f'<mtc:match {MATCHES} ref="#{shown}" origin="nmt-cli"><{prefix}source>{source}'
                    f"</{prefix}source><{prefix}target>{other}</{prefix}target></mtc:match>"
                    for other in others
                ]
            self._write_target(raw, unit, prefix, written_codes(unit.text, translation.text))
            if not self._is_version_2:
                last = (unit.target or self._last_of_source(unit)).end
                raw[last] += "".join(
                    f'<{prefix}alt-trans origin="nmt-cli"><{prefix}target>{other}'
                    f"</{prefix}target></{prefix}alt-trans>"
                    for other in others
                )
        for unit in self._units:
            if every := matches.pop(unit.outer.begin, []):
                self._write_matches(raw, unit.outer, "".join(every))
        return self._xml.decoded.encoded("".join(raw))

    def _wanted(self, root: Element, again: bool) -> Iterator[_Unit]:
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

    def _unit(self, element: Element, outer: Element, again: bool) -> Iterator[_Unit]:
        by_name = {each.name: each for each in reversed(element.inside)}
        source, target = by_name.get("source"), by_name.get("target")
        if source is None:
            return
        if target is not None and not again:
            holders = (self._tokens[place] for place in (element.begin, target.begin))
            is_open = any(each.attributes.get("state") in NOT_TRANSLATED for each in holders)
            if not is_open and has_text(parts_of(self._xml.between(target))):
                return
        parts = parts_of(self._xml.between(source))
        if has_text(parts):
            yield _Unit(element, outer, source, target, InlineText(parts))

    def _mark_segment(self, raw: list[str], unit: _Unit, number: int | None) -> str:
        """Give a segment its state, and a ``number`` if it has no id; return its id."""
        tag, given = unit.element.begin, self._tokens[unit.element.begin].attributes.get("id")
        raw[tag] = with_attributes(raw[tag], BY_PROGRAM_2)
        if given is None and number is not None:
            given = f"nmt-cli-{number}"
            raw[tag] = with_attributes(raw[tag], {"id": given})
        return given or ""

    def _last_of_source(self, unit: _Unit) -> Element:
        """Return the source, or the sentences that it is cut into, behind which a target comes."""
        inside = (each for each in unit.element.inside if each.name == "seg-source")
        return next(inside, unit.source)

    def _write_target(self, raw: list[str], unit: _Unit, prefix: str, text: str) -> None:
        attributes = {} if self._is_version_2 else BY_PROGRAM
        if unit.target is not None:
            tag = with_attributes(raw[unit.target.begin], attributes)
            self._xml.fill(raw, unit.target, tag, text)
            return
        tag = with_attributes(f"<{prefix}target>", attributes)
        space = self._xml.space_before(unit.source)
        raw[self._last_of_source(unit).end] += f"{space}{tag}{text}</{prefix}target>"

    @staticmethod
    def _write_matches(raw: list[str], outer: Element, matches: str) -> None:
        known = next((each for each in outer.inside if each.name == "matches"), None)
        if known is not None and known.begin < known.end:
            raw[known.end] = matches + raw[known.end]
        else:
            raw[outer.begin] += f"<mtc:matches {MATCHES}>{matches}</mtc:matches>"
