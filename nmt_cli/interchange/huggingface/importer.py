"""Imports Hugging Face's MarianMTModel (OPUS-MT) and PegasusForConditionalGeneration.

Its dimensions have the sines of all frequencies before the cosines, where ours have them in turn.
Biases that are all zero, which its classes always have, are left out.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from nmt_cli.corpus.tokenizers.normalization import Side
from nmt_cli.files.file_names import WEIGHTS
from nmt_cli.interchange.fairseq.names import names_of_layer
from nmt_cli.interchange.files import (
    CONFIG,
    NO_FILES,
    SIDES,
    Array,
    TextFiles,
    as_fp32,
    read_config,
    read_safetensors,
)
from nmt_cli.interchange.huggingface.options import Configuration, read_configuration
from nmt_cli.interchange.huggingface.vocabularies import (
    Vocabularies,
    read_vocabularies,
    start_of_decoder,
)
from nmt_cli.interchange.imported_model import ImportedModel, tying, vocabulary_matrices
from nmt_cli.interchange.known_sinusoids import known_sinusoids, order_from_sines_first
from nmt_cli.interchange.options import refusing
from nmt_cli.interchange.pickled_tensors import read_pickled_tensors
from nmt_cli.interchange.tensors_taken import LayerNames, LayersTaken, TensorsTaken, dotted
from nmt_cli.interchange.vocabularies import PEGASUS_MODEL, read_sentencepiece
from nmt_cli.messages.errors import UserError
from nmt_cli.recipe.model_config import ModelConfig

SHARED, OUTPUT, BIAS = "model.shared.weight", "lm_head.weight", "final_logits_bias"
EMBEDDINGS = {side: f"model.{side}.embed_tokens.weight" for side in SIDES}
POSITIONS = {side: f"model.{side}.embed_positions.weight" for side in SIDES}
ROUNDING = 5e-4  # of sinusoids that are stored in half precision


def import_huggingface(folder: Path, files: TextFiles = NO_FILES) -> ImportedModel:
    """Return the model of ``folder``.

    Raises UserError with all reasons if it is none that can be imported, or if a file cannot be
    read, and DamagedError if a file is damaged.
    """
    files.refuse_any("Hugging Face")
    if not (folder / CONFIG).is_file():
        raise UserError(f"{folder} has no {CONFIG}; give the folder of a model of Hugging Face.")
    with refusing(folder):
        config = read_configuration(read_config(folder))
        tensors = TensorsTaken(read_tensors(folder))
        sizes: dict[Side, int] = {"source": config.sizes[0], "target": config.sizes[1]}
        models = read_sentencepiece(folder)
        vocabularies = read_vocabularies(folder, models, config.eos_id, sizes, tensors.reasons)
        return _model(config, tensors, vocabularies, models)


def _model(
    config: Configuration,
    tensors: TensorsTaken,
    vocabularies: Vocabularies,
    models: Mapping[Side, bytes] | None,
) -> ImportedModel:
    """Return the model. Raises ValueError with all reasons if it is none of ours."""
    if models is None:
        tensors.reasons.append(f"it has no source.spm and target.spm, and no {PEGASUS_MODEL}")
    taken = _Weights(config, tensors)
    taken.take_embeddings(vocabularies)
    taken.take_positions()
    for side in SIDES:
        taken.take_stack(side)
    tensors.refuse_wrong()
    taken.options |= taken.layers.leave_out_zeros()
    own = vocabularies.pieces["source"] if vocabularies.are_separate else None
    architecture = ModelConfig.model_validate(taken.options)
    return ImportedModel(architecture, vocabularies.pieces["target"], own, models, taken.weights)


class _Weights:
    """Our weights, taken one by one; ``options`` gets what follows for the architecture."""

    def __init__(self, config: Configuration, tensors: TensorsTaken) -> None:
        self._config, self._tensors = config, tensors
        self.options: dict[str, Any] = dict(config.options)
        self._d_model: int = self.options["d_model"]
        self.layers = LayersTaken(tensors, self._d_model, order_from_sines_first(self._d_model))
        self.weights = self.layers.weights

    def take_embeddings(self, vocabularies: Vocabularies) -> None:
        """Take the embeddings, the matrix of the softmax and its bias.

        The row of a start with zeros, which is no piece, leaves them and the vocabulary.
        """
        config, tensors = self._config, self._tensors
        source, target, output = self._matrices()
        size = config.sizes[1]
        bias = np.zeros((1, size), np.float32)
        if tensors.has(BIAS):
            bias = tensors.take(BIAS, 1, size)
        if tensors.is_wrong:
            return
        start = config.start_id
        kept = {"source": np.arange(len(source)), "target": np.arange(size)}
        if start != config.eos_id and not target[start].any():
            self.options["decoder_start"] = "zeros"
            without: tuple[Side, ...] = ("source", "target")
            for side in without[1:] if vocabularies.are_separate else without:
                kept[side] = np.delete(kept[side], start)
                del vocabularies.pieces[side][start]
        else:
            self.options["decoder_start"] = start_of_decoder(
                vocabularies, start, config.eos_id, tensors.reasons
            )
        tied = tying(source, target, output, is_shared=not vocabularies.are_separate)
        self.options["tied_embeddings"] = tied
        for name, matrix in vocabulary_matrices(source, target, output, tied).items():
            side = "source" if name.startswith("source") else "target"
            self.weights[name] = self.layers.columns(matrix[kept[side]])
        self.weights["output_bias"] = bias[0, kept["target"]]
        if vocabularies.are_separate:
            self.options["source_vocabulary_size"] = len(kept["source"])

    def _matrices(self) -> tuple[Array, Array, Array]:
        """Return the embeddings of source and target and the matrix of the softmax."""
        config, tensors = self._config, self._tensors
        names = list(EMBEDDINGS.values())
        if config.is_shared:
            tied = [SHARED, *names, *([OUTPUT] if config.is_tied else ())]
            first = next((name for name in tied if tensors.has(name)), SHARED)
            shared = tensors.take(first, config.sizes[0], self._d_model)
            for name in (SHARED, *names):
                tensors.take_same(name, first, shared)
            source = target = shared
        else:
            tensors.take_if_there(SHARED)  # which these classes do not use then
            source, target = (
                tensors.take(name, size, self._d_model)
                for name, size in zip(names, config.sizes, strict=True)
            )
        if config.is_tied:
            other = SHARED if config.is_shared else names[1]
            return source, target, tensors.take_same(OUTPUT, other, target)
        return source, target, tensors.take(OUTPUT, config.sizes[1], self._d_model)

    def take_positions(self) -> None:
        """Take the tables of positions, if there are any; other ones than sinusoids are learned."""
        there = {side: name for side, name in POSITIONS.items() if self._tensors.has(name)}
        tables = {}
        for side, name in there.items():
            table = self._tensors.take_if_there(name)
            if table is None or table.shape[1:] != (self._d_model,) or not np.isfinite(table).all():
                self._tensors.reasons.append(f"{name} is not a vector for each position")
                return
            tables[side] = self.layers.columns(table)
        if not tables:
            return
        found = known_sinusoids(tables.values(), ROUNDING)
        if found is not None:
            self.options |= found
            return
        if len({len(table) for table in tables.values()}) > 1 or len(tables) < len(POSITIONS):
            self._tensors.reasons.append("its sides have unlike positions")
            return
        self.options |= {"positions": "learned", "max_positions": len(tables["encoder"])}
        for side, table in tables.items():
            self.weights[f"{SIDES[side]}_embedding.positions.weight"] = table

    def take_stack(self, side: str) -> None:
        """Take all layers of the encoder or the decoder."""
        if self.options["norm"] == "pre":
            self.layers.take_norm(dotted(f"model.{side}.layer_norm"), f"{side}_norm")
        self.layers.take_stack(side, self.options, _names)


def _names(side: str, number: int) -> LayerNames:
    return names_of_layer(side, number, "model.")


PICKLED = "pytorch_model.bin"


def read_tensors(folder: Path) -> dict[str, Array]:
    """Return the weights of ``folder`` in fp32.

    Raises UserError if a file cannot be read or holds other things, DamagedError if it is damaged.
    """
    path = folder / WEIGHTS
    if path.is_file():
        return read_safetensors(path)
    path = folder / PICKLED
    if path.is_file():
        return as_fp32(read_pickled_tensors(path), path)
    raise UserError(f"{folder} has no {WEIGHTS} and no {PICKLED}, which hold the weights.")
