"""Normalizes text before it is cut into pieces, in the same way in preprocess and translate."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from nmt_cli.recipe.data_config import DataConfig
    from nmt_cli.recipe.model_settings import TextSettings

    NormalizedText = DataConfig | TextSettings  # both have the languages and the normalization

Side = Literal["source", "target"]
SIDES: tuple[Side, Side] = ("source", "target")


class Normalizer:
    """Applies the kinds of normalization that the settings ask for."""

    def __init__(self, text: NormalizedText) -> None:
        self._nfc = text.normalization.nfc
        self._punctuation = _punctuation_rules(text) if text.normalization.punctuation else {}

    @property
    def is_identity(self) -> bool:
        """Whether every text stays unchanged."""
        return not self._nfc and not self._punctuation

    def __call__(self, text: str, side: Side = "source") -> str:
        """Return the normalized text."""
        if self._nfc:
            text = unicodedata.normalize("NFC", text)
        if self._punctuation:
            text = self._punctuation[side](text)
        return text


def _punctuation_rules(text: NormalizedText) -> dict[Side, Callable[[str], str]]:
    from sacremoses import MosesPunctNormalizer  # takes half a second, so only if it is needed

    languages: dict[Side, str] = {"source": text.source_language, "target": text.target_language}
    return {
        side: MosesPunctNormalizer(lang=language.replace("_", "-").split("-")[0].lower()).normalize
        for side, language in languages.items()
    }
