"""Imports a Transformer of fairseq, from a checkpoint and two dictionaries.

Its sinusoids have the sines of all frequencies before the cosines, where ours have them in turn.
``<pad>`` stays in the vocabulary, because it has a part in the softmax.
"""

from pathlib import Path

from nmt_cli.corpus.tokenizers.normalization import Side
from nmt_cli.interchange.fairseq.checkpoint import Checkpoint, find_checkpoint, read_checkpoint
from nmt_cli.interchange.fairseq.names import OUTPUT, names_of_layer, with_new_names
from nmt_cli.interchange.fairseq.options import read_configuration
from nmt_cli.interchange.fairseq.vocabularies import MARKS, read_vocabularies
from nmt_cli.interchange.files import NO_FILES, SIDES, TextFiles
from nmt_cli.interchange.imported_model import ImportedModel
from nmt_cli.interchange.known_sinusoids import order_from_sines_first
from nmt_cli.interchange.options import refusing
from nmt_cli.interchange.tensor_names import StackNames, dotted
from nmt_cli.interchange.tensors_taken import TensorsTaken
from nmt_cli.interchange.vocabularies import joiner_of, read_named_models
from nmt_cli.interchange.weights_taken import WeightsTaken

NAMES = StackNames(
    names_of_layer,
    last_norm=lambda side: dotted(f"{side}.layer_norm"),
    embedding_norm=lambda side: dotted(f"{side}.layernorm_embedding"),
)
EMBEDDINGS: dict[Side, str] = {
    "source": "encoder.embed_tokens.weight",
    "target": "decoder.embed_tokens.weight",
}
POSITIONS = [f"{side}.embed_positions.weight" for side in SIDES]
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
    models = read_named_models(files)
    vocabularies = read_vocabularies(
        checkpoint.path, files, config.languages, tensors.reasons, are_words=models is None
    )
    order = None if config.is_learned else order_from_sines_first(config.options["d_model"])
    taken = WeightsTaken(tensors, config.options, order)
    if config.is_shared and vocabularies["source"] != vocabularies["target"]:
        tensors.reasons.append("its sides share their embeddings, but not the vocabulary")
    rows = [_rows(tensors, side, len(each.rows)) for side, each in vocabularies.items()]
    names = [*EMBEDDINGS.values(), OUTPUT]
    matrices = taken.take_matrices(names, rows, is_shared=config.is_shared, is_tied=config.is_tied)
    taken.put_pieces(vocabularies, matrices)
    _take_positions(taken, is_learned=config.is_learned)
    for side in SIDES:
        taken.take_stack(side, NAMES)
    pieces = [each.pieces for each in vocabularies.values()]
    return taken.model(vocabularies, models, joiner_of(*pieces) if models is None else None)


def _rows(tensors: TensorsTaken, side: Side, pieces: int) -> int:
    """Return the rows of a side's embeddings; add a reason if they are not its pieces."""
    name = EMBEDDINGS[side]
    rows = tensors.length(name)
    if rows in {0, pieces}:
        return pieces
    text = f"the {side} vocabulary has {pieces:,} pieces with its {len(MARKS)} marks"
    tensors.reasons.append(f"{text}, {name} {rows:,} rows")
    return rows


def _take_positions(taken: WeightsTaken, *, is_learned: bool) -> None:
    """Take the tables of learned positions; what sinusoids leave in a checkpoint is dropped."""
    if is_learned:
        count = taken.tensors.length(POSITIONS[0])
        tables = [taken.tensors.take(name, count, taken.d_model) for name in POSITIONS]
        taken.put_learned_positions([table[FIRST_POSITION:] for table in tables])
        return
    taken.options |= SINUSOIDS
    for side in SIDES:
        for name in DERIVED:
            taken.tensors.take_if_there(f"{side}.embed_positions.{name}")
