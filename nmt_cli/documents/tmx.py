"""TMX: each unit without a text in the target language gets one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from nmt_cli.corpus.text.memories import FAR, distance
from nmt_cli.documents.document import DocumentError
from nmt_cli.documents.elements import Element, TokenizedXml, with_attributes, written_codes
from nmt_cli.documents.inline import InlineText, Part, has_text
from nmt_cli.documents.po import PROTECTED
from nmt_cli.recipe.model_settings import UNKNOWN_LANGUAGE
from nmt_cli.translating.request import Request
from nmt_cli.translating.translation import Translation

BY_PROGRAM = {"creationtool": "nmt-cli"}


class _Unit(NamedTuple):
    """A unit: the text that is translated, and the element that the translation is written to."""

    text: InlineText
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
        self._xml, self._languages = TokenizedXml(data, "tmx"), languages
        self._units = list(self._wanted(again))
        self.segments: Sequence[Request] = [unit.text.request for unit in self._units]

    def filled(self, translations: Sequence[Translation]) -> bytes:
        """Return the file with the translations as variants of their units."""
        raw = [token.raw for token in self._xml.tokens]
        for unit, translation in zip(self._units, translations, strict=True):
            if translation.error is not None:
                continue
            text = written_codes(unit.text, translation.text)
            if unit.target is not None:
                self._xml.fill(raw, unit.target, raw[unit.target.begin], text)
                continue
            start = f'<tuv xml:lang="{self._languages[1]}">'
            variant = f"{with_attributes(start, BY_PROGRAM)}<seg>{text}</seg></tuv>"
            raw[unit.last.end] += f"{self._xml.space_before(unit.last)}{variant}"
        return self._xml.decoded.encoded("".join(raw))

    def _wanted(self, again: bool) -> Iterator[_Unit]:
        """Yield the units that are translated, in order."""
        for body in self._xml.root.inside:
            for unit in body.inside if body.name == "body" else ():
                variants = [each for each in unit.inside if each.name == "tuv"]
                source, target = (self._nearest(variants, each) for each in self._languages)
                text, of_target = self._parts(source), self._parts(target)
                is_new = target is source or not has_text(of_target)
                if has_text(text) and (again or is_new):
                    segment = None if target is source else self._segment(target)
                    yield _Unit(InlineText(text, PROTECTED), variants[-1], segment)

    def _nearest(self, variants: Sequence[Element], language: str) -> Element | None:
        """Return the variant in ``language``, or in one of its regions."""
        best, least = None, FAR
        for variant in variants:
            attributes = self._xml.tokens[variant.begin].attributes
            found = attributes.get("xml:lang") or attributes.get("lang") or UNKNOWN_LANGUAGE
            if (far := distance(language, found)) < least:
                best, least = variant, far
        return best

    def _segment(self, variant: Element | None) -> Element | None:
        inside = () if variant is None else variant.inside
        return next((each for each in inside if each.name == "seg"), None)

    def _parts(self, variant: Element | None) -> list[Part]:
        segment = self._segment(variant)
        return [] if segment is None else self._xml.parts(segment)
