"""TMX and XLIFF 1.2 and 2: what has no translation is translated, and its codes are kept.

Of TMX, each unit without a text in the target language gets one. Of XLIFF, each source without a
translation is a segment, with the inline codes in it. All else is written as it was read.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from itertools import groupby
from typing import NamedTuple

from nmt_cli.corpus.text.language_codes import spelled
from nmt_cli.corpus.text.memories import FAR, LANGUAGE_KEYS, MARK, NOT_TRANSLATED, distance
from nmt_cli.documents.document import Bilingual, DocumentError, decoded
from nmt_cli.documents.markup import IN_XML
from nmt_cli.documents.unit_texts import UnitText, element_text, has_content, name_of
from nmt_cli.messages.proposals import any_of
from nmt_cli.recipe.model_settings import UNKNOWN_LANGUAGE
from nmt_cli.translating.interface.translation import Translation
from nmt_cli.translating.segmentation.list_marks import has_letters
from nmt_cli.translating.segmentation.markup.blocks import Element, raw_of, tree_of
from nmt_cli.translating.segmentation.markup.tokens import Token, TokenKind

ATTRIBUTE = re.compile(r"""([^\s=<]+)\s*=\s*(?:"[^"]*"|'[^']*')""")
# What shows that a program translated it: in XLIFF 1.2 on the target, in XLIFF 2 on the segment.
BY_PROGRAM = {"state": "needs-review-translation", "state-qualifier": "leveraged-mt"}
BY_PROGRAM_2 = {"state": "translated"}
NONE, MOST_NAMED = UnitText("", []), 10
LOCKED = {"locked", "true", "yes"}
MATCHES = 'xmlns:mtc="urn:oasis:names:tc:xliff:matches:2.0"'


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


def inside(element: Element) -> list[Element]:
    """Return the elements that are in an element, but in no other one there."""
    return [each for each in element.children if isinstance(each, Element)]


def space_before(element: Element, outer: Element) -> str:
    """Return the white space before an element, which is in ``outer``."""
    place = next(number for number, each in enumerate(outer.children) if each is element)
    before = raw_of(outer.children[place - 1]) if place else ""
    return before if before.isspace() else ""


def fill(element: Element, tag: str, text: str) -> None:
    """Write ``text`` between the tags of an element, whose start tag becomes ``tag``."""
    if element.start.kind is TokenKind.EMPTY:
        tag, element.end = f"{tag[:-2].rstrip()}>", f"</{element.start.name}>"
    element.start = element.start._replace(raw=tag, kind=TokenKind.START)
    element.children = [Token(TokenKind.OTHER, text)]


def with_attributes(tag: str, attributes: Mapping[str, str]) -> str:
    """Return a start tag with these attributes, whose values are texts and no markup."""
    for name, value in attributes.items():
        found = next((each for each in ATTRIBUTE.finditer(tag) if each[1] == name), None)
        if found is None:
            place = len(tag.rstrip("/>").rstrip())
            tag = f'{tag[:place]} {name}="{escape(value)}"{tag[place:]}'
        else:
            tag = f'{tag[: found.start()]}{name}="{escape(value)}"{tag[found.end() :]}'
    return tag


def set_attributes(element: Element, attributes: Mapping[str, str]) -> None:
    """Give an element these attributes."""
    element.start = element.start._replace(raw=with_attributes(element.start.raw, attributes))


class _TmxUnit(NamedTuple):
    """A unit: the text that is translated, and the element that the translation is written to."""

    text: UnitText
    element: Element
    last: Element  # the variant behind which a new one comes
    target: Element | None  # the segment of a variant that is there


class TmxDocument(Bilingual):
    """A TMX file; what has a translation is only translated ``again`` if that is asked for."""

    def __init__(self, data: bytes, again: bool, languages: tuple[str, str] | None) -> None:
        """``languages`` are those of the model. Raise DocumentError for what is no TMX."""
        if languages is None or UNKNOWN_LANGUAGE in languages:
            raise DocumentError(
                "the model does not name its languages, as data.source_language and "
                "data.target_language of its recipe would"
            )
        self._xml, self._languages = TranslatorsXml(data, "tmx"), languages
        self._units = list(self._wanted(again))
        super().__init__([unit.text for unit in self._units])

    def filled(self, translations: Sequence[Translation]) -> bytes:
        """Return the file with the translations as variants of their units."""
        start = f'<tuv xml:lang="{escape(spelled(self._languages[1]))}" creationtool="nmt-cli">'
        for unit, texts in zip(self._units, self._written(translations), strict=True):
            if texts and unit.target is not None:
                fill(unit.target, unit.target.start.raw, texts[0])
            elif texts:
                space = space_before(unit.last, unit.element)
                unit.last.end += f"{space}{start}<seg>{texts[0]}</seg></tuv>"
        return self._xml.written()

    def _wanted(self, again: bool) -> Iterator[_TmxUnit]:
        """Yield the units that are translated, in order."""
        found = dict[str, None]()  # the languages
        for body in inside(self._xml.root):
            for unit in inside(body) if name_of(body) == "body" else ():
                variants = [each for each in inside(unit) if name_of(each) == "tuv"]
                found.update(dict.fromkeys(map(_language, variants)))
                source, target = (_nearest(variants, each) for each in self._languages)
                is_new = target is None or target is source or not has_content(target)
                if source is not None and has_content(source) and (again or is_new):
                    other = None if target is source else target
                    yield _TmxUnit(element_text(source), unit, variants[-1], other)
        if found and all(distance(self._languages[0], each) == FAR for each in found):
            held = any_of(list(found)[:MOST_NAMED], "and")
            self.nothing_left = f"it has no text in {self._languages[0]}: its languages are {held}"


def _language(variant: Element) -> str:
    attributes = variant.start.attributes
    return attributes.get("xml:lang") or attributes.get("lang") or UNKNOWN_LANGUAGE


def _nearest(variants: Sequence[Element], language: str) -> Element | None:
    """Return the segment of the variant in ``language``, or in one of its regions."""
    found = [each for each in variants if distance(language, _language(each)) < FAR]
    best = min(found, key=lambda each: distance(language, _language(each)), default=None)
    within = () if best is None else inside(best)
    return next((each for each in within if name_of(each) == "seg"), None)


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
    text: UnitText
    # Of XLIFF 1.2: the sentence (<mrk>) that is the text, and its place in the target.
    sentence: Element | None = None
    place: Element | None = None
    is_locked: bool = False

    @property
    def prefix(self) -> str:
        """The prefix of the names of elements."""
        return self.source.start.name.rpartition("source")[0]

    @property
    def last_of_source(self) -> Element:
        """The source, or the sentences that it is cut into, behind which a target comes."""
        within = (each for each in inside(self.element) if name_of(each) == "seg-source")
        return next(within, self.source)

    def write_target(self, text: str, attributes: Mapping[str, str]) -> None:
        """Write a target with these attributes."""
        if self.target is not None:
            fill(self.target, with_attributes(self.target.start.raw, attributes), text)
            return
        tag = with_attributes(f"<{self.prefix}target>", attributes)
        space = space_before(self.source, self.element)
        self.last_of_source.end += f"{space}{tag}{text}</{self.prefix}target>"


# The number of a segment in the document, its translation and the alternatives.
_Translated = tuple[int, _Unit, str, Sequence[str]]


class XliffDocument(Bilingual):
    """An XLIFF file; what has a translation is only translated ``again`` if that is asked for."""

    def __init__(self, data: bytes, again: bool, languages: tuple[str, str] | None = None) -> None:
        """``languages`` are those of the model. Raise DocumentError for what is no XLIFF."""
        self._xml = TranslatorsXml(data, "xliff")
        self._target = UNKNOWN_LANGUAGE if languages is None else spelled(languages[1])
        units = list(_wanted(self._xml.root, again))
        self._units = [unit for unit in units if not unit.is_locked]
        locked = [unit.text for unit in units if unit.is_locked]
        super().__init__([unit.text for unit in self._units], locked)
        named = [each.start.attributes for each in (self._xml.root, *inside(self._xml.root))]
        source, target = (
            next((given[key] for given in named for key in keys if given.get(key)), None)
            for keys in (LANGUAGE_KEYS["source"], LANGUAGE_KEYS["target"])
        )
        self.named_languages = source, target

    def filled(self, translations: Sequence[Translation]) -> bytes:
        """Return the file with a target for each translation, and the alternatives beside it."""
        root, found = self._xml.root, list[_Translated]()
        is_2 = (root.start.attributes.get("version") or "").startswith("2")
        for unit, texts in zip(self._units, self._written(translations), strict=True):
            if texts:
                found.append((len(found) + 1, unit, texts[0], texts[1:]))
                if unit.element.start.attributes.get("approved") == "yes":
                    set_attributes(unit.element, {"approved": "no"})
        for _, group in groupby(found, key=lambda each: id(each[1].outer)):
            of_unit = list(group)
            in_1 = _write_targets if of_unit[0][1].sentence is None else _write_sentences
            (_write_segments if is_2 else in_1)(of_unit)
        name = "trgLang" if is_2 else "target-language"
        for each in [root] if is_2 else inside(root):  # which are the files
            if found and self._target != UNKNOWN_LANGUAGE and not each.start.attributes.get(name):
                set_attributes(each, {name: self._target})
        return self._xml.written()


def _wanted(root: Element, again: bool) -> Iterator[_Unit]:
    """Yield the units that are translated or locked, in order."""
    waiting = [(root, root, False)]  # elements, those around them, and whether they are locked
    while waiting:
        element, outer, is_locked = waiting.pop()
        given, name = element.start.attributes, name_of(element)
        # Programs such as memoQ and Phrase have attributes of their own.
        locks = {given[each] for each in given if each.rpartition(":")[2] == "locked"}
        is_locked = given.get("translate", is_locked and "no") == "no" or bool(locks & LOCKED)
        if name in {"trans-unit", "segment"}:
            outer = element if name == "trans-unit" else outer
            for unit in _of_unit(element, outer, again):
                yield unit._replace(is_locked=is_locked)
        elif name not in {"matches", "source", "target"}:
            waiting += [(each, element, is_locked) for each in reversed(inside(element))]


def _of_unit(element: Element, outer: Element, again: bool) -> Iterator[_Unit]:
    by_name = {name_of(each): each for each in reversed(inside(element))}
    source, target, whole = (by_name.get(name) for name in ("source", "target", "seg-source"))
    if source is None:
        return
    unit = _Unit(element, outer, source, target, NONE)
    if whole is not None and outer is element and (sentences := list(_sentences(whole))):
        yield from _of_sentences(unit, sentences, again)
    elif has_content(source) and (again or _is_open(unit)):
        yield unit._replace(text=element_text(source))


def _of_sentences(unit: _Unit, sentences: Sequence[Element], again: bool) -> Iterator[_Unit]:
    """Yield the sentences of a unit that are translated."""
    target, are_all = unit.target, again or _is_open(unit)
    places = {} if target is None else {_mid(each): each for each in _sentences(target)}
    if are_all and not all(_mid(each) in places for each in sentences):
        places = {}  # the target is written anew
    for each in filter(has_content, sentences):
        place = places.get(_mid(each))
        if are_all or (place is not None and not has_content(place)):
            yield unit._replace(text=element_text(each), sentence=each, place=place)


def _sentences(element: Element) -> Iterator[Element]:
    """Yield the sentences in an element, in order."""
    for each in inside(element):
        yield from [each] if _is_sentence(each) else _sentences(each)


def _is_sentence(element: Element) -> bool:
    return element.start.attributes.get("mtype") == "seg"


def _mid(sentence: Element) -> str | None:
    return sentence.start.attributes.get("mid")


def _is_open(unit: _Unit) -> bool:
    """Return whether a unit has no translation yet: by its state, its target, or as that is a copy.

    A copy with any other state, or that is approved, is a translation.
    """
    if unit.target is None or not has_content(unit.target):
        return True
    given = unit.element.start.attributes, unit.target.start.attributes
    states = {each.get("state") for each in given} - {None}
    source, target = (element_text(each).text.strip() for each in (unit.source, unit.target))
    if states & NOT_TRANSLATED or MARK.fullmatch(target):
        return True
    is_done = states or given[0].get("approved") == "yes" or not has_letters(source)
    return target in {source, f"__{source}"} and not is_done  # __ is what Symfony writes


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
            fill(unit.place, unit.place.start.raw, text)
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
        if isinstance(child, Token) or (_is_sentence(child) and not has_content(child)):
            yield raw_of(child)
        elif _is_sentence(child):
            yield f"{child.start.raw}{texts.get(id(child), '')}{child.end}"
        else:
            yield f"{child.start.raw}{''.join(_with_sentences(child, texts))}{child.end}"


def _write_segments(translated: Sequence[_Translated]) -> None:
    """Write the translations of segments of a unit of XLIFF 2, and the alternatives before them."""
    matches = ""
    for number, unit, text, others in translated:
        set_attributes(unit.element, BY_PROGRAM_2)
        prefix, source = unit.prefix, "".join(map(raw_of, unit.source.children))
        name = unit.element.start.attributes.get("id")
        if others and name is None:
            name = f"nmt-cli-{number}"
            set_attributes(unit.element, {"id": name})
        reference = f'ref="#{escape(name or "")}" origin="nmt-cli"'
        for other in others:
            matches += (
                f"<mtc:match {MATCHES} {reference}><{prefix}source>{source}"
                f"</{prefix}source><{prefix}target>{other}</{prefix}target></mtc:match>"
            )
        unit.write_target(text, {})
    outer = translated[0][1].outer
    known = next((each for each in inside(outer) if name_of(each) == "matches"), None)
    if known is not None and known.start.kind is not TokenKind.EMPTY:
        known.children.append(Token(TokenKind.OTHER, matches))
    elif matches:
        whole = f"<mtc:matches {MATCHES}>{matches}</mtc:matches>"
        outer.children.insert(0, Token(TokenKind.OTHER, whole))
