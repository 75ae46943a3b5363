"""Imports a Transformer of Marian from its .npz file.

Its sinusoids have the sines of all frequencies before the cosines, where ours have them in turn.
Biases that are all zero are left out.
"""

from collections.abc import Mapping
from functools import partial
from pathlib import Path

import numpy as np

from nmt_cli.corpus.tokenizers.normalization import Side
from nmt_cli.interchange.files import NO_FILES, SIDES, Array, TextFiles
from nmt_cli.interchange.imported_model import ImportedModel, tying, vocabulary_matrices
from nmt_cli.interchange.known_sinusoids import order_from_sines_first
from nmt_cli.interchange.marian.files import SETTINGS, find_files, read_archive
from nmt_cli.interchange.marian.options import Configuration, read_configuration, read_settings
from nmt_cli.interchange.marian.vocabularies import read_vocabularies
from nmt_cli.interchange.options import refusing
from nmt_cli.interchange.tensors_taken import (
    NAMED,
    AttentionNames,
    LayerNames,
    LayersTaken,
    Pair,
    TensorsTaken,
)
from nmt_cli.interchange.vocabularies import NEVER, Vocabulary
from nmt_cli.messages import logs
from nmt_cli.messages.figures import counted
from nmt_cli.recipe.model_config import ModelConfig

SHARED, POSITIONS = "Wemb", "Wpos"
OUTPUT, OLD_OUTPUT = "decoder_ff_logit_out_Wt", "decoder_ff_logit_out_W"
BIAS = "decoder_ff_logit_out_b"


def import_marian(path: Path, files: TextFiles = NO_FILES) -> ImportedModel:
    """Return the model at ``path``, an .npz file or a folder with one.

    Raises UserError with all reasons if it is none that can be imported, or if a file is missing or
    cannot be read, and DamagedError if a file is damaged.
    """
    found = find_files(path, files)
    archive = read_archive(found.weights)
    settings = read_settings(archive.settings, f"{found.weights}: {SETTINGS}")
    tensors = TensorsTaken(archive.tensors)
    with refusing(found.weights):
        _refuse_quantized(archive.quantized, tensors.reasons)
        config = read_configuration(settings, tensors.reasons)
        taken = _Weights(tensors, config)
        vocabularies, models = read_vocabularies(found, taken.sizes(), tensors.reasons)
        taken.take_all(vocabularies)
        architecture = ModelConfig.model_validate(config.options)
    logs.info(f"Read {found}.")
    pieces = {side: vocabulary.pieces for side, vocabulary in vocabularies.items()}
    own = pieces["source"] if "source_vocabulary_size" in config.options else None
    return ImportedModel(architecture, pieces["target"], own, models, taken.layers.weights)


class _Weights:
    """Our weights, taken one by one; ``options`` gets what follows for the architecture."""

    def __init__(self, tensors: TensorsTaken, config: Configuration) -> None:
        self._tensors, self._config, self._options = tensors, config, config.options
        self._d_model: int = self._options["d_model"]
        source = self._take_matrix(SHARED if config.is_shared else "encoder_Wemb")
        target = source if config.is_shared else self._take_matrix("decoder_Wemb")
        self._matrices: dict[Side, Array] = {"source": source, "target": target}
        has_sinusoids = self._options["positions"] == "sinusoidal" and not tensors.is_wrong
        order = order_from_sines_first(self._d_model) if has_sinusoids else None
        self.layers = LayersTaken(tensors, self._d_model, order)

    def _take_matrix(self, name: str) -> Array:
        """Take a matrix with a row for each piece; their number is what the file has."""
        return self._tensors.take(name, self._tensors.length(name), self._d_model)

    def sizes(self) -> dict[Side, int]:
        """Return the rows of the matrices that the model has."""
        return {side: len(matrix) for side, matrix in self._matrices.items() if len(matrix)}

    def take_all(self, vocabularies: Mapping[Side, Vocabulary]) -> None:
        """Take everything; raise ValueError with all reasons if it is none of our models."""
        self._take_positions()
        for side in SIDES:
            self._take_stack(side)
        self._take_pieces(vocabularies)
        self._tensors.refuse_wrong()
        self._options |= self.layers.leave_out_zeros()

    def _take_pieces(self, vocabularies: Mapping[Side, Vocabulary]) -> None:
        """Take the matrix of the softmax and its bias, and put the pieces in our order."""
        source, target = self._matrices.values()
        size, output, bias = len(target), target, np.zeros(len(target), np.float32)
        if not size:  # it is missing; the others are not unknown then
            for name in (OUTPUT, OLD_OUTPUT, BIAS):
                self._tensors.take_if_there(name)
            return
        if not self._config.is_tied:
            name = OLD_OUTPUT if self._tensors.has(OLD_OUTPUT) else OUTPUT
            output = self._tensors.take(name, size, self._d_model)
        if self._config.has_output_bias:
            bias = self._tensors.take(BIAS, size)
        if self._tensors.is_wrong:
            return
        of_source, of_target = vocabularies["source"], vocabularies["target"]
        is_shared = of_source.pieces == of_target.pieces
        if not is_shared:
            self._options["source_vocabulary_size"] = len(of_source.pieces)
        matrices = of_source.rows_of(source), of_target.rows_of(target), of_target.rows_of(output)
        tied = tying(*matrices, is_shared=is_shared)
        self._options["tied_embeddings"] = tied
        for name, matrix in vocabulary_matrices(*matrices, tied).items():
            self.layers.weights[name] = self.layers.columns(matrix)
        self.layers.weights["output_bias"] = of_target.rows_of(bias, NEVER)

    def _take_positions(self) -> None:
        """Take the table of learned positions, which both sides share."""
        if self._options["positions"] == "sinusoidal":
            return
        table = self._take_matrix(POSITIONS)
        self._options["max_positions"] = len(table)
        for text_side in SIDES.values():
            self.layers.weights[f"{text_side}_embedding.positions.weight"] = table

    def _take_stack(self, side: str) -> None:
        """Take all layers of the encoder or the decoder."""
        options = self._options
        if options["embedding_norm"]:
            norm = _norm(f"{side}_emb", "_pre")
            self.layers.take_norm(norm, f"{SIDES[side]}_embedding.norm")
        if options["norm"] == "pre":
            self.layers.take_norm(_norm(f"{side}_top"), f"{side}_norm")
        suffix = "_pre" if options["norm"] == "pre" else ""
        self.layers.take_stack(side, options, partial(_names, suffix))


def _names(suffix: str, side: str, number: int) -> LayerNames:
    layer = f"{side}_l{number + 1}"

    def attention(name: str) -> AttentionNames:
        queries, keys, values, output = (
            Pair(f"{layer}_{name}_W{part}", f"{layer}_{name}_b{part}") for part in "qkvo"
        )
        return AttentionNames(queries, keys, values, output, _norm(f"{layer}_{name}_Wo", suffix))

    return LayerNames(
        attention("self"),
        attention("context") if side == "decoder" else None,
        Pair(f"{layer}_ffn_W1", f"{layer}_ffn_b1"),
        Pair(f"{layer}_ffn_W2", f"{layer}_ffn_b2"),
        _norm(f"{layer}_ffn_ffn", suffix),
    )


def _norm(name: str, suffix: str = "") -> Pair:
    return Pair(f"{name}_ln_scale{suffix}", f"{name}_ln_bias{suffix}")


def _refuse_quantized(types: Mapping[str, str], reasons: list[str]) -> None:
    if types:
        named = ", ".join(f"{name} ({kind})" for name, kind in list(types.items())[:NAMED])
        more = ", ..." if len(types) > NAMED else ""
        reasons.append(
            f"{counted(len(types), 'tensor')} not in fp16 or fp32, give the model from before it "
            f"was quantized: {named}{more}"
        )
