"""What happens to text before it is cut into pieces, in preprocess and in translate alike."""

import unicodedata
from collections.abc import Callable
from typing import Literal

from nmt_cli.recipe.schema import DataConfig

Side = Literal["source", "target"]
SIDES: tuple[Side, Side] = ("source", "target")


class Normalizer:
    """Applies what ``data.normalization`` asks for; with nothing asked, text stays as it is."""

    def __init__(self, data: DataConfig) -> None:
        self._nfc = data.normalization.nfc
        self._punctuation = _punctuation_rules(data) if data.normalization.punctuation else {}

    @property
    def is_identity(self) -> bool:
        """Say whether no text would change."""
        return not self._nfc and not self._punctuation

    def __call__(self, text: str, side: Side = "source") -> str:
        """Return the text as the tokenizer should see it."""
        if self._nfc:
            text = unicodedata.normalize("NFC", text)
        if self._punctuation:
            text = self._punctuation[side](text)
        return text


def _punctuation_rules(data: DataConfig) -> dict[Side, Callable[[str], str]]:
    from sacremoses import MosesPunctNormalizer  # half a second that only those who ask for it pay

    languages: dict[Side, str] = {"source": data.source_language, "target": data.target_language}
    return {
        side: MosesPunctNormalizer(lang=language.replace("_", "-").split("-")[0].lower()).normalize
        for side, language in languages.items()
    }
