"""XLIFF 1.2 and 2: each source without a translation is a segment, with the inline codes in it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from itertools import groupby
from typing import NamedTuple

from nmt_cli.corpus.text.memories import NOT_TRANSLATED
from nmt_cli.documents import elements as xml
from nmt_cli.documents.inline import InlineText, has_text
from nmt_cli.documents.po import PROTECTED
from nmt_cli.translating.markup.blocks import Element, raw_of
from nmt_cli.translating.markup.tokens import Kind, Token
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

    @property
    def prefix(self) -> str:
        """The prefix of the names of elements."""
        return self.source.start.name.rpartition("source")[0]

    @property
    def last_of_source(self) -> Element:
        """The source, or the sentences that it is cut into, behind which a target comes."""
        within = (each for each in xml.inside(self.element) if xml.name_of(each) == "seg-source")
        return next(within, self.source)

    def write_target(self, text: str, attributes: Mapping[str, str]) -> None:
        """Write a target with these attributes."""
        if self.target is not None:
            xml.fill(self.target, xml.with_attributes(self.target.start.raw, attributes), text)
            return
        tag = xml.with_attributes(f"<{self.prefix}target>", attributes)
        space = xml.space_before(self.source, self.element)
        self.last_of_source.end += f"{space}{tag}{text}</{self.prefix}target>"


# The number of a segment in the document, its translation and the alternatives.
_Translated = tuple[int, _Unit, str, Sequence[str]]


class XliffDocument:
    """An XLIFF file; what has a translation is only translated ``again`` if that is asked for."""

    def __init__(self, data: bytes, again: bool) -> None:
        """Raise DocumentError for what is no XLIFF."""
        self._xml = xml.TranslatorsXml(data, "xliff")
        self._units = list(_wanted(self._xml.root, again))
        self.segments: Sequence[Request] = [unit.text.request for unit in self._units]

    def filled(self, translations: Sequence[Translation]) -> bytes:
        """Return the file with a target for each translation, and the alternatives beside it."""
        version = self._xml.root.start.attributes.get("version") or ""
        pairs = zip(self._units, translations, strict=True)
        found = list[_Translated]()
        for number, (unit, translation) in enumerate(pairs, 1):
            if translation.error is None:
                texts = [translation.text, *(each.text for each in translation.alternatives)]
                text, *others = [xml.written_codes(unit.text, each) for each in texts]
                found.append((number, unit, text, others))
        for _, group in groupby(found, key=lambda each: id(each[1].outer)):
            of_unit = list(group)
            if version.startswith("2"):
                _write_segments(of_unit)
            elif of_unit[0][1].sentence is not None:
                _write_sentences(of_unit)
            else:
                _write_targets(of_unit)
        return self._xml.written()


def _wanted(root: Element, again: bool) -> Iterator[_Unit]:
    """Yield the units that are translated, in order."""
    waiting = [(root, root, True)]  # elements, those around them, and whether to translate them
    while waiting:
        element, outer, is_wanted = waiting.pop()
        translate = element.start.attributes.get("translate", "yes" if is_wanted else "no")
        is_wanted, name = translate != "no", xml.name_of(element)
        if name == "trans-unit" and is_wanted:
            yield from _of_unit(element, element, again)
        elif name == "segment" and is_wanted:
            yield from _of_unit(element, outer, again)
        elif name not in {"trans-unit", "segment", "matches", "source", "target"}:
            waiting += [(each, element, is_wanted) for each in reversed(xml.inside(element))]


def _of_unit(element: Element, outer: Element, again: bool) -> Iterator[_Unit]:
    by_name = {xml.name_of(each): each for each in reversed(xml.inside(element))}
    source, target, whole = (by_name.get(name) for name in ("source", "target", "seg-source"))
    if source is None:
        return
    if whole is not None and outer is element and (sentences := list(_sentences(whole))):
        unit = _Unit(element, outer, source, target, NONE)
        yield from _of_sentences(unit, sentences, again)
        return
    is_done = target is not None and _has_text(target) and not _is_open(element, target)
    if _has_text(source) and (again or not is_done):
        yield _Unit(element, outer, source, target, _text(source))


def _of_sentences(unit: _Unit, sentences: Sequence[Element], again: bool) -> Iterator[_Unit]:
    """Yield the sentences of a unit that are translated."""
    target = unit.target
    are_all = again or target is None or _is_open(unit.element, target) or not _has_text(target)
    places = {} if target is None else {_mid(each): each for each in _sentences(target)}
    if are_all and not all(_mid(each) in places for each in sentences):
        places = {}  # the target is written anew
    for each in filter(_has_text, sentences):
        place = places.get(_mid(each))
        if are_all or (place is not None and not _has_text(place)):
            yield unit._replace(text=_text(each), sentence=each, place=place)


def _sentences(element: Element) -> Iterator[Element]:
    """Yield the sentences in an element, in order."""
    for each in xml.inside(element):
        yield from [each] if _is_sentence(each) else _sentences(each)


def _is_sentence(element: Element) -> bool:
    return element.start.attributes.get("mtype") == "seg"


def _mid(sentence: Element) -> str | None:
    return sentence.start.attributes.get("mid")


def _text(element: Element) -> InlineText:
    return InlineText(xml.parts_of(element), PROTECTED)


def _has_text(element: Element) -> bool:
    return has_text(xml.parts_of(element))


def _is_open(element: Element, target: Element) -> bool:
    return any(each.start.attributes.get("state") in NOT_TRANSLATED for each in (element, target))


def _write_targets(translated: Sequence[_Translated]) -> None:
    """Write the translations of units of XLIFF 1.2, and the alternatives behind them."""
    for _, unit, text, others in translated:
        unit.write_target(text, BY_PROGRAM)
        (unit.target or unit.last_of_source).end += _alternatives(unit.prefix, others)


def _write_sentences(translated: Sequence[_Translated]) -> None:
    """Write the translations of the sentences of a unit, and the alternatives behind them."""
    texts, alternatives = dict[int, str](), ""
    for _, unit, text, others in translated:
        assert unit.sentence is not None
        texts[id(unit.sentence)] = text
        if unit.place is not None:
            xml.fill(unit.place, unit.place.start.raw, text)
        mid = _mid(unit.sentence)
        attribute = "" if mid is None else f' mid="{escape(mid)}"'
        alternatives += _alternatives(unit.prefix, others, attribute)
    whole = unit.last_of_source
    if unit.place is None:
        unit.write_target("".join(_with_sentences(whole, texts)), BY_PROGRAM)
    (unit.target or whole).end += alternatives


def _with_sentences(whole: Element, texts: Mapping[int, str]) -> Iterator[str]:
    """Yield what is in a source with other texts of its sentences; those without are empty."""
    for child in whole.children:
        if isinstance(child, Token) or (_is_sentence(child) and not _has_text(child)):
            yield raw_of(child)
        elif _is_sentence(child):
            yield f"{child.start.raw}{texts.get(id(child), '')}{child.end}"
        else:
            yield f"{child.start.raw}{''.join(_with_sentences(child, texts))}{child.end}"


def _write_segments(translated: Sequence[_Translated]) -> None:
    """Write the translations of segments of a unit of XLIFF 2, and the alternatives before them."""
    matches = ""
    for number, unit, text, others in translated:
        tag = xml.with_attributes(unit.element.start.raw, BY_PROGRAM_2)
        prefix, source = unit.prefix, "".join(map(raw_of, unit.source.children))
        name = unit.element.start.attributes.get("id")
        if others and name is None:
            name = f"nmt-cli-{number}"
            tag = xml.with_attributes(tag, {"id": name})
        unit.element.start = unit.element.start._replace(raw=tag)
        for other in others:
            matches += (
                f'<mtc:match {MATCHES} ref="#{name}" origin="nmt-cli"><{prefix}source>{source}'
                f"</{prefix}source><{prefix}target>{other}</{prefix}target></mtc:match>"
            )
        unit.write_target(text, {})
    outer = translated[0][1].outer
    known = next((each for each in xml.inside(outer) if xml.name_of(each) == "matches"), None)
    if known is not None and known.start.kind is not Kind.EMPTY:
        known.children.append(Token(Kind.OTHER, matches))
    elif matches:
        whole = f"<mtc:matches {MATCHES}>{matches}</mtc:matches>"
        outer.children.insert(0, Token(Kind.OTHER, whole))
