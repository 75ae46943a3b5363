"""XLIFF 1.2 and 2: each source without a translation is a segment, with the inline codes in it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from typing import NamedTuple

from nmt_cli.corpus.text.memories import NOT_TRANSLATED
from nmt_cli.documents.elements import Element, TokenizedXml, with_attributes, written_codes
from nmt_cli.documents.inline import InlineText, has_text
from nmt_cli.documents.po import PROTECTED
from nmt_cli.translating.request import Request
from nmt_cli.translating.translation import Translation

# What shows that a program translated it: in XLIFF 1.2 on the target, in XLIFF 2 on the segment.
BY_PROGRAM = {"state": "needs-review-translation", "state-qualifier": "leveraged-mt"}
BY_PROGRAM_2 = {"state": "translated"}
NONE = InlineText([])
MATCHES = 'xmlns:mtc="urn:oasis:names:tc:xliff:matches:2.0"'


def _alternatives(prefix: str, texts: Iterable[str], attribute: str = "") -> str:
    """Return elements of XLIFF 1.2 with these texts; ``attribute`` names their sentence."""
    return "".join(
        f'<{prefix}alt-trans{attribute} origin="nmt-cli"><{prefix}target>{text}'
        f"</{prefix}target></{prefix}alt-trans>"
        for text in texts
    )


class _Unit(NamedTuple):
    """A unit of XLIFF 1.2, or a segment of XLIFF 2 and the unit that it is in."""

    element: Element
    outer: Element
    source: Element
    target: Element | None
    text: InlineText
    # Of XLIFF 1.2: the sentence (<mrk>) that is the text, and its place in the target.
    sentence: Element | None = None
    place: Element | None = None


class XliffDocument:
    """An XLIFF file; what has a translation is only translated ``again`` if that is asked for."""

    def __init__(self, data: bytes, again: bool) -> None:
        """Raise DocumentError for what is no XLIFF."""
        self._xml = TokenizedXml(data, "xliff")
        self._tokens, root = self._xml.tokens, self._xml.root
        version = self._tokens[root.begin].attributes.get("version") or ""
        self._is_version_2 = version.startswith("2")
        self._units = list(self._wanted(root, again))
        self.segments: Sequence[Request] = [unit.text.request for unit in self._units]

    def filled(self, translations: Sequence[Translation]) -> bytes:
        """Return the file with a target for each translation, and the alternatives beside it."""
        raw = [token.raw for token in self._tokens]
        matches = defaultdict[int, list[str]](list)  # by the place of the unit
        cut = defaultdict[int, list[tuple[_Unit, Translation]]](list)  # the same
        for number, (unit, translation) in enumerate(
            zip(self._units, translations, strict=True), 1
        ):
            if translation.error is not None:
                continue
            if unit.sentence is not None:
                cut[unit.element.begin].append((unit, translation))
                continue
            prefix = self._prefix(unit)
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
                raw[last] += _alternatives(prefix, others)
        for pairs in cut.values():
            self._write_sentences(raw, pairs)
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
        whole = by_name.get("seg-source")
        if whole is not None and (sentences := list(self._sentences(whole))):
            yield from self._of_sentences(
                _Unit(element, outer, source, target, NONE), sentences, again
            )
            return
        is_kept = target is not None and not again and not self._is_open(element, target)
        if target is not None and is_kept and self._has_text(target):
            return
        if self._has_text(source):
            yield _Unit(element, outer, source, target, self._text(source))

    def _of_sentences(
        self, unit: _Unit, sentences: Sequence[Element], again: bool
    ) -> Iterator[_Unit]:
        """Yield the sentences of a unit that are translated."""
        target = unit.target
        is_open = target is None or self._is_open(unit.element, target)
        are_all = is_open or again or (target is not None and not self._has_text(target))
        inside = () if target is None else self._sentences(target)
        places = {self._mid(each): each for each in inside}
        if are_all and not all(self._mid(each) in places for each in sentences):
            places = {}  # the target is written anew
        for each in filter(self._has_text, sentences):
            place = places.get(self._mid(each))
            if are_all or (place is not None and not self._has_text(place)):
                yield unit._replace(text=self._text(each), sentence=each, place=place)

    def _sentences(self, element: Element) -> Iterator[Element]:
        """Yield the sentences in an element, in order."""
        for each in element.inside:
            is_sentence = self._tokens[each.begin].attributes.get("mtype") == "seg"
            yield from [each] if is_sentence else self._sentences(each)

    def _mid(self, sentence: Element) -> str | None:
        return self._tokens[sentence.begin].attributes.get("mid")

    def _text(self, element: Element) -> InlineText:
        return InlineText(self._xml.parts(element), PROTECTED)

    def _has_text(self, element: Element) -> bool:
        return has_text(self._xml.parts(element))

    def _is_open(self, element: Element, target: Element) -> bool:
        holders = (self._tokens[place] for place in (element.begin, target.begin))
        return any(each.attributes.get("state") in NOT_TRANSLATED for each in holders)

    def _write_sentences(self, raw: list[str], pairs: Sequence[tuple[_Unit, Translation]]) -> None:
        """Write the translations of the sentences of a unit, and the alternatives beside them."""
        unit, prefix = pairs[0][0], self._prefix(pairs[0][0])
        texts, others = dict[int, str](), ""
        for each, translation in pairs:
            assert each.sentence is not None
            text = texts[each.sentence.begin] = written_codes(each.text, translation.text)
            if each.place is not None:
                self._xml.fill(raw, each.place, raw[each.place.begin], text)
            mid = self._mid(each.sentence)
            attribute = "" if mid is None else f' mid="{escape(mid)}"'
            found = [written_codes(each.text, other.text) for other in translation.alternatives]
            others += _alternatives(prefix, found, attribute)
        whole = self._last_of_source(unit)
        if unit.place is None:
            self._write_target(raw, unit, prefix, self._with_sentences(whole, texts))
        raw[(unit.target or whole).end] += others

    def _with_sentences(self, whole: Element, texts: Mapping[int, str]) -> str:
        """Return what is in a source with other texts of its sentences; those without are empty."""
        raw = [token.raw for token in self._tokens[whole.begin : whole.end]]
        for each in self._sentences(whole):
            if each.begin < each.end and self._has_text(each):
                begin, end = each.begin + 1 - whole.begin, each.end - whole.begin
                raw[begin:end] = [texts.get(each.begin, ""), *[""] * (end - begin - 1)]
        return "".join(raw[1:])

    def _prefix(self, unit: _Unit) -> str:
        return self._tokens[unit.source.begin].name.rpartition("source")[0]

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
