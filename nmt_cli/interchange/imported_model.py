"""A model that was made by another program, in our names, and the folder that holds it."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from nmt_cli.corpus.tokenizers.mapped_sentencepiece import MappedSentencePieceTokenizer
from nmt_cli.corpus.tokenizers.normalization import SIDES, Normalizer, Side
from nmt_cli.corpus.tokenizers.tokenizer import Tokenizer
from nmt_cli.corpus.tokenizers.whitespace_tokenizer import WhitespaceTokenizer
from nmt_cli.files.atomic_files import Partial
from nmt_cli.files.folders import AVERAGED, IMPORTED
from nmt_cli.interchange.files import Array
from nmt_cli.messages.errors import UserError
from nmt_cli.recipe.model_settings import UNKNOWN_LANGUAGE, ModelSettings, TextSettings
from nmt_cli.recipe.model_values import Architecture, Decoding, TextNormalization
from nmt_cli.recipe.sections.data import DataConfig
from nmt_cli.saved.model_directory import save_model

NO_RECIPE = b"# This model was imported from another program; there is no recipe.\n"
LEAST_SHARE = 0.5  # of the pieces of a SentencePiece model in the vocabulary; Marian's lack a few
# Of one language, as other programs write it; not a group of languages, such as ROMANCE.
CODE = re.compile(r"[a-z]{2,3}([_-][A-Za-z0-9]{1,8}){0,3}")
MAX_LENGTH: int = DataConfig.model_fields["max_length"].default  # pieces of the longest input


class ImportedModel(NamedTuple):
    """What a model directory needs; the first pieces of each vocabulary are our three marks."""

    architecture: Architecture
    pieces: list[str]
    source_pieces: list[str] | None  # None if both languages share one vocabulary
    sentencepiece: Mapping[Side, bytes] | None  # None for text in pieces
    weights: Mapping[str, Array]
    joiner: str | None = None  # of text in pieces
    languages: tuple[str, str] = (UNKNOWN_LANGUAGE, UNKNOWN_LANGUAGE)  # of source and target

    def with_languages(self, source: object, target: object) -> "ImportedModel":
        """Return the model with the languages that its files name, where they are codes."""
        return self._replace(languages=(_code(source), _code(target)))

    def settings(
        self, source_language: str | None = None, target_language: str | None = None
    ) -> ModelSettings:
        """Return the settings of the model directory; its own languages stand for None."""
        source, target = self.languages
        kind = "whitespace" if self.sentencepiece is None else "sentencepiece"
        text = TextSettings(
            source_language or source,
            target_language or target,
            kind,
            self.joiner,
            TextNormalization(),
        )
        return ModelSettings(self.architecture, len(self.pieces), text, MAX_LENGTH, Decoding())

    def tokenizer(self, settings: ModelSettings) -> Tokenizer:
        """Return the tokenizer. Raises UserError if its files are damaged or lack a mark."""
        normalizer = Normalizer(settings.text)
        if self.sentencepiece is None:
            return WhitespaceTokenizer(self.pieces, normalizer, self.joiner, self.source_pieces)
        own = None if self.source_pieces is None else _ids(self.source_pieces)
        return MappedSentencePieceTokenizer(
            self.sentencepiece, _ids(self.pieces), normalizer, "the imported model", own
        )


def write_model(
    partial: Partial, model: ImportedModel, settings: ModelSettings, origin: Mapping[str, Any]
) -> None:
    """Write the files of a model directory into ``partial``; its manifest names the ``origin``.

    Raises UserError if the SentencePiece models are not those of the vocabulary.
    """
    tokenizer = model.tokenizer(settings)
    if isinstance(tokenizer, MappedSentencePieceTokenizer):
        for side in SIDES:
            if (share := tokenizer.share_in_vocabulary(side)) < LEAST_SHARE:
                raise UserError(
                    f"the vocabulary has only {share:.0%} of the pieces of the {side}'s "
                    "SentencePiece model; put the SentencePiece model of its training into the "
                    "folder."
                )
    save_model(partial, settings, NO_RECIPE, tokenizer, model.weights)
    partial.manifest.update({"kind": AVERAGED, IMPORTED: dict(origin)})


def _code(name: object) -> str:
    return name if isinstance(name, str) and CODE.fullmatch(name) else UNKNOWN_LANGUAGE


def _ids(pieces: Sequence[str]) -> dict[str, int]:
    return {piece: token for token, piece in enumerate(pieces)}
