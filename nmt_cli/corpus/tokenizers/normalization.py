"""Normalizes text before it is cut into pieces, in the same way in preprocess and translate."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from typing import TYPE_CHECKING, Literal

from nmt_cli.files.lines import INVISIBLE
from nmt_cli.messages.extras import naming_missing_package

if TYPE_CHECKING:
    from nmt_cli.recipe.model_settings import TextSettings
    from nmt_cli.recipe.sections.data import DataConfig

    NormalizedText = DataConfig | TextSettings  # both have the languages and the normalization

Side = Literal["source", "target"]
SIDES: tuple[Side, Side] = ("source", "target")

# Behind a letter, a selector changes nothing that can be seen; an emoji would look otherwise.
_DROPPED = re.compile(f"[{INVISIBLE}]+|(?<=\\w)[\ufe00-\ufe0f\U000e0000-\U000e0fff]+(?!\u20e3)")
# For the brackets of a pattern: ligatures, letters of Hebrew and Arabic in their forms, full-width
# letters and digits, letters of half width, and mathematical letters.
FORMS = (
    "\ufb00-\ufdf9\ufe70-\ufefc\uff10-\uff19\uff21-\uff3a\uff41-\uff5a\uff66-\uff9f\uffa1-\uffdc"
    "\U0001d400-\U0001d7ff"
)
_FORMS = re.compile(f"[{FORMS}]+")


def folded(text: str) -> str:
    """Return ``text`` without what nobody sees, and with other forms of letters as plain ones.

    Punctuation and symbols stay: full-width ones are usual in Chinese, and ² is not 2.
    """
    if text.isascii() and text.isprintable():  # most lines, in a tenth of the time
        return text
    return _FORMS.sub(lambda forms: unicodedata.normalize("NFKC", forms[0]), _DROPPED.sub("", text))


class Normalizer:
    """Applies the kinds of normalization that the settings ask for."""

    def __init__(self, text: NormalizedText) -> None:
        self._nfc, self._folds = text.normalization.nfc, bool(text.normalization.fold)
        self._punctuation = _punctuation_rules(text) if text.normalization.punctuation else {}

    def __call__(self, text: str, side: Side = "source") -> str:
        """Return the normalized text."""
        if self._folds:
            text = folded(text)
        if self._nfc:
            text = unicodedata.normalize("NFC", text)
        if self._punctuation:
            text = self._punctuation[side](text)
        return text


def _punctuation_rules(text: NormalizedText) -> dict[Side, Callable[[str], str]]:
    with naming_missing_package("the normalization of punctuation"):
        from sacremoses import MosesPunctNormalizer  # takes half a second, so only if it is needed

    languages: dict[Side, str] = {"source": text.source_language, "target": text.target_language}
    return {
        side: MosesPunctNormalizer(lang=language.replace("_", "-").split("-")[0].lower()).normalize
        for side, language in languages.items()
    }
