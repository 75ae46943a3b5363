"""What an export needs of a model: its settings, its weights as arrays, and its pieces."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from nmt_cli.corpus.tokenizers.sentence_marks import start_id
from nmt_cli.interchange.files import Array, Weights
from nmt_cli.messages.errors import UserError
from nmt_cli.model.embeddings import sinusoids
from nmt_cli.recipe.model_config import DROPOUTS, ModelConfig, StackShape
from nmt_cli.recipe.model_settings import ModelSettings

if TYPE_CHECKING:
    from nmt_cli.model_directory import LoadedModel


FEWEST_POSITIONS = 2_048  # rows of a table of sinusoids


class ExportedModel(NamedTuple):
    """A model to export."""

    settings: ModelSettings
    weights: Mapping[str, Array]  # under the names of ``Transformer``, each matrix once
    pieces: tuple[str, ...]  # of the target, by id
    source_pieces: tuple[str, ...]  # the same ones, or those of a vocabulary of its own
    unk_id: int
    bos_id: int  # equals eos_id if the model has no <s>
    eos_id: int
    start_id: int  # the decoder's first token; if it is not eos_id, no output has it
    has_two_spms: bool = False  # a SentencePiece model for each language
    imported_from: str | None = None  # the program that the weights are of, as --from has it

    @classmethod
    def of(cls, loaded: LoadedModel) -> ExportedModel:
        """Return what exporting needs of a loaded model; the weights share its memory."""
        from nmt_cli.corpus.tokenizers.mapped_sentencepiece import MappedSentencePieceTokenizer

        tokenizer = loaded.tokenizer
        source_size = tokenizer.source_size or tokenizer.size
        return cls(
            loaded.settings,
            {name: weight.detach().numpy() for name, weight in loaded.model.named_parameters()},
            tuple(tokenizer.pieces(range(tokenizer.size))),
            tuple(tokenizer.pieces(range(source_size), side="source")),
            tokenizer.unk_id,
            tokenizer.bos_id,
            tokenizer.eos_id,
            start_id(loaded.settings.architecture, tokenizer),
            isinstance(tokenizer, MappedSentencePieceTokenizer),
            loaded.manifest.get("imported", {}).get("program"),
        )

    @property
    def has_two_vocabularies(self) -> bool:
        """Whether the source has a vocabulary of its own."""
        return self.settings.architecture.source_vocabulary_size is not None

    @property
    def num_positions(self) -> int:
        """The length of the longest sentence that an export of the model has positions for."""
        architecture = self.settings.architecture
        if architecture.positions == "learned":
            return architecture.max_positions
        longest_output = self.settings.max_length + self.settings.decoding.max_extra_length
        return max(FEWEST_POSITIONS, longest_output + 2)


class WeightsToExport:
    """Hands out each weight of a model once, so that none is forgotten."""

    def __init__(self, model: ExportedModel) -> None:
        self._model = model
        self._left = dict(model.weights)
        # Embeddings that are tied to the softmax have no weights of their own.
        for name in ("source_embedding.weight", "target_embedding.weight"):
            self._left.setdefault(name, self._left["output_weight"])

    def take(self, name: str) -> Array:
        """Return the weight called ``name``."""
        return self._left.pop(name)

    def take_output_bias(self) -> Array:
        """Return the bias of each piece before the softmax: zeros if the model has none."""
        bias = self._left.pop("output_bias", None)
        return bias if bias is not None else np.zeros(len(self._model.pieces), np.float32)

    def take_layer(self, name: str) -> Weights:
        """Return the ``weight`` of a layer, and its ``bias`` if it has one."""
        parts = {part: self._left.pop(f"{name}.{part}", None) for part in ("weight", "bias")}
        return {part: array for part, array in parts.items() if array is not None}

    def take_positions(self, side: str) -> Array:
        """Return the positions of ``side``, learned ones or the sinusoids of section 3.5."""
        architecture = self._model.settings.architecture
        if architecture.positions == "learned":
            return self.take(f"{side}_embedding.positions.weight")
        return sinusoids(
            self._model.num_positions,
            architecture.d_model,
            architecture.sinusoid_frequencies,
            architecture.first_position,
        ).numpy()

    def take_attention(self, name: str, shape: StackShape) -> tuple[Weights, Weights, Weights]:
        """Return the layers of the queries, keys and values of an attention."""
        keys = shape.num_heads * shape.key_width
        together = self.take_layer(f"{name}.queries_keys_values")
        if not together:
            queries = self.take_layer(f"{name}.queries")
            together = self.take_layer(f"{name}.keys_values")
            together = {part: np.concatenate((queries[part], together[part])) for part in together}
        queries, keys_, values = (
            {part: array[rows] for part, array in together.items()}
            for rows in (slice(keys), slice(keys, 2 * keys), slice(2 * keys, None))
        )
        return queries, keys_, values

    def refuse_left(self) -> None:
        """Raise UserError if a weight was not handed out: the export would compute other things."""
        if self._left:
            raise UserError(
                "the export has no place for these weights of the model: "
                f"{', '.join(sorted(self._left))}."
            )


def widened_heads(layer: Mapping[str, Array], num_heads: int, width: int, axis: int = 0) -> Weights:
    """Return ``layer`` with zeros behind each head, so that heads are ``width`` wide.

    ``axis`` is that of the heads: 0 for what makes them, 1 for what reads them, whose bias stays.
    """
    return {
        part: _widened(array, num_heads, width, axis) if axis < array.ndim else array
        for part, array in layer.items()
    }


def _widened(array: Array, num_heads: int, width: int, axis: int) -> Array:
    shape = array.shape
    heads = array.reshape(*shape[:axis], num_heads, -1, *shape[axis + 1 :])
    missing = [(0, 0)] * heads.ndim
    missing[axis + 1] = (0, width - heads.shape[axis + 1])
    return np.pad(heads, missing).reshape(*shape[:axis], num_heads * width, *shape[axis + 1 :])


# The keys of ``model`` that concern training only, or that each export carries over or refuses for
# a reason of its own. A model that uses another key is refused until its export is written.
EXPORTED_KEYS = frozenset(
    {
        *("num_layers", "d_model", "d_ff", "num_heads", "d_k", "d_v"),
        *DROPOUTS,
        *("positions", "max_positions", "norm", "tied_embeddings"),
        *("activation", "attention_biases", "feed_forward_biases", "norm_epsilon"),
        *("embedding_norm", "scale_embeddings", "output_bias"),
        *("sinusoid_frequencies", "first_position", "decoder_start", "source_eos"),
        *("decoder_num_layers", "decoder_d_ff", "decoder_num_heads", "source_vocabulary_size"),
    }
)


def keys_not_exported(architecture: ModelConfig) -> Iterator[str]:
    """Yield a reason for each key that has another value than its default, and is not exported."""
    for name, field in type(architecture).model_fields.items():
        value = getattr(architecture, name)
        if name not in EXPORTED_KEYS and value != field.default:
            yield f"model.{name} {value} cannot be exported yet"
