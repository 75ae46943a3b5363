"""TMX: each unit without a text in the target language gets one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from nmt_cli.corpus.text.memories import FAR, distance
from nmt_cli.documents import elements as xml
from nmt_cli.documents.document import DocumentError
from nmt_cli.documents.inline import InlineText, Part, has_text
from nmt_cli.documents.po import PROTECTED
from nmt_cli.recipe.model_settings import UNKNOWN_LANGUAGE
from nmt_cli.translating.markup.blocks import Element
from nmt_cli.translating.request import Request
from nmt_cli.translating.translation import Translation


class _Unit(NamedTuple):
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
        self._xml, self._languages = xml.TranslatorsXml(data, "tmx"), languages
        self._units = list(self._wanted(again))
        self.segments: Sequence[Request] = [unit.text.request for unit in self._units]

    def filled(self, translations: Sequence[Translation]) -> bytes:
        """Return the file with the translations as variants of their units."""
        for unit, translation in zip(self._units, translations, strict=True):
            if translation.error is not None:
                continue
            text = xml.written_codes(unit.text, translation.text)
            if unit.target is not None:
                xml.fill(unit.target, unit.target.start.raw, text)
                continue
            start = f'<tuv xml:lang="{self._languages[1]}" creationtool="nmt-cli">'
            space = xml.space_before(unit.last, unit.element)
            unit.last.end += f"{space}{start}<seg>{text}</seg></tuv>"
        return self._xml.written()

    def _wanted(self, again: bool) -> Iterator[_Unit]:
        """Yield the units that are translated, in order."""
        for body in xml.inside(self._xml.root):
            for unit in xml.inside(body) if xml.name_of(body) == "body" else ():
                variants = [each for each in xml.inside(unit) if xml.name_of(each) == "tuv"]
                source, target = (_nearest(variants, each) for each in self._languages)
                text = _parts(source)
                is_new = target is source or not has_text(_parts(target))
                if has_text(text) and (again or is_new):
                    segment = None if target is source else _segment(target)
                    yield _Unit(InlineText(text, PROTECTED), unit, variants[-1], segment)


def _nearest(variants: Sequence[Element], language: str) -> Element | None:
    """Return the variant in ``language``, or in one of its regions."""
    best, least = None, FAR
    for variant in variants:
        attributes = variant.start.attributes
        found = attributes.get("xml:lang") or attributes.get("lang") or UNKNOWN_LANGUAGE
        if (far := distance(language, found)) < least:
            best, least = variant, far
    return best


def _segment(variant: Element | None) -> Element | None:
    within = () if variant is None else xml.inside(variant)
    return next((each for each in within if xml.name_of(each) == "seg"), None)


def _parts(variant: Element | None) -> list[Part]:
    segment = _segment(variant)
    return [] if segment is None else xml.parts_of(segment)
