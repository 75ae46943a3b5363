"""Imports a Transformer of OpenNMT-py 3 from its checkpoint, a pickle; nothing in it is executed.

Its sources have no mark of the end.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from nmt_cli.corpus.tokenizers.normalization import Side
from nmt_cli.interchange import pickled_tensors as pickles
from nmt_cli.interchange import tensor_names
from nmt_cli.interchange.files import NO_FILES, SIDES, Array, TextFiles, as_fp32, read_parts
from nmt_cli.interchange.imported_model import ImportedModel
from nmt_cli.interchange.options import Options, read_sizes, refuse, refusing
from nmt_cli.interchange.vocabularies import Vocabulary, list_of_texts, read_models, vocabulary_of
from nmt_cli.interchange.weights_taken import TensorsTaken, WeightsTaken
from nmt_cli.messages.errors import UserError

# The sinusoids by their names there, all from position 0.
SINUSOIDS = {"SinusoidalInterleaved": "paper", "SinusoidalConcat": "tensor2tensor"}
CONCATENATED, LEARNED = "SinusoidalConcat", "Learned"
ROUNDING = 5e-3  # of sinusoids that are stored in half precision
IN_LAYER = re.compile(r"(.*?)\.(\d+)\.(.*\.bias)")


class Names(NamedTuple):
    """The names of tensors; those of each side are in the order of encoder and decoder."""

    embeddings: Sequence[str]
    sinusoids: Sequence[str]
    learned: Sequence[str]
    output: tensor_names.Pair
    stacks: Mapping[str, tensor_names.StackNames]


class Configuration(NamedTuple):
    """What the options of a model state."""

    options: dict[str, Any]  # of our architecture
    positions: str  # a name in SINUSOIDS, or LEARNED
    is_shared: bool  # the target's matrix is the source's
    is_tied: bool  # that of the softmax is the target's
    has_bias: bool = True  # that of the softmax
    position_shift: int = 0  # the row of the first learned position


class Tokens(NamedTuple):
    """The tokens of both languages in the order of their rows, and the names of the marks."""

    source: Sequence[str]
    target: Sequence[str]
    unknown: str
    end: str
    start: str  # what the decoder reads first
    other_start: str  # our <s> if the decoder reads the end first


def names_of_attention(attention: str, norm: str) -> list[str]:
    """Return the names of an attention and of the norm before it."""
    linears = ("linear_query", "linear_keys", "linear_values", "final_linear")
    return [*(f"{attention}.{linear}.{{}}" for linear in linears), f"{norm}.{{}}"]


def make_model(
    found: Mapping[str, Array],
    names: Names,
    configuration: Configuration,
    tokens: Tokens,
    models: Mapping[Side, bytes] | None,
) -> ImportedModel:
    """Return the model; ``models`` are its SentencePiece models, None for text in pieces.

    Models of eole and OpenNMT-py normalize before each sub-layer, and after the last one. Their
    projections have biases or not, as their options state, but these were not always saved, so the
    tensors decide. Raises ValueError with all reasons if our architecture cannot represent it.
    """
    options, positions, is_shared, is_tied, has_bias, shift = configuration
    tensors = TensorsTaken(found)
    tensors.reasons += _uneven_biases(found)
    vocabularies = _read_vocabularies(tokens, tensors.reasons)
    options["decoder_start"] = "eos" if tokens.start == tokens.end else "bos"
    order = None
    if positions == CONCATENATED and options["d_model"] % 2 == 0:
        order = tensor_names.order_from_sines_first(options["d_model"])
    taken = WeightsTaken(tensors, options, order, may_lack_biases=True)
    # The rows of the matrices; a mark that the source lacks has none.
    rows = [max(each.rows) + 1 for each in vocabularies.values()]
    if is_shared and rows[0] != rows[1]:
        tensors.reasons.append("both languages share embeddings, but no vocabulary")
    matrices = taken.take_matrices(
        [*names.embeddings, names.output.weight], rows, is_shared=is_shared, is_tied=is_tied
    )
    bias = tensors.take(names.output.bias, rows[1]) if has_bias else None
    taken.put_pieces(vocabularies, matrices, bias)
    if positions == LEARNED:
        taken.put_learned_positions(taken.take_tables(names.learned, shift))
    else:
        _compare_sinusoids(taken, names.sinusoids, positions)
    for side, of_side in names.stacks.items():
        taken.take_stack(side, of_side)
    return taken.model(vocabularies, models)


def _read_vocabularies(tokens: Tokens, reasons: list[str]) -> dict[Side, Vocabulary]:
    """Return the vocabularies; the reasons against them are added to ``reasons``."""
    start = tokens.other_start if tokens.start == tokens.end else tokens.start
    marks = (tokens.unknown, start, tokens.end)
    is_shared = tokens.source == tokens.target
    of_source = vocabulary_of(tokens.source, marks, "source", reasons, needs_marks=is_shared)
    if is_shared:
        return {"source": of_source, "target": of_source}
    of_target = vocabulary_of(tokens.target, marks, "target", reasons, needs_marks=True)
    return {"source": of_source, "target": of_target}


def _compare_sinusoids(taken: WeightsTaken, names: Sequence[str], kind: str) -> None:
    """Add a reason for each stored table that is not the sinusoids that the options name."""
    expected = {"sinusoid_frequencies": SINUSOIDS[kind], "first_position": 0}
    taken.options |= expected
    reasons = taken.tensors.reasons
    for name in names:
        table = taken.tensors.take_if_there(name)
        if table is None:  # it is not stored, and computed from the options
            continue
        if not table.ndim or table.size != len(table) * taken.d_model:
            reasons.append(f"{name} has the shape {list(table.shape)}")
            continue
        flat = taken.columns(table.reshape(-1, taken.d_model))
        found = tensor_names.known_sinusoids([flat], ROUNDING)
        if found != expected and not taken.tensors.is_wrong:
            reasons.append(f"{name} is not {kind}, as its options say")


def _uneven_biases(names: Iterable[str]) -> list[str]:
    """Return the reasons against a model that has a bias in some layers of a stack only."""
    by_stack: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for name in names:
        if match := IN_LAYER.fullmatch(name):
            by_stack[match[1]][match[3]].add(match[2])
    reasons = []
    for stack, biases in by_stack.items():
        layers = set().union(*biases.values())
        reasons += [
            f"only {len(found):,} of {len(layers):,} layers of {stack} have {bias}"
            for bias, found in biases.items()
            if found != layers
        ]
    return reasons


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
        models = read_models(files.models())
        return make_model(checkpoint.tensors, NAMES, configuration, tokens, models)


def _tokens(vocabulary: Mapping[str, Any]) -> Tokens:
    """Return the tokens. Raises ValueError if the checkpoint has none, or has features as well."""
    lists = []
    for key in ("src", "tgt"):
        try:
            lists.append(list_of_texts(vocabulary.get(key)))
        except ValueError as error:
            raise ValueError(f"its vocabulary {key} {error}") from None
        if sum(map(len, lists[-1])) > pickles.LARGEST_PICKLE:  # one text, many times
            raise ValueError(f"its vocabulary {key} is too large")
    if vocabulary.get("src_feats"):
        raise ValueError("it has source features")
    start = vocabulary.get("decoder_start_token", START)
    if not isinstance(start, str) or not start:
        raise ValueError("its decoder starts with no token")
    source, target = lists
    return Tokens(source, target, UNKNOWN, END, start, other_start=START)


def _names_of_stack(side: str) -> tensor_names.StackNames:
    is_decoder = side == "decoder"
    self_attention = names_of_attention("self_attn", "layer_norm_1" if is_decoder else "layer_norm")
    memory_attention = names_of_attention("context_attn", "layer_norm_2") if is_decoder else []
    feed_forward = (f"feed_forward.{name}.{{}}" for name in ("w_1", "w_2", "layer_norm"))
    return tensor_names.StackNames(
        f"{side}.{STACKS[side]}.{{}}.",
        tensor_names.parts_of_layer(self_attention, memory_attention, *feed_forward),
        last_norm=tensor_names.dotted(f"{side}.layer_norm"),
    )


_EMBEDDINGS = [f"{side}.embeddings.make_embedding" for side in SIDES]
NAMES = Names(
    embeddings=[f"{name}.emb_luts.0.weight" for name in _EMBEDDINGS],
    sinusoids=[f"{name}.pe.pe" for name in _EMBEDDINGS],
    learned=(),
    output=tensor_names.dotted("generator"),
    stacks={side: _names_of_stack(side) for side in SIDES},
)

KNOWN_BY = b"pos_ffn_activation_fn"  # an option of its Transformers, which no other program has
REMEDY = "load it with OpenNMT-py where you trust it, and save it with OpenNMT-py 3"
OPTION_TYPES = (str, int, float, bool, list, type(None))  # the types of options that are of use
# A set in the options is torch's own, whatever stands for it here.
STAND_INS: pickles.StandIns = MappingProxyType(
    {"argparse Namespace": pickles.Inert, "builtins set": set}
)


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
        raise UserError(
            f"{path} is no file; give a checkpoint of OpenNMT-py, a file *{pickles.SUFFIX}."
        )
    content = pickles.read_pickle(path, STAND_INS, REMEDY)
    content = content if isinstance(content, dict) else {}
    options = content.get("opt")
    options = options.state if isinstance(options, pickles.Inert) else None
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
    found = pickles.tensors_by_name(content["model"], path)
    if content.get("generator") is not None:
        own = pickles.tensors_by_name(content["generator"], path)
        found |= {f"generator.{name}": each for name, each in own.items()}
    return as_fp32(found, path)


def _beside(path: Path) -> dict[str, Array]:
    """Return the tensors that OpenNMT-py saved in safetensors files beside ``path``."""
    start = f"{path.name.removesuffix(pickles.SUFFIX)}."
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
