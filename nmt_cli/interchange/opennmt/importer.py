"""Imports a Transformer of OpenNMT-py 3 from its checkpoint.

Its sources have no mark of the end.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nmt_cli.interchange.arrays import SIDES
from nmt_cli.interchange.import_refusal import refusing
from nmt_cli.interchange.imported_model import ImportedModel
from nmt_cli.interchange.layers_taken import LayerNames, dotted
from nmt_cli.interchange.opennmt.checkpoint import read_checkpoint
from nmt_cli.interchange.opennmt.model import make_model
from nmt_cli.interchange.opennmt.options import read_configuration
from nmt_cli.interchange.opennmt.vocabularies import Tokens
from nmt_cli.interchange.opennmt.weights import Names, attention_names
from nmt_cli.interchange.pickled_tensors import LARGEST_PICKLE
from nmt_cli.interchange.sentencepiece_files import read_named_models
from nmt_cli.interchange.text_files import NO_FILES, TextFiles

UNKNOWN, START, END = "<unk>", "<s>", "</s>"
STACKS = {"encoder": "transformer", "decoder": "transformer_layers"}


def import_opennmt(path: Path, files: TextFiles = NO_FILES) -> ImportedModel:
    """Return the model of the checkpoint ``path``.

    Raises UserError with all reasons if it is none that can be imported, or if a file cannot be
    read, and DamagedError if a file is damaged.
    """
    files.refuse_vocabularies("OpenNMT-py")
    checkpoint = read_checkpoint(path)
    with refusing(path):
        configuration = read_configuration(checkpoint.options)
        tokens = _tokens(checkpoint.vocabulary)
        models = read_named_models(files)
        return make_model(checkpoint.tensors, NAMES, configuration, tokens, models)


def _tokens(vocabulary: Mapping[str, Any]) -> Tokens:
    """Return the tokens. Raises ValueError if the checkpoint has none, or has features as well."""
    lists = []
    for key in ("src", "tgt"):
        tokens = vocabulary.get(key)
        if not isinstance(tokens, list) or not all(isinstance(each, str) for each in tokens):
            raise ValueError(f"its vocabulary {key} is not a list of texts")
        if sum(map(len, tokens)) > LARGEST_PICKLE:  # one text, many times
            raise ValueError(f"its vocabulary {key} is too large")
        try:
            "".join(tokens).encode()
        except UnicodeEncodeError:
            raise ValueError(f"its vocabulary {key} holds half a character") from None
        lists.append(tokens)
    if vocabulary.get("src_feats"):
        raise ValueError("it has source features")
    start = vocabulary.get("decoder_start_token", START)
    if not isinstance(start, str) or not start:
        raise ValueError("its decoder starts with no token")
    source, target = lists
    return Tokens(source, target, UNKNOWN, END, start, other_start=START)


def _layer(side: str, number: int) -> LayerNames:
    layer = f"{side}.{STACKS[side]}.{number}"
    is_decoder = side == "decoder"
    return LayerNames(
        attention_names(f"{layer}.self_attn", f"{layer}.layer_norm{'_1' if is_decoder else ''}"),
        attention_names(f"{layer}.context_attn", f"{layer}.layer_norm_2") if is_decoder else None,
        dotted(f"{layer}.feed_forward.w_1"),
        dotted(f"{layer}.feed_forward.w_2"),
        dotted(f"{layer}.feed_forward.layer_norm"),
    )


_EMBEDDINGS = {side: f"{side}.embeddings.make_embedding" for side in SIDES}
NAMES = Names(
    embeddings={side: f"{name}.emb_luts.0.weight" for side, name in _EMBEDDINGS.items()},
    sinusoids={side: f"{name}.pe.pe" for side, name in _EMBEDDINGS.items()},
    learned={},
    output=dotted("generator"),
    norms={side: dotted(f"{side}.layer_norm") for side in SIDES},
    layer=_layer,
)
