"""What an export needs of a model, and the tensors that are made of its weights."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nmt_cli.corpus.tokenizers.sentence_marks import start_id
from nmt_cli.interchange.files import SIDES, Array, Weights
from nmt_cli.interchange.tensor_names import PARTS_OF_INPUTS, AttentionNames, Pair, StackNames
from nmt_cli.messages.errors import UserError
from nmt_cli.model.sinusoids import sinusoids
from nmt_cli.recipe.model_settings import ModelSettings
from nmt_cli.recipe.model_values import Architecture, ModelShape, StackShape

if TYPE_CHECKING:
    from nmt_cli.model_directory import LoadedModel


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


# The keys of ``model`` that concern training only, or that each export carries over or refuses for
# a reason of its own. A model that uses another key is refused until its export is written.
EXPORTED_KEYS = frozenset(
    {
        *("num_layers", "d_model", "d_ff", "num_heads", "d_k", "d_v"),
        *("positions", "max_positions", "norm", "tied_embeddings"),
        *("activation", "attention_biases", "feed_forward_biases", "norm_epsilon"),
        *("embedding_norm", "scale_embeddings", "output_bias"),
        *("sinusoid_frequencies", "first_position", "decoder_start", "source_eos"),
        *("decoder_num_layers", "decoder_d_ff", "decoder_num_heads", "source_vocabulary_size"),
    }
)


def keys_not_exported(architecture: ModelShape) -> Iterator[str]:
    """Yield a reason for each key that has another value than its default, and is not exported."""
    defaults = vars(Architecture())
    for name, value in vars(architecture.of_model()).items():
        if name not in EXPORTED_KEYS and value != defaults[name]:
            yield f"model.{name} {value} cannot be exported yet"


class TensorsMade:
    """Tensors of another program, made of the weights of a model: ``found`` holds them by name.

    Each weight is taken once, so that none is forgotten. ``order`` are the places of their
    dimensions among ours [d_model], None if they are the same. Layers without a bias get zeros if
    they ``need_biases``.
    """

    def __init__(
        self, model: ExportedModel, order: NDArray[np.intp] | None = None, *, need_biases: bool
    ) -> None:
        self.found: Weights = {}
        self._model, self._order, self._need_biases = model, order, need_biases
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

    def put_stack(self, side: str, names: StackNames, head_width: int, factor: float = 1.0) -> None:
        """Put the layers of the encoder or the decoder, and the norms around them.

        Heads become ``head_width`` wide, with zeros behind them; queries are multiplied by
        ``factor``.
        """
        shape: StackShape = getattr(self._model.settings.architecture, side)
        if names.embedding_norm is not None:
            self._put_norm(names.embedding_norm(side), f"{SIDES[side]}_embedding.norm")
        for number in range(shape.num_layers):
            layer, ours = names.layer(side, number), f"{side}_layers.{number}"
            kinds = {"self": layer.self_attention, "memory": layer.memory_attention}
            for kind, attention in kinds.items():
                if attention is not None:
                    name = f"{ours}.{kind}_attention"
                    self._put_inputs(attention, name, shape, head_width, factor)
                    output = self._take_layer(f"{name}.output")
                    output = _widened_heads(output, shape.num_heads, head_width, axis=1)
                    self._put_writing(attention.output, output)
                    self._put_norm(attention.norm, f"{name}_residual.norm")
            self._put_reading(layer.inner, self._take_layer(f"{ours}.feed_forward.inner"))
            self._put_writing(layer.outer, self._take_layer(f"{ours}.feed_forward.outer"))
            self._put_norm(layer.feed_forward_norm, f"{ours}.feed_forward_residual.norm")
        self._put_norm(names.last_norm(side), f"{side}_norm")

    def columns(self, array: Array) -> Array:
        """Return ``array`` [any, d_model] with its columns in their order."""
        return array if self._order is None else np.ascontiguousarray(array[:, self._order])

    def _put_inputs(
        self, names: AttentionNames, ours: str, shape: StackShape, head_width: int, factor: float
    ) -> None:
        layers = [
            _widened_heads(layer, shape.num_heads, head_width)
            for layer in self._take_attention(ours, shape)
        ]
        if factor != 1.0:
            layers[0] = {part: array * np.float32(factor) for part, array in layers[0].items()}
        for pair, count in zip(names.inputs, PARTS_OF_INPUTS[len(names.inputs)], strict=True):
            parts, layers = layers[:count], layers[count:]
            together = {part: np.concatenate([each[part] for each in parts]) for part in parts[0]}
            self._put_reading(pair, together)

    def _put_reading(self, names: Pair, layer: Weights) -> None:
        """Put a layer that reads vectors of the model."""
        self.found[names.weight] = self.columns(layer["weight"])
        self._put_bias(names.bias, layer)

    def _put_writing(self, names: Pair, layer: Weights) -> None:
        """Put a layer that writes vectors of the model."""
        if self._order is not None:
            layer = {part: array[self._order] for part, array in layer.items()}
        self.found[names.weight] = np.ascontiguousarray(layer["weight"])
        self._put_bias(names.bias, layer)

    def _put_bias(self, name: str, layer: Weights) -> None:
        if "bias" in layer or self._need_biases:
            self.found[name] = layer.get("bias", np.zeros(len(layer["weight"]), np.float32))

    def _put_norm(self, names: Pair, ours: str) -> None:
        """Put the norm that is called ``ours`` here, if the model has it."""
        for name, array in zip(names, self._take_layer(ours).values(), strict=False):
            self.found[name] = array if self._order is None else array[self._order]

    def _take_layer(self, name: str) -> Weights:
        """Return the ``weight`` of a layer, and its ``bias`` if it has one."""
        parts = {part: self._left.pop(f"{name}.{part}", None) for part in ("weight", "bias")}
        return {part: array for part, array in parts.items() if array is not None}

    def take_positions(self, side: str) -> Array:
        """Return the positions of ``side``, learned ones or the sinusoids of section 3.5."""
        architecture = self._model.settings.architecture
        if architecture.positions == "learned":
            return self.take(f"{side}_embedding.positions.weight")
        return sinusoids(
            self._model.settings.num_positions,
            architecture.d_model,
            architecture.sinusoid_frequencies,
            architecture.first_position,
        )

    def _take_attention(self, name: str, shape: StackShape) -> tuple[Weights, Weights, Weights]:
        """Return the layers of the queries, keys and values of an attention."""
        keys = shape.num_heads * shape.key_width
        together = self._take_layer(f"{name}.queries_keys_values")
        if not together:
            queries = self._take_layer(f"{name}.queries")
            together = self._take_layer(f"{name}.keys_values")
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


def _widened_heads(
    layer: Mapping[str, Array], num_heads: int, width: int, axis: int = 0
) -> Weights:
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
