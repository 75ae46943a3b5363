"""How a model is exported: what is needed of it, tensors made of its weights, its README.md."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nmt_cli.corpus.tokenizers.sentence_marks import start_id
from nmt_cli.interchange.files import SIDES, Array, Weights
from nmt_cli.interchange.tensor_names import READING, Pair, StackNames
from nmt_cli.interchange.verification import Engine, Verification
from nmt_cli.model.sinusoids import sinusoids
from nmt_cli.recipe.model_settings import ModelSettings
from nmt_cli.recipe.model_values import Architecture, ModelShape, StackShape
from nmt_cli.saved.model_directory import LoadedModel


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
        shape = self._model.settings.architecture.stack_shapes[side]
        norms = {f"{SIDES[side]}_embedding.norm": names.embedding_norm}
        for ours, theirs in {**norms, f"{side}_norm": names.last_norm}.items():
            if theirs is not None and (layer := self._take_layer(ours)):
                self._put_part(ours, [theirs], {part: [each] for part, each in layer.items()})
        for number in range(shape.num_layers):
            for ours, pairs in names.of_layer(number):
                layer = self._take_layer(f"{side}_layers.{number}.{ours}")
                arrays = _with_heads(ours, layer, len(pairs), shape, head_width, factor)
                self._put_part(ours, pairs, arrays)

    def _put_part(
        self, ours: str, theirs: Sequence[Pair], arrays: Mapping[str, Sequence[Array]]
    ) -> None:
        """Put a layer or a norm, whose ``arrays`` are the weights and biases of ``theirs``."""
        kind = ours.rpartition(".")[2]
        for number, pair in enumerate(theirs):
            for part, name in pair._asdict().items():
                if part in arrays:
                    found = arrays[part][number]
                    if kind not in READING:
                        found = found if self._order is None else found[self._order]
                    elif part == "weight":
                        found = self.columns(found)
                    self.found[name] = np.ascontiguousarray(found)
                elif self._need_biases:
                    self.found[name] = np.zeros(len(arrays["weight"][number]), np.float32)

    def columns(self, array: Array) -> Array:
        """Return ``array`` [any, d_model] with its columns in their order."""
        return array if self._order is None else np.ascontiguousarray(array[:, self._order])

    def _take_layer(self, name: str) -> Weights:
        """Return the ``weight`` of a layer, and its ``bias`` if it has one; {} if there is none."""
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

    def made_of_all(self) -> Weights:
        """Return the tensors; no weight may be left, or the export would compute other things."""
        assert not self._left, sorted(self._left)
        return self.found


def _with_heads(
    ours: str, layer: Weights, count: int, shape: StackShape, width: int, factor: float
) -> dict[str, list[Array]]:
    """Return ``layer`` in ``count`` parts of equal kinds, with zeros behind each narrower head.

    Queries are multiplied by ``factor``.
    """
    name, _, kind = ours.rpartition(".")
    found = {part: [array] for part, array in layer.items()}
    if not name.endswith("attention"):
        return found
    if kind == "output":
        return {**found, "weight": [_widened(layer["weight"], shape.num_heads, width, axis=1)]}
    keys = shape.num_heads * shape.key_width
    for part, array in layer.items():
        cuts = [keys * number for number in range(1, READING[kind])]
        each = [_widened(rows, shape.num_heads, width, axis=0) for rows in np.split(array, cuts)]
        if factor != 1.0 and kind.startswith("queries"):
            each[0] = each[0] * np.float32(factor)
        size = len(each) // count
        found[part] = [np.concatenate(each[n : n + size]) for n in range(0, len(each), size)]
    return found


def _widened(array: Array, num_heads: int, width: int, axis: int) -> Array:
    """Return ``array`` with zeros behind each head, whose axis this is, up to ``width``."""
    shape = array.shape
    heads = array.reshape(*shape[:axis], num_heads, -1, *shape[axis + 1 :])
    missing = [(0, 0)] * heads.ndim
    missing[axis + 1] = (0, width - heads.shape[axis + 1])
    return np.pad(heads, missing).reshape(*shape[:axis], num_heads * width, *shape[axis + 1 :])


CARD = "README.md"
ABOUT_UNSEEN = (
    "Characters that the model never saw, such as emoji: nmt-cli copies them, this program gives "
    "them to the model."
)
EXACT = "float32"
TYPICAL_LENGTH = 25  # pieces of an output at which length penalties are compared


def nearest_exponent(alpha: float) -> float:
    """Return the p for which length^p, the penalty of other programs, grows as ours does."""
    return round(alpha * TYPICAL_LENGTH / (5 + TYPICAL_LENGTH), 3)


class Format(NamedTuple):
    """How models are exported to a program."""

    program: str
    quantizations: tuple[str, ...]
    reasons_against: Callable[[ExportedModel], Iterable[str]]
    write: Callable[[ExportedModel, Path, str], None]
    write_tokenizer: Callable[[LoadedModel, Path], None]
    engine: Callable[[Path, ExportedModel], Engine]
    card: Callable[[ExportedModel], CardOf]


class CardOf(NamedTuple):
    """What a format has in its card."""

    program: str
    front_matter: Sequence[str]  # lines of YAML; none: no front matter
    usage: str  # Python
    differences: Sequence[str]  # sentences, about the program


def model_card(
    model: ExportedModel, card: CardOf, quantization: str, verification: Verification | None
) -> str:
    """Return the text of README.md."""
    settings, text = model.settings, model.settings.text
    was_verified = "It was not verified."
    if verification is not None:
        was_verified = verification.as_sentence()
    made = "trained"
    if model.imported_from is not None:
        made = f"imported (`--from {model.imported_from}`)"
    blocks = [
        "\n".join(["---", *card.front_matter, "---"]) if card.front_matter else "",
        f"# {text.source_language} to {text.target_language}, for {card.program}",
        f"A Transformer that nmt-cli {made} and exported, with weights in {quantization}. "
        f"{was_verified}",
        "## Use",
        f"```python\n{card.usage}\n```",
        "## The text",
        _listed(_about_text(model)),
        "## What differs from nmt-cli translate",
        _listed([_about_length_penalty(settings), ABOUT_UNSEEN, *card.differences]),
    ]
    return "\n\n".join(block for block in blocks if block) + "\n"


def _about_text(model: ExportedModel) -> list[str]:
    settings, done = model.settings, []
    text = settings.text
    untouched = "The text was not normalized in training."
    if model.imported_from is not None:
        untouched = "How the text was normalized in training is not known here."
    if text.normalization.fold:
        done.append(
            "folded: without characters that nobody sees, such as soft hyphens and directional "
            "marks, and with full-width letters, ligatures and other forms of letters as plain ones"
        )
    if text.normalization.nfc:
        done.append("composed to Unicode NFC")
    if text.normalization.punctuation:
        done.append(
            "changed by the Moses normalization of punctuation (sacremoses, MosesPunctNormalizer) "
            "for its language"
        )
    notes = [
        f"In training, the text was first {' and then '.join(done)}. Do the same with the source."
        if done
        else untouched,
        "Tabs and other white space have to become single spaces.",
    ]
    if text.type == "whitespace":
        notes.append("The source has to be in pieces as in training, with spaces between them.")
        if text.joiner is not None:
            notes.append(
                f"A piece that ends in `{text.joiner}` continues in the next piece: remove "
                f"`{text.joiner} ` to get words."
            )
    if settings.trees is not None:
        notes.append(
            "The model parses: the source is a sentence, and the output is its tree with brackets "
            "as pieces. Nothing here makes outputs well-formed, as nmt-cli does."
        )
    return notes


def _about_length_penalty(settings: ModelSettings) -> str:
    alpha = settings.decoding.length_penalty
    return (
        "Length penalty: nmt-cli divides log-probabilities by ((5 + length) / 6)^"
        f"{alpha:g}, this program by length^p. At {TYPICAL_LENGTH} pieces the nearest p is "
        f"{nearest_exponent(alpha):g}; the translations of a beam search may differ."
    )


def _listed(sentences: Sequence[str]) -> str:
    return "\n".join(f"- {sentence}" for sentence in sentences)
