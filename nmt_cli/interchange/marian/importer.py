"""Imports a Transformer of Marian from its .npz or .bin file.

Its sinusoids have the sines of all frequencies before the cosines, where ours have them in turn.
Biases that are all zero are left out. Names and formulas are those of Marian 1.12.42.
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from nmt_cli.corpus.tokenizers.normalization import SIDES as SIDES_OF_TEXT
from nmt_cli.interchange.files import NO_FILES, SIDES, TextFiles
from nmt_cli.interchange.imported_model import ImportedModel
from nmt_cli.interchange.marian.files import SETTINGS, find_files, read_archive, read_settings
from nmt_cli.interchange.marian.vocabularies import read_vocabularies
from nmt_cli.interchange.options import Options, read_sizes, refuse, refusing, shown
from nmt_cli.interchange.tensor_names import (
    Pair,
    StackNames,
    order_from_sines_first,
    parts_of_layer,
)
from nmt_cli.interchange.weights_taken import NAMED, TensorsTaken, WeightsTaken
from nmt_cli.messages import logs
from nmt_cli.messages.figures import counted

SHARED, POSITIONS = "Wemb", "Wpos"
EMBEDDINGS = ("encoder_Wemb", "decoder_Wemb")
OUTPUT, OLD_OUTPUT = "decoder_ff_logit_out_Wt", "decoder_ff_logit_out_W"
BIAS = "decoder_ff_logit_out_b"
# If one of these is set, both embeddings are one matrix, or that of the softmax is the target's.
SHARING = ("tied-embeddings-all", "tied-embeddings-src")
TYING = ("tied-embeddings-all", "tied-embeddings")
# Keys that our architecture has no option for, with the values that it computes; the first one is
# Marian's default, also for versions that do not have the key.
FIXED: dict[str, tuple[Any, ...]] = {
    "transformer-ffn-depth": (2,),
    "transformer-decoder-ffn-depth": (0, 2),
    "transformer-attention-mask": ("default",),
    "transformer-tied-layers": ([],),
    "input-types": ([], ["sequence", "sequence"]),
    "lemma-dim-emb": (0,),
    **dict.fromkeys(
        ("right-left", "ulr", "transformer-no-projection", "transformer-pool",
         "transformer-disable-position-embeddings"),
        ("false",),
    ),
}  # fmt: skip
DECODERS = {"self-attention": "attention", "rnn": "ssru"}
# The same for recurrent decoders only. Marian's default cell is another one, with more tensors.
FIXED_OF_RECURRENCE: dict[str, tuple[Any, ...]] = {
    "dec-cell": ("ssru",),
    "layer-normalization": ("false",),  # within the cell
    "transformer-rnn-projection": ("false",),
}
ACTIVATIONS = {name: name for name in ("swish", "relu", "gelu")}
# Operations before and after each sub-layer, and after the last layer: n is the norm, a the sum.
PLACES = {("", "an", ""): "post", ("n", "a", "n"): "pre"}
OPERATIONS = ("transformer-preprocess", "transformer-postprocess", "transformer-postprocess-top")
AFTER_EMBEDDING, DECODERS_WIDTH = "transformer-postprocess-emb", "transformer-decoder-dim-ffn"
EPSILON = 1e-6
COUNT = re.compile(r"[0-9]{1,7}")


def import_marian(path: Path, files: TextFiles = NO_FILES) -> ImportedModel:
    """Return the model at ``path``, an .npz or .bin file or a folder with one.

    Raises UserError with all reasons if it cannot be imported, or if a file is missing or
    cannot be read, and DamagedError if a file is damaged.
    """
    found = find_files(path, files)
    archive = read_archive(found.weights)
    settings = read_settings(archive.settings, f"{found.weights}: {SETTINGS}")
    tensors = TensorsTaken(archive.tensors)
    with refusing(found.weights):
        _refuse_quantized(archive.quantized, tensors.reasons)
        values = {
            key: int(value) if isinstance(value, str) and COUNT.fullmatch(value) else value
            for key, value in settings.items()
            if value is not None
        }
        options = _read_options(Options(values, tensors.reasons))
        is_shared, is_tied = (
            any(values.get(key) == "true" for key in keys) for keys in (SHARING, TYING)
        )
        output = OLD_OUTPUT if tensors.has(OLD_OUTPUT) else OUTPUT
        names = [SHARED, SHARED] if is_shared else EMBEDDINGS
        # Where the embeddings are missing, the softmax still has as many rows.
        rows = [tensors.length(name) or tensors.length(output) for name in names]
        sizes = {
            side: tensors.length(name)
            for side, name in zip(SIDES_OF_TEXT, names, strict=True)
            if tensors.has(name)
        }
        vocabularies, models = read_vocabularies(found, sizes, tensors.reasons)
        taken = WeightsTaken(tensors, options)
        matrices = taken.take_matrices([*names, output], rows, is_shared=is_shared, is_tied=is_tied)
        if options["positions"] == "learned":
            taken.put_learned_positions(taken.take_tables([POSITIONS]) * len(SIDES))
        elif not tensors.is_wrong:
            taken.order = order_from_sines_first(taken.d_model)
        for side in SIDES:
            taken.take_stack(side, _names_of_stack(side, options))
        has_bias = values.get("output-omit-bias") != "true"
        taken.put_pieces(vocabularies, matrices, tensors.take(BIAS, rows[1]) if has_bias else None)
        model = taken.model(vocabularies, models)
    logs.info(f"Read {found}.")
    return model


def _read_options(theirs: Options) -> dict[str, Any]:
    """Return the options of our architecture; the reasons against it are added to those of theirs.

    Raises ValueError with all reasons if it is no Transformer at all.
    """
    if theirs.values.get("type") != "transformer":
        theirs.refuse("type", ", not transformer")
        refuse(theirs.reasons)
    theirs.require(FIXED)
    decoder = theirs.choose("transformer-decoder-autoreg", DECODERS, "self-attention")
    if decoder == "ssru":
        theirs.require(FIXED_OF_RECURRENCE)
    places = tuple(str(theirs.values.get(key, "")).replace("d", "") for key in OPERATIONS)
    if places not in PLACES:
        given = ", ".join(f"{key} {shown(theirs.values.get(key, ''))}" for key in OPERATIONS)
        reason = f"it has {given}; only post-norm (dan) and pre-norm (n, da, n) are known"
        theirs.reasons.append(reason)
    after_embedding = str(theirs.values.get(AFTER_EMBEDDING, "")).replace("d", "")
    if after_embedding not in ("", "n"):
        theirs.refuse(AFTER_EMBEDDING)
    # Marian does not scale embeddings beside learned positions.
    positions = {"positions": "sinusoidal", "sinusoid_frequencies": "tensor2tensor"}
    is_learned = theirs.values.get("transformer-train-positions") == "true"
    width = "transformer-dim-ffn"
    names = {
        "d_model": "dim-emb",
        "num_layers": ("enc-depth", "dec-depth"),
        "num_heads": "transformer-heads",
        "d_ff": (width, DECODERS_WIDTH) if theirs.values.get(DECODERS_WIDTH) else width,
    }
    return {
        "norm": "pre" if "n" in places[0] else "post",
        "norm_epsilon": EPSILON,
        "activation": theirs.choose("transformer-ffn-activation", ACTIVATIONS, "swish"),
        "embedding_norm": after_embedding == "n",
        "decoder": decoder,
        "decoder_start": "zeros",
        **({"positions": "learned", "scale_embeddings": False} if is_learned else positions),
        **read_sizes(names, theirs, theirs, is_divided=True),
    }


def _refuse_quantized(types: Mapping[str, str], reasons: list[str]) -> None:
    if types:
        named = ", ".join(f"{name} ({kind})" for name, kind in list(types.items())[:NAMED])
        more = ", ..." if len(types) > NAMED else ""
        reasons.append(
            f"{counted(len(types), 'tensor')} not in fp16 or fp32, give the model from before it "
            f"was quantized: {named}{more}"
        )


def _names_of_stack(side: str, options: Mapping[str, Any]) -> StackNames:
    suffix = "_pre" if options["norm"] == "pre" else ""

    def attention(name: str) -> list[str]:
        return [*(f"{name}_{{}}{part}" for part in "qkvo"), f"{name}_Wo_ln_{{}}{suffix}"]

    own, memory, recurrence = attention("self"), [], dict[str, Sequence[str]]()
    if side == "decoder":
        memory = attention("context")
        if options["decoder"] == "ssru":
            own = []
            recurrence = {
                "recurrence.candidates": ["rnn_{}"],
                "recurrence.forget_gates": ["rnn_{}f"],
                "recurrence_residual.norm": ["rnn_ln_{}_pre" if suffix else "rnn_ffn_ln_{}"],
            }
    feed_forward = "ffn_{}1", "ffn_{}2", f"ffn_ffn_ln_{{}}{suffix}"
    return StackNames(
        f"{side}_l{{}}_",
        recurrence | parts_of_layer(own, memory, *feed_forward),
        last_norm=Pair(f"{side}_top_ln_scale", f"{side}_top_ln_bias"),
        embedding_norm=Pair(f"{side}_emb_ln_scale_pre", f"{side}_emb_ln_bias_pre"),
        linear=Pair("W", "b"),
        norm=Pair("scale", "bias"),
        first=1,
    )
