"""Imports a Transformer of OpenNMT-py 3 from its checkpoint, a pickle; nothing in it is executed.

Its sources have no mark of the end.
"""

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from nmt_cli.interchange.files import NO_FILES, SIDES, Array, TextFiles, as_fp32, read_parts
from nmt_cli.interchange.imported_model import ImportedModel
from nmt_cli.interchange.opennmt.model import (
    SINUSOIDS,
    Configuration,
    Names,
    Tokens,
    make_model,
    names_of_attention,
)
from nmt_cli.interchange.options import Options, read_sizes, refuse, refusing
from nmt_cli.interchange.pickled_tensors import (
    LARGEST_PICKLE,
    SUFFIX,
    Inert,
    StandIns,
    read_pickle,
    tensors_by_name,
)
from nmt_cli.interchange.tensor_names import StackNames, dotted, parts_of_layer
from nmt_cli.interchange.vocabularies import list_of_texts, named_models, read_models
from nmt_cli.messages.errors import UserError

ACTIVATIONS = {"relu": "relu", "gelu": "gelu"}  # its silu multiplies by a second projection
EPSILON = 1e-6  # of checkpoints that lack norm_eps
# The values of options with which a model is ours, if it has them.
PLAIN: dict[str, tuple[Any, ...]] = {
    "encoder_type": ("transformer",),
    "decoder_type": ("transformer",),
    "model_type": ("text",),
    "model_task": ("seq2seq",),
    "position_encoding": (True,),
    "layer_norm": ("standard",),
    "self_attn_type": ("scaled-dot", "scaled-dot-flash"),
    "generator_function": ("softmax", None),
    "quant_type": ("", None),
    "lora_layers": ([], None),
    **dict.fromkeys(("copy_attn", "lora_embedding", "multiquery"), (False, None)),
    **dict.fromkeys(("parallel_residual", "shared_layer_norm"), (False, None)),
    **dict.fromkeys(("max_relative_positions", "relative_positions_buckets"), (0, None)),
    **dict.fromkeys(("num_kv", "sliding_window", "num_experts", "n_src_feats"), (0, None)),
}
NEEDED = ("encoder_type", "decoder_type", "position_encoding")  # their defaults are others
DEFAULTS = {"heads": 8, "transformer_ff": 2048}
POSITIONS = {name: name for name in SINUSOIDS}


def read_configuration(opt: Mapping[str, Any]) -> Configuration:
    """Return the configuration. Raises ValueError with all reasons against it."""
    theirs = Options({**dict.fromkeys(NEEDED), **DEFAULTS, **opt}, [])
    theirs.require(PLAIN)

    def is_set(key: str) -> bool:
        return type(opt.get(key)) is int and opt[key] > 0

    names = {
        "d_model": "hidden_size" if is_set("hidden_size") else "enc_hid_size",
        "num_layers": "layers" if is_set("layers") else ("enc_layers", "dec_layers"),
        "num_heads": "heads",
        "d_ff": "transformer_ff",
    }
    options: dict[str, Any] = {
        "activation": theirs.choose("pos_ffn_activation_fn", ACTIVATIONS, "relu"),
        "norm": "pre",
        "norm_epsilon": theirs.number("norm_eps", EPSILON),
        "source_eos": False,
        "scale_embeddings": True,
        **read_sizes(names, theirs, theirs, is_divided=True),
    }
    positions = theirs.choose("position_encoding_type", POSITIONS, next(iter(SINUSOIDS)))
    is_shared, is_tied = (
        bool(opt.get(f"share_{name}")) for name in ("embeddings", "decoder_embeddings")
    )
    refuse(theirs.reasons)
    return Configuration(options, positions, is_shared, is_tied)


UNKNOWN, START, END = "<unk>", "<s>", "</s>"
STACKS = {"encoder": "transformer", "decoder": "transformer_layers"}


def import_opennmt(path: Path, files: TextFiles = NO_FILES) -> ImportedModel:
    """Return the model of the checkpoint ``path``.

    Raises UserError with all reasons if it cannot be imported, or if a file cannot be
    read, and DamagedError if a file is damaged.
    """
    files.refuse_vocabularies("OpenNMT-py")
    checkpoint = read_checkpoint(path)
    with refusing(path):
        configuration = read_configuration(checkpoint.options)
        tokens = _tokens(checkpoint.vocabulary)
        models = read_models(named_models(files))
        return make_model(checkpoint.tensors, NAMES, configuration, tokens, models)


def _tokens(vocabulary: Mapping[str, Any]) -> Tokens:
    """Return the tokens. Raises ValueError if the checkpoint has none, or has features as well."""
    lists = []
    for key in ("src", "tgt"):
        try:
            lists.append(list_of_texts(vocabulary.get(key)))
        except ValueError as error:
            raise ValueError(f"its vocabulary {key} {error}") from None
        if sum(map(len, lists[-1])) > LARGEST_PICKLE:  # one text, many times
            raise ValueError(f"its vocabulary {key} is too large")
    if vocabulary.get("src_feats"):
        raise ValueError("it has source features")
    start = vocabulary.get("decoder_start_token", START)
    if not isinstance(start, str) or not start:
        raise ValueError("its decoder starts with no token")
    source, target = lists
    return Tokens(source, target, UNKNOWN, END, start, other_start=START)


def _names_of_stack(side: str) -> StackNames:
    is_decoder = side == "decoder"
    self_attention = names_of_attention("self_attn", "layer_norm_1" if is_decoder else "layer_norm")
    memory_attention = names_of_attention("context_attn", "layer_norm_2") if is_decoder else []
    feed_forward = (f"feed_forward.{name}.{{}}" for name in ("w_1", "w_2", "layer_norm"))
    return StackNames(
        f"{side}.{STACKS[side]}.{{}}.",
        parts_of_layer(self_attention, memory_attention, *feed_forward),
        last_norm=dotted(f"{side}.layer_norm"),
    )


_EMBEDDINGS = [f"{side}.embeddings.make_embedding" for side in SIDES]
NAMES = Names(
    embeddings=[f"{name}.emb_luts.0.weight" for name in _EMBEDDINGS],
    sinusoids=[f"{name}.pe.pe" for name in _EMBEDDINGS],
    learned=(),
    output=dotted("generator"),
    stacks={side: _names_of_stack(side) for side in SIDES},
)

KNOWN_BY = b"pos_ffn_activation_fn"  # an option of its Transformers, which no other program has
REMEDY = "load it with OpenNMT-py where you trust it, and save it with OpenNMT-py 3"
OPTION_TYPES = (str, int, float, bool, list, type(None))  # the types of options that are of use
# A set in the options is torch's own, whatever stands for it here.
STAND_INS: StandIns = MappingProxyType({"argparse Namespace": Inert, "builtins set": set})


class Checkpoint(NamedTuple):
    """A checkpoint; the tensors of the softmax are called generator.weight and generator.bias."""

    options: Mapping[str, Any]
    vocabulary: Mapping[str, Any]
    tensors: Mapping[str, Array]


def read_checkpoint(path: Path) -> Checkpoint:
    """Return a checkpoint, with the weights that OpenNMT-py saved in it or beside it.

    Raises UserError if it cannot be read or is none, DamagedError if it is damaged.
    """
    if not path.is_file():
        raise UserError(f"{path} is no file; give a checkpoint of OpenNMT-py, a file *{SUFFIX}.")
    content = read_pickle(path, STAND_INS, REMEDY)
    content = content if isinstance(content, dict) else {}
    options = content.get("opt")
    options = options.state if isinstance(options, Inert) else None
    vocabulary = content.get("vocab")
    if not isinstance(options, dict) or not isinstance(vocabulary, dict):
        raise UserError(f"{path} is no checkpoint of OpenNMT-py 3: it has no opt, or no vocab.")
    tensors = _tensors(content, path) if "model" in content else _beside(path)
    names = {_new_name(name): name for name in tensors}
    if len(names) < len(tensors):
        raise UserError(f"{path} holds tensors with old names beside the same with new names.")
    plain = {key: value for key, value in options.items() if isinstance(value, OPTION_TYPES)}
    return Checkpoint(plain, vocabulary, {new: tensors[name] for new, name in names.items()})


def _tensors(content: Mapping[Any, Any], path: Path) -> dict[str, Array]:
    """Return the tensors of the checkpoint itself."""
    found = tensors_by_name(content["model"], path)
    if content.get("generator") is not None:
        own = tensors_by_name(content["generator"], path)
        found |= {f"generator.{name}": each for name, each in own.items()}
    return as_fp32(found, path)


def _beside(path: Path) -> dict[str, Array]:
    """Return the tensors that OpenNMT-py saved in safetensors files beside ``path``."""
    start = f"{path.name.removesuffix(SUFFIX)}."
    names = sorted(each.name for each in path.parent.iterdir() if each.name.startswith(start))
    files = [path.parent / name for name in names if name.endswith(".safetensors")]
    if not files:
        raise UserError(f"{path} has no weights, and there are none in {start}safetensors.")
    return read_parts(files)


def _new_name(name: str) -> str:
    """Return the name of a tensor in newer checkpoints."""
    for old, new in ((".a_2", ".weight"), (".b_2", ".bias")):
        if name.endswith(old):
            return name.removesuffix(old) + new
    return name.replace("generator.0.", "generator.")
