"""The sections of a recipe that a model keeps: its architecture, and settings of translation."""

from typing import Annotated, Any

from pydantic import Field

from nmt_cli.recipe.model_values import (
    Architecture,
    Decoding,
    ModelShape,
    TextNormalization,
    value_rules,
)
from nmt_cli.recipe.sections.model_options import ModelOptions
from nmt_cli.recipe.translation_options import NUMBERS
from nmt_cli.recipe.values import Count, Flag, Number, Section

BEAM_SIZE, LENGTH_PENALTY = NUMBERS["beam_size"], NUMBERS["length_penalty"]


class ModelConfig(ModelShape, ModelOptions):
    """The Transformer of section 3, and what models of other programs do in another way."""

    def of_model(self) -> Architecture:
        """Return these options as a model has them, without dropout."""
        return Architecture(**self.model_dump(include=set(value_rules()["architecture"])))

    def as_json(self) -> dict[str, Any]:
        """Return all options as JSON values."""
        return self.model_dump(mode="json")


class Normalization(Section):
    """Changes to the text before it is cut into pieces; translate applies them to its input."""

    nfc: Flag = False
    """Compose characters (Unicode NFC)."""
    punctuation: Flag = False
    """Normalize punctuation as the Moses scripts do."""
    fold: Flag | None = None
    """Leave out what nobody sees, such as soft hyphens and directional marks (but not U+200C and
    U+200D), and write full-width letters, ligatures and other forms of letters as plain letters.
    Null is true for parallel text and false for treebanks, which preprocess decides."""

    def decided(self, *, fold: bool) -> "Normalization":
        """Return these settings with ``fold`` where they have null."""
        return self.model_copy(update={"fold": fold if self.fold is None else self.fold})

    def of_model(self) -> TextNormalization:
        """Return these settings as a model has them; null is false."""
        return TextNormalization(**self.decided(fold=False).model_dump())


class DecodingConfig(Section):
    """The beam search of section 6.1."""

    beam_size: Annotated[Count, Field(ge=BEAM_SIZE.least, le=BEAM_SIZE.most)] = 4
    """Hypotheses kept for a sentence; 1 is greedy."""
    length_penalty: Annotated[Number, Field(ge=LENGTH_PENALTY.least, le=LENGTH_PENALTY.most)] = 0.6
    """Alpha of the length penalty ((5 + length) / 6) ^ alpha."""
    max_extra_length: Annotated[Count, Field(ge=0, le=1_000_000)] = 50
    """Longest output: this many pieces more than the input."""
    well_formed_trees: Flag = False
    """Search only trees of exactly the sentence's words; needs data.treebank."""

    def of_model(self) -> Decoding:
        """Return these options as a model has them."""
        return Decoding(**self.model_dump())
