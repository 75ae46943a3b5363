"""Imports a Transformer of fairseq, from a checkpoint and two dictionaries.

Its sinusoids have the sines of all frequencies before the cosines, where ours have them in turn.
``<pad>`` stays in the vocabulary, because it has a part in the softmax.
"""

from pathlib import Path
from typing import Any

from nmt_cli.interchange.fairseq.checkpoint import Checkpoint, find_checkpoint, read_checkpoint
from nmt_cli.interchange.fairseq.names import OUTPUT, names_of_layer, with_new_names
from nmt_cli.interchange.fairseq.options import Configuration, read_configuration
from nmt_cli.interchange.fairseq.vocabularies import MARKS, Vocabularies, read_vocabularies
from nmt_cli.interchange.files import NO_FILES, SIDES, TextFiles
from nmt_cli.interchange.imported_model import ImportedModel, tying, vocabulary_matrices
from nmt_cli.interchange.known_sinusoids import order_from_sines_first
from nmt_cli.interchange.options import refusing
from nmt_cli.interchange.tensors_taken import LayersTaken, TensorsTaken, dotted
from nmt_cli.recipe.model_config import ModelConfig

EMBEDDINGS = {side: f"{side}.embed_tokens.weight" for side in SIDES}
POSITIONS = {side: f"{side}.embed_positions.weight" for side in SIDES}
FIRST_POSITION = MARKS.index("<pad>") + 1  # earlier rows of tables belong to padding
SINUSOIDS = {"sinusoid_frequencies": "tensor2tensor", "first_position": FIRST_POSITION}
DERIVED = ("_float_tensor", "weights")  # of the sinusoids, which fairseq computes anew
FIRST_VERSION = 1.0  # of checkpoints without one


def import_fairseq(path: Path, files: TextFiles = NO_FILES) -> ImportedModel:
    """Return the model of the checkpoint at ``path``, a file or a folder that holds one.

    Raises UserError with all reasons if it is none that can be imported, or if a file cannot be
    read, and DamagedError if a file is damaged.
    """
    checkpoint = read_checkpoint(find_checkpoint(path))
    with refusing(checkpoint.path):
        return _model(checkpoint, files)


def _model(checkpoint: Checkpoint, files: TextFiles) -> ImportedModel:
    """Return the model. Raises ValueError with all reasons if it is none of ours."""
    tensors = TensorsTaken(with_new_names(checkpoint.tensors))
    versions = {side: tensors.take_number(f"{side}.version", FIRST_VERSION) for side in SIDES}
    config = read_configuration(checkpoint.options, checkpoint.task, versions)
    vocabularies = read_vocabularies(checkpoint.path, files, config.languages, tensors.reasons)
    taken = _Weights(config, tensors)
    taken.take_embeddings(vocabularies)
    taken.take_positions()
    for side in SIDES:
        taken.take_stack(side)
    tensors.refuse_wrong()
    taken.options |= taken.layers.leave_out_zeros()
    own = vocabularies.source.pieces if vocabularies.are_separate else None
    return ImportedModel(
        ModelConfig.model_validate(taken.options),
        vocabularies.target.pieces,
        own,
        vocabularies.sentencepiece,
        taken.weights,
        vocabularies.joiner,
    )


class _Weights:
    """Our weights, taken one by one; ``options`` gets what follows for the architecture."""

    def __init__(self, config: Configuration, tensors: TensorsTaken) -> None:
        self._config, self._tensors = config, tensors
        self.options: dict[str, Any] = dict(config.options)
        self._d_model: int = self.options["d_model"]
        order = None if config.is_learned else order_from_sines_first(self._d_model)
        self.layers = LayersTaken(tensors, self._d_model, order)
        self.weights = self.layers.weights

    def take_embeddings(self, vocabularies: Vocabularies) -> None:
        """Take the embeddings and the matrix of the softmax, with the rows in our order."""
        config, tensors = self._config, self._tensors
        if config.is_shared and vocabularies.are_separate:
            tensors.reasons.append("its sides share their embeddings, but not the vocabulary")
        of_source = self._size("encoder", len(vocabularies.source.rows))
        of_target = self._size("decoder", len(vocabularies.target.rows))
        target = tensors.take(EMBEDDINGS["decoder"], of_target, self._d_model)
        if config.is_shared:
            source = tensors.take_same(EMBEDDINGS["encoder"], EMBEDDINGS["decoder"], target)
        else:
            source = tensors.take(EMBEDDINGS["encoder"], of_source, self._d_model)
        if config.is_tied:
            output = tensors.take_same(OUTPUT, EMBEDDINGS["decoder"], target)
        else:
            output = tensors.take(OUTPUT, of_target, self._d_model)
        if tensors.is_wrong:
            return
        source = self.layers.columns(vocabularies.source.rows_of(source))
        target, output = (
            self.layers.columns(vocabularies.target.rows_of(each)) for each in (target, output)
        )
        tied = tying(source, target, output, is_shared=not vocabularies.are_separate)
        self.options["tied_embeddings"] = tied
        self.weights |= vocabulary_matrices(source, target, output, tied)
        if vocabularies.are_separate:
            self.options["source_vocabulary_size"] = len(source)

    def _size(self, side: str, pieces: int) -> int:
        """Return the rows of a side's embeddings; add a reason if they are not its pieces."""
        name = EMBEDDINGS[side]
        rows = self._tensors.length(name)
        if rows in {0, pieces}:
            return pieces
        text = f"the {SIDES[side]} vocabulary has {pieces:,} pieces with its {len(MARKS)} marks"
        self._tensors.reasons.append(f"{text}, {name} {rows:,} rows")
        return rows

    def take_positions(self) -> None:
        """Take the tables of learned positions; what sinusoids leave in a checkpoint is dropped."""
        if not self._config.is_learned:
            self.options |= SINUSOIDS
            for side in SIDES:
                for name in DERIVED:
                    self._tensors.take_if_there(f"{side}.embed_positions.{name}")
            return
        count = self._tensors.length(POSITIONS["encoder"])
        for side, name in POSITIONS.items():
            table = self._tensors.take(name, count, self._d_model)
            self.weights[f"{SIDES[side]}_embedding.positions.weight"] = table[FIRST_POSITION:]
        self.options |= {"positions": "learned", "max_positions": count - FIRST_POSITION}

    def take_stack(self, side: str) -> None:
        """Take all layers of the encoder or the decoder, and the norms around them."""
        if self.options["embedding_norm"]:
            norm = dotted(f"{side}.layernorm_embedding")
            self.layers.take_norm(norm, f"{SIDES[side]}_embedding.norm")
        if self.options["norm"] == "pre":
            self.layers.take_norm(dotted(f"{side}.layer_norm"), f"{side}_norm")
        self.layers.take_stack(side, self.options, names_of_layer)
