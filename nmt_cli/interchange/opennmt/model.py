"""Makes our model from the tensors, options and tokens of one of eole or OpenNMT-py."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from nmt_cli.corpus.tokenizers.normalization import Side
from nmt_cli.interchange.files import SIDES, Array
from nmt_cli.interchange.imported_model import ImportedModel
from nmt_cli.interchange.opennmt.vocabularies import Tokens, read_tokens
from nmt_cli.interchange.opennmt.weights import Embeddings, Names, WeightsTaken, uneven_biases
from nmt_cli.interchange.tensors_taken import TensorsTaken
from nmt_cli.interchange.vocabularies import joiner_of
from nmt_cli.recipe.model_config import ModelConfig


class Configuration(NamedTuple):
    """The architecture of a model, from its options."""

    options: dict[str, Any]  # of our architecture
    embeddings: Embeddings
    attention_widths: Mapping[str, int]  # of all heads together, by side


def make_model(
    tensors: Mapping[str, Array],
    names: Names,
    configuration: Configuration,
    tokens: Tokens,
    models: Mapping[Side, bytes] | None,
) -> ImportedModel:
    """Return the model; ``models`` are its SentencePiece models, None for text in pieces.

    Raises ValueError with all reasons if it is none of ours.
    """
    taken = TensorsTaken(tensors)
    taken.reasons += uneven_biases(tensors)
    vocabularies, start = read_tokens(tokens, taken.reasons, are_words=models is None)
    options = {**configuration.options, "decoder_start": start}
    weights = WeightsTaken(taken, names, options, configuration.embeddings)
    weights.take_embeddings(vocabularies)
    weights.take_positions()
    for side in SIDES:
        weights.take_stack(side, configuration.attention_widths[side])
    taken.refuse_wrong()
    weights.leave_out_zeros()
    architecture = ModelConfig.model_validate(options)
    source, target = vocabularies["source"].pieces, vocabularies["target"].pieces
    own = source if architecture.source_vocabulary_size else None
    joiner = joiner_of(source, target) if models is None else None
    return ImportedModel(architecture, target, own, models, weights.weights, joiner)
