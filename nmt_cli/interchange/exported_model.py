"""What an export needs of a model: its settings, its weights as arrays, and its pieces."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

from nmt_cli.corpus.tokenizers.sentence_marks import start_id
from nmt_cli.interchange.files import Array
from nmt_cli.recipe.model_config import DROPOUTS, ModelConfig
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
