"""The tensors of Hugging Face's MarianMTModel and PegasusForConditionalGeneration.

Both have the sines of all frequencies before the cosines, where the paper has them in turn, so
every axis of d_model is permuted. Their attention has biases; ours may have none, so they are zero.
A decoder that starts with zeros reads one more piece, ``<pad>``, whose vector is zero and whose
logit is so low that it never has a probability.
Their heads are d_model / num_heads wide; narrower ones get zeros, and queries a factor, because the
scale of the scores depends on the width.
"""

from functools import partial

import numpy as np

from nmt_cli.interchange.exported_model import ExportedModel, TensorsMade
from nmt_cli.interchange.fairseq.names import names_of_layer
from nmt_cli.interchange.files import SIDES, Weights
from nmt_cli.interchange.known_sinusoids import sines_first
from nmt_cli.interchange.tensor_names import StackNames, dotted
from nmt_cli.recipe.model_config import StackShape

NAMES = StackNames(
    partial(names_of_layer, prefix="model."),
    last_norm=lambda side: dotted(f"model.{side}.layer_norm"),
)
SHARED, OUTPUT, BIAS = "model.shared.weight", "lm_head.weight", "final_logits_bias"
EMBEDDINGS = [f"model.{side}.embed_tokens.weight" for side in SIDES]
POSITIONS = [f"model.{side}.embed_positions.weight" for side in SIDES]
NEVER = -1e4  # the logit of <pad>; exp of it is 0


def is_marian(model: ExportedModel) -> bool:
    """Return whether the class is MarianMTModel, which has post-norm; Pegasus has pre-norm."""
    return model.settings.architecture.norm == "post"


def has_pad(model: ExportedModel) -> bool:
    """Return whether the vocabulary has ``<pad>`` behind the pieces of the model."""
    return model.settings.architecture.decoder_start == "zeros"


def huggingface_tensors(model: ExportedModel) -> Weights:
    """Return the tensors of ``model.safetensors``. Raises UserError if a weight is left."""
    architecture = model.settings.architecture
    made = TensorsMade(model, sines_first(architecture.d_model), need_biases=True)
    _put_embeddings(made, model)
    bias = made.take_output_bias()
    if has_pad(model):
        bias = np.append(bias, np.float32(NEVER))
    made.found[BIAS] = bias[None]
    for (side, text_side), name in zip(SIDES.items(), POSITIONS, strict=True):
        shape: StackShape = getattr(architecture, side)
        positions = made.take_positions(text_side)
        if not is_marian(model):  # Marian computes them, and does not save them again
            made.found[name] = made.columns(positions)
        width = architecture.d_model // shape.num_heads
        made.put_stack(side, NAMES, width, (width / shape.key_width) ** 0.5)
    made.refuse_left()
    return made.found


def _put_embeddings(made: TensorsMade, model: ExportedModel) -> None:
    tied = model.settings.architecture.tied_embeddings
    source, target = (made.take(f"{side}_embedding.weight") for side in SIDES.values())
    matrices = [source, target, made.take("output_weight")]
    if has_pad(model):
        matrices = [np.concatenate((matrix, np.zeros_like(matrix[:1]))) for matrix in matrices]
    of_source, of_target, output = map(made.columns, matrices)
    if tied == "all" or not is_marian(model):
        made.found[SHARED] = of_source
    if tied != "all":
        made.found |= dict(zip(EMBEDDINGS, (of_source, of_target), strict=True))
        if tied == "none" or not is_marian(model):
            made.found[OUTPUT] = output
