"""``--init-from``: training that starts from the weights of another model.

The moments of the optimizer and the learning rate start anew. Pieces are matched by their text, so
that the vocabularies may differ.
"""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from nmt_cli.corpus.tokenizers.normalization import Side
from nmt_cli.corpus.tokenizers.tokenizer import Tokenizer
from nmt_cli.files.file_names import WEIGHTS
from nmt_cli.messages import logs
from nmt_cli.messages.errors import UserError
from nmt_cli.model.transformer import Transformer
from nmt_cli.recipe.keys import as_written
from nmt_cli.recipe.model_values import ModelShape
from nmt_cli.saved.model_directory import LoadedModel, load_model

# Weights with one row for each piece. Tied matrices are stored under each of these names.
SOURCE_MATRIX = "source_embedding.weight"
OF_PIECES = (SOURCE_MATRIX, "target_embedding.weight", "output_weight", "output_bias")
LEAST_TIED_LAST = ("all", "decoder", "none")
DIFFERENCES_NAMED = 3

CommonPieces = tuple[list[int], list[int]]  # their ids in a model, and in its parent


def start_from(path: Path, model: Transformer, tokenizer: Tokenizer) -> dict[str, Any]:
    """Copy the weights of the model, checkpoint or run at ``path`` into ``model``.

    In the embeddings and the softmax, pieces of ``tokenizer`` that the other model has too get its
    vectors, and new ones keep theirs. Returns the entries for a manifest, and logs them. Raises
    UserError where the architectures differ.
    """
    parent = load_model(path)
    _refuse_other_architecture(parent, model.config)
    of_source, of_target = (
        _common_pieces(tokenizer, parent.tokenizer, side) for side in ("source", "target")
    )
    _copy_weights(model, parent.model, of_source, of_target)
    num_matched = len(of_target[0])
    logs.info(
        f"Starting from {parent.path}, which has {num_matched:,} of the {tokenizer.size:,} pieces."
    )
    return {
        "path": str(parent.path),
        "weights_sha256": parent.manifest["files"][WEIGHTS]["sha256"],
        "pieces_matched": num_matched,
        "vocabulary_size": tokenizer.size,
    }


def _refuse_other_architecture(parent: LoadedModel, config: ModelShape) -> None:
    theirs, ours = _architecture(parent.model.config), _architecture(config)
    different = [key for key in ours | theirs if ours.get(key) != theirs.get(key)]
    if different:
        named = different[:DIFFERENCES_NAMED]
        was = ", ".join(f"{key} {as_written(theirs.get(key))}" for key in named)
        has = ", ".join(f"{key} {as_written(ours.get(key))}" for key in named)
        raise UserError(
            f"{parent.path} was trained with {was}, but the recipe's model has {has}; "
            "correct the recipe, or choose another model to start from."
        )
    tied, parent_tied = config.tied_embeddings, parent.model.config.tied_embeddings
    if LEAST_TIED_LAST.index(tied) < LEAST_TIED_LAST.index(parent_tied):
        raise UserError(
            f"{parent.path} was trained with tied_embeddings {parent_tied}, but the recipe's "
            f"model has {tied}; different matrices cannot become one, so correct the recipe."
        )


def _architecture(config: ModelShape) -> dict[str, object]:
    """Return what decides names, shapes and meaning of the weights, beside the vocabulary."""
    keys = dict(vars(config.of_model()))
    del keys["tied_embeddings"], keys["source_vocabulary_size"]
    keys.update(d_k=config.encoder_shape.key_width, d_v=config.encoder_shape.value_width)
    for key, value in config.decoder_shape._asdict().items():
        is_other = config.decoder_shape != config.encoder_shape
        keys[f"decoder_{key}"] = value if is_other else None
    del keys["decoder_window"]  # ``attention_window`` is that of both
    if config.positions != "learned":
        del keys["max_positions"]
    return keys


def _common_pieces(tokenizer: Tokenizer, parent: Tokenizer, side: Side) -> CommonPieces:
    """Return the ids of pieces that both have, and the other's ids of the same pieces.

    Marks of start, end and unknown pieces are matched by what they do, because a piece of the text
    may be spelt like one of them.
    """
    parent_ids = _ids_of_text_pieces(parent, side)
    pairs = {
        token: parent_ids[piece]
        for piece, token in _ids_of_text_pieces(tokenizer, side).items()
        if piece in parent_ids
    }
    pairs[tokenizer.unk_id] = parent.unk_id
    pairs[tokenizer.bos_id] = parent.bos_id
    pairs[tokenizer.eos_id] = parent.eos_id  # after bos, which may be the same piece here
    return list(pairs.keys()), list(pairs.values())


def _ids_of_text_pieces(tokenizer: Tokenizer, side: Side) -> dict[str, int]:
    marks = {tokenizer.unk_id, tokenizer.bos_id, tokenizer.eos_id}
    size = (tokenizer.source_size if side == "source" else None) or tokenizer.size
    pieces = tokenizer.pieces(range(size), side)
    return {piece: token for token, piece in enumerate(pieces) if token not in marks}


@torch.no_grad()
def _copy_weights(
    model: Transformer, parent: Transformer, of_source: CommonPieces, of_target: CommonPieces
) -> None:
    # A matrix that is three here may be one there, and has all its names.
    weights: dict[str, Tensor] = dict(parent.named_parameters(remove_duplicate=False))
    for name, parameter in model.named_parameters():
        weight = weights[name].to(parameter.device)
        if name in OF_PIECES:
            ids, parent_ids = of_source if name == SOURCE_MATRIX else of_target
            parameter[ids] = weight[parent_ids]
        else:
            parameter.copy_(weight)
