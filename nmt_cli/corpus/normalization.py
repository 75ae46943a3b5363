"""What happens to text before it is cut into pieces, in preprocess and in translate alike."""

import unicodedata
from collections.abc import Callable
from typing import Literal, Protocol

from nmt_cli.recipe.schema import Normalization

Side = Literal["source", "target"]
SIDES: tuple[Side, Side] = ("source", "target")


class NormalizedText(Protocol):
    """What decides how text is normalized: the data section of a recipe, or a model's settings."""

    @property
    def source_language(self) -> str:
        """Code of the language translated from."""
        ...

    @property
    def target_language(self) -> str:
        """Code of the language translated into."""
        ...

    @property
    def normalization(self) -> Normalization:
        """What to change."""
        ...


class Normalizer:
    """Applies the changes that were asked for; with none, text stays as it is."""

    def __init__(self, text: NormalizedText) -> None:
        self._nfc = text.normalization.nfc
        self._punctuation = _punctuation_rules(text) if text.normalization.punctuation else {}

    @property
    def is_identity(self) -> bool:
        """Return whether no text would change."""
        return not self._nfc and not self._punctuation

    def __call__(self, text: str, side: Side = "source") -> str:
        """Return the text as the tokenizer should see it."""
        if self._nfc:
            text = unicodedata.normalize("NFC", text)
        if self._punctuation:
            text = self._punctuation[side](text)
        return text


def _punctuation_rules(text: NormalizedText) -> dict[Side, Callable[[str], str]]:
    from sacremoses import MosesPunctNormalizer  # half a second that only those who ask for it pay

    languages: dict[Side, str] = {"source": text.source_language, "target": text.target_language}
    return {
        side: MosesPunctNormalizer(lang=language.replace("_", "-").split("-")[0].lower()).normalize
        for side, language in languages.items()
    }
