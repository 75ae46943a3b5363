"""TMX and XLIFF 1.2 and 2: what has no translation is translated, and its codes are kept.

Of TMX, each unit without a text in the target language gets one. Of XLIFF, each source without a
translation is a segment, with the inline codes in it. All else is written as it was read.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from html import escape
from itertools import groupby
from typing import NamedTuple

from nmt_cli.corpus.text.language_codes import spelled
from nmt_cli.corpus.text.memories import CODES, FAR, NOT_TRANSLATED, distance
from nmt_cli.documents.document import DocumentError, decoded
from nmt_cli.documents.inline import CLOSE, InlineText, Part, has_text, joined, paired, text_part
from nmt_cli.documents.inline import Kind as PartKind
from nmt_cli.documents.markup import IN_XML
from nmt_cli.documents.po import PROTECTED
from nmt_cli.recipe.model_settings import UNKNOWN_LANGUAGE
from nmt_cli.translating.interface.request import Request
from nmt_cli.translating.interface.translation import Translation
from nmt_cli.translating.segmentation.markup.blocks import Element, raw_of, tree_of
from nmt_cli.translating.segmentation.markup.tokens import Token, TokenKind

PAIRS = {"bpt": "ept", "bx": "ex", "sc": "ec"}  # codes that begin, and those that end
ATTRIBUTE = re.compile(r"""([^\s=<]+)\s*=\s*(?:"[^"]*"|'[^']*')""")
# What shows that a program translated it: in XLIFF 1.2 on the target, in XLIFF 2 on the segment.
BY_PROGRAM = {"state": "needs-review-translation", "state-qualifier": "leveraged-mt"}
BY_PROGRAM_2 = {"state": "translated"}
NONE = InlineText([])
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


def name_of(element: Element) -> str:
    """Return the name of an element without its prefix."""
    return element.start.name.rpartition(":")[2]


def inside(element: Element) -> list[Element]:
    """Return the elements that are in an element, but in no other one there."""
    return [each for each in element.children if isinstance(each, Element)]


def parts_of(element: Element) -> list[Part]:
    """Return what is between the tags of an element: characters and codes."""
    return paired(_keyed(element.children))


def _text(element: Element) -> InlineText:
    return InlineText(parts_of(element), PROTECTED)


def _has_text(element: Element) -> bool:
    return has_text(parts_of(element))


def space_before(element: Element, outer: Element) -> str:
    """Return the white space before an element, which is in ``outer``."""
    space = ""
    for each in outer.children:
        if each is element:
            break
        is_space = isinstance(each, Token) and each.kind is TokenKind.TEXT and each.raw.isspace()
        space = f"{space}{each.raw}" if is_space else ""
    return space


def fill(element: Element, tag: str, text: str) -> None:
    """Write ``text`` between the tags of an element, whose start tag becomes ``tag``."""
    if element.start.kind is TokenKind.EMPTY:
        tag, element.end = f"{tag[:-2].rstrip()}>", f"</{element.start.name}>"
    element.start = element.start._replace(raw=tag)
    element.children = [Token(TokenKind.OTHER, text)]


def _keyed(children: Sequence[Element | Token]) -> Iterator[tuple[Part, Hashable, Hashable]]:
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
        if child.start.kind is TokenKind.EMPTY or name in CODES or is_protected:
            yield Part(PartKind.POINT, code=child.raw()), begun, (name, key)
        else:
            yield Part(PartKind.OPEN, code=(child.start.raw, child.end)), None, None
            yield from _keyed(child.children)
            yield CLOSE, None, None


def _of_token(token: Token) -> Iterator[Part]:
    if token.kind is not TokenKind.TEXT:
        is_comment = token.raw.startswith("<!--")
        yield Part(PartKind.POINT, code=token.raw, is_visible=not is_comment)
    for raw, meaning in token.parts:
        yield text_part(raw) if raw == meaning else Part(PartKind.TEXT, meaning, raw)


def written_codes(source: InlineText, text: str) -> str:
    """Return a translation of ``source`` with its codes."""
    return joined(source.translated(text), lambda part: escape(part.text, quote=False))


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


class _TmxUnit(NamedTuple):
    """A unit: the text that is translated, and the element that the translation is written to."""

    text: InlineText
    element: Element
    last: Element  # the variant behind which a new one comes
    target: Element | None  # the segment of a variant that is there


class TmxDocument:
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
        self.segments: Sequence[Request] = [unit.text.request for unit in self._units]

    def filled(self, translations: Sequence[Translation]) -> bytes:
        """Return the file with the translations as variants of their units."""
        for unit, translation in zip(self._units, translations, strict=True):
            if translation.error is not None:
                continue
            text = written_codes(unit.text, translation.text)
            if unit.target is not None:
                fill(unit.target, unit.target.start.raw, text)
                continue
            start = f'<tuv xml:lang="{escape(spelled(self._languages[1]))}" creationtool="nmt-cli">'
            space = space_before(unit.last, unit.element)
            unit.last.end += f"{space}{start}<seg>{text}</seg></tuv>"
        return self._xml.written()

    def _wanted(self, again: bool) -> Iterator[_TmxUnit]:
        """Yield the units that are translated, in order."""
        for body in inside(self._xml.root):
            for unit in inside(body) if name_of(body) == "body" else ():
                variants = [each for each in inside(unit) if name_of(each) == "tuv"]
                source, target = (_nearest(variants, each) for each in self._languages)
                is_new = target is None or target is source or not _has_text(target)
                if source is not None and _has_text(source) and (again or is_new):
                    other = None if target is source else target
                    yield _TmxUnit(_text(source), unit, variants[-1], other)


def _nearest(variants: Sequence[Element], language: str) -> Element | None:
    """Return the segment of the variant in ``language``, or in one of its regions."""
    best, least = None, FAR
    for variant in variants:
        attributes = variant.start.attributes
        found = attributes.get("xml:lang") or attributes.get("lang") or UNKNOWN_LANGUAGE
        if (far := distance(language, found)) < least:
            best, least = variant, far
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


class XliffDocument:
    """An XLIFF file; what has a translation is only translated ``again`` if that is asked for."""

    def __init__(self, data: bytes, again: bool) -> None:
        """Raise DocumentError for what is no XLIFF."""
        self._xml = TranslatorsXml(data, "xliff")
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
                text, *others = [written_codes(unit.text, each) for each in texts]
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
        is_wanted, name = translate != "no", name_of(element)
        if name == "trans-unit" and is_wanted:
            yield from _of_unit(element, element, again)
        elif name == "segment" and is_wanted:
            yield from _of_unit(element, outer, again)
        elif name not in {"trans-unit", "segment", "matches", "source", "target"}:
            waiting += [(each, element, is_wanted) for each in reversed(inside(element))]


def _of_unit(element: Element, outer: Element, again: bool) -> Iterator[_Unit]:
    by_name = {name_of(each): each for each in reversed(inside(element))}
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
    for each in inside(element):
        yield from [each] if _is_sentence(each) else _sentences(each)


def _is_sentence(element: Element) -> bool:
    return element.start.attributes.get("mtype") == "seg"


def _mid(sentence: Element) -> str | None:
    return sentence.start.attributes.get("mid")


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
        tag = with_attributes(unit.element.start.raw, BY_PROGRAM_2)
        prefix, source = unit.prefix, "".join(map(raw_of, unit.source.children))
        name = unit.element.start.attributes.get("id")
        if others and name is None:
            name = f"nmt-cli-{number}"
            tag = with_attributes(tag, {"id": name})
        unit.element.start = unit.element.start._replace(raw=tag)
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
