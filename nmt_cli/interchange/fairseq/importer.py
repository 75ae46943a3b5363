"""Imports a Transformer of fairseq, from a checkpoint and two dictionaries.

fairseq need not be installed, and nothing in the files is executed.

Its sinusoids have the sines of all frequencies before the cosines, where ours have them in turn.
``<pad>`` stays in the vocabulary, because it has a part in the softmax.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from nmt_cli.corpus.tokenizers.normalization import Side
from nmt_cli.corpus.tokenizers.whitespace_tokenizer import CONTROL
from nmt_cli.files.text_files import decoded, read_content
from nmt_cli.interchange import pickled_tensors as pickles
from nmt_cli.interchange.files import NO_FILES, SIDES, Array, TextFiles, as_fp32, only_file
from nmt_cli.interchange.imported_model import ImportedModel
from nmt_cli.interchange.options import Options, read_sizes, refuse, refusing, shown
from nmt_cli.interchange.pickled_tensors import members, unwrapped
from nmt_cli.interchange.tensor_names import names_of_stack, order_from_sines_first
from nmt_cli.interchange.vocabularies import Vocabulary, marks_first, read_models, unreachable
from nmt_cli.interchange.weights_taken import TensorsTaken, WeightsTaken
from nmt_cli.messages.errors import DamagedError, UserError

KNOWN_BY = b"decoder.embed_tokens.weight"  # a name in the checkpoints of fairseq's Transformers
REMEDY = (
    "load it with fairseq where you trust it, and save its cfg (or args) and its model alone, with "
    "torch.save of torch 1.6 or later"
)
# What fairseq saves beside tensors: its options, as argparse or omegaconf hold them, and figures.
OBJECTS = (
    "argparse Namespace",
    *(f"omegaconf.{name}" for name in ("dictconfig DictConfig", "listconfig ListConfig")),
    *(f"omegaconf.base {name}" for name in ("ContainerMetadata", "Metadata")),
    *(f"omegaconf.nodes {kind}Node" for kind in ("Any", "String", "Integer", "Float", "Boolean")),
    *(f"typing {name}" for name in ("Any", "Dict", "List", "Optional", "Tuple", "Union")),
    *(f"builtins {name}" for name in ("dict", "list", "tuple", "str", "float", "bool")),
    *("builtins int", "builtins long", "numpy dtype", pickles.BYTES),
    *("numpy.core.multiarray scalar", "numpy._core.multiarray scalar"),
    *(
        f"{module} {kind}Meter"
        for module in ("fairseq.meters", "fairseq.logging.meters")
        for kind in ("Average", "Time", "Stopwatch")
    ),
)
MAPPINGS = (
    "collections defaultdict",
    "fairseq.meters MetersDict",
    "fairseq.logging.meters MetersDict",
)
STAND_INS: pickles.StandIns = MappingProxyType(
    dict.fromkeys(OBJECTS, pickles.Inert) | dict.fromkeys(MAPPINGS, pickles.inert_mapping)
)
STRUCTURED = ("encoder", "decoder")  # sections of options in new configurations


class Checkpoint(NamedTuple):
    """A checkpoint, with its options under the names that they have on the command line."""

    options: Mapping[str, Any]  # of the model
    task: Mapping[str, Any]
    tensors: Mapping[str, Array]


def read_checkpoint(path: Path) -> Checkpoint:
    """Return the checkpoint in the file ``path``.

    Raises UserError if it cannot be read or is none, DamagedError if it is damaged.
    """
    content = members(pickles.read_pickle(path, STAND_INS, REMEDY))
    old = members(content.get("args"))  # before fairseq 0.10, and of all parts
    new = members(content.get("cfg"))
    options, task = (old, old) if old else (members(new.get(key)) for key in ("model", "task"))
    if not options or "model" not in content:
        raise UserError(f"{path} is no checkpoint of fairseq: it has no args or cfg, or no model.")
    tensors = as_fp32(pickles.tensors_by_name(content["model"], path), path)
    return Checkpoint(_flat(options), _flat(task), tensors)


def _flat(options: Mapping[Any, Any]) -> dict[str, Any]:
    """Return the options with those of sections, such as ``encoder_layers``."""
    found = {str(key): unwrapped(value) for key, value in options.items()}
    for section in STRUCTURED:
        for key, value in members(found.get(section)).items():
            found[f"{section}_{key}"] = unwrapped(value)
    return found


MARKS = ("<s>", "<pad>", "</s>", "<unk>")  # ids 0 to 3
OVERWRITE = "#fairseq:overwrite"


def read_vocabularies(
    checkpoint: Path, files: TextFiles, languages: tuple[str | None, str | None]
) -> dict[Side, Vocabulary]:
    """Return the vocabularies, from ``files`` or from the folder of ``checkpoint``.

    Raises UserError if a file is not found or cannot be read, DamagedError if one is damaged.
    """
    of_target = files.target_vocabulary or files.source_vocabulary
    found: dict[Side, Vocabulary] = {}
    for side, named, language in zip(
        SIDES.values(), (files.source_vocabulary, of_target), languages, strict=True
    ):
        path = named if named is not None else _beside(checkpoint, side, language)
        found[side] = marks_first(_read_symbols(path), [MARKS.index(mark) for mark in CONTROL])
    return found


def _beside(checkpoint: Path, side: Side, language: str | None) -> Path:
    if language is None:
        raise UserError(
            f"{checkpoint} does not name its {side} language, so its vocabulary cannot be found; "
            f"name it with --{side}-vocabulary."
        )
    path = checkpoint.parent / f"dict.{language}.txt"
    if not path.is_file():
        raise UserError(
            f"{path} not found; put the {side} vocabulary there, beside the checkpoint, or name it "
            f"with --{side}-vocabulary."
        )
    return path


def _read_symbols(path: Path) -> list[str]:
    """Return the symbols of a dictionary by id.

    A symbol gets a name with its id if no text can have it, because a later symbol is spelled alike
    or because it holds white space. Raises UserError if the file cannot be read, DamagedError if it
    is damaged.
    """
    text = decoded(read_content(path, "; is it a vocabulary?"), path)
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    symbols = list(MARKS)
    ids = {symbol: number for number, symbol in enumerate(symbols)}
    for number, line in enumerate(text.removesuffix("\n").split("\n") if text else (), start=1):
        word, is_new = _word_of(line, f"{path}:{number}")
        if word in ids and not is_new:
            raise DamagedError(f"{path}:{number} holds {shown(word)} again, without {OVERWRITE}.")
        if word in ids and word not in CONTROL:  # our marks are no spellings of text
            symbols[ids[word]] = unreachable(ids[word])
        ids[word] = len(symbols)
        symbols.append(word if word.split() == [word] else unreachable(ids[word]))
    return symbols


def _word_of(line: str, place: str) -> tuple[str, bool]:
    """Return the word in a line, and whether it takes the place of an earlier one."""
    word, space, count = line.rstrip().rpartition(" ")
    is_new = count == OVERWRITE
    if is_new:
        word, space, count = word.rpartition(" ")
    try:
        int(count if space else "")
    except ValueError:
        text = f"{place} is {shown(line)}; each line has a word, a space and a count."
        raise DamagedError(text) from None
    return word, is_new


NORMS = {
    "encoder": ("self_attn_layer_norm", "final_layer_norm"),
    "decoder": ("self_attn_layer_norm", "encoder_attn_layer_norm", "final_layer_norm"),
}
OLD_NORM = re.compile(r"((encoder|decoder)\.layers\.\d+)\.layer_norms\.([0-2])\.(weight|bias)")
JOINED = re.compile(r"(.*_attn)\.in_proj_(weight|bias)")  # queries, keys, values
OLD_OUTPUT, OUTPUT = "decoder.embed_out", "decoder.output_projection.weight"
NAMES = {side: names_of_stack(side) for side in SIDES}
EMBEDDINGS: dict[Side, str] = {
    "source": "encoder.embed_tokens.weight",
    "target": "decoder.embed_tokens.weight",
}
POSITIONS = [f"{side}.embed_positions.weight" for side in SIDES]
FIRST_POSITION = MARKS.index("<pad>") + 1  # earlier rows of tables belong to padding
SINUSOIDS = {"sinusoid_frequencies": "tensor2tensor", "first_position": FIRST_POSITION}
# What sinusoids, which fairseq computes anew, leave in a checkpoint.
DERIVED = [f"{side}.embed_positions.{n}" for side in SIDES for n in ("_float_tensor", "weights")]
LEARNED = [f"{side}_learned_pos" for side in SIDES]
FIRST_VERSION = 1.0  # of checkpoints without one
ARCHITECTURES = ("transformer", "transformer_tiny", "transformer_align")
# Names of architectures that start so are sizes of the same class.
SIZES_OF = ("transformer_iwslt_de_en", "transformer_wmt_en_de", "transformer_vaswani_wmt_en_")
# gelu_fast is the old name of gelu_accurate.
ACTIVATIONS = {
    "relu": "relu",
    "gelu": "gelu",
    "gelu_accurate": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
}
EPSILON = 1e-5
# What computes something else than our architecture if it is set.
OTHER_WAYS = (
    *("adaptive_input", "adaptive_softmax_cutoff", "base_layers", "char_inputs"),
    *("cross_self_attention", "no_cross_attention", "no_token_positional_embeddings"),
    *("encoder_layers_to_keep", "decoder_layers_to_keep", "merge_src_tgt_embed"),
    *("scale_attn", "scale_fc", "scale_heads", "scale_resids"),
    *("encoder_xformers_att_config", "decoder_xformers_att_config"),
)
# Old checkpoints of pre-norm models with these versions, or none, have no norm after the layers.
LAST_WITHOUT_NORM = {"encoder": 1.0, "decoder": 2.0}
DEFAULTS = {"embed_dim": 512, "ffn_embed_dim": 2048, "layers": 6, "attention_heads": 8}
WIDTH = "encoder_embed_dim"
WIDTHS = ("decoder_embed_dim", "decoder_input_dim", "decoder_output_dim")
SIZES = {
    "d_model": WIDTH,
    "num_layers": "{}_layers",
    "num_heads": "{}_attention_heads",
    "d_ff": "{}_ffn_embed_dim",
}
LANGUAGE = re.compile(r"[\w.-]{1,100}")  # a code that is fit for the name of a file


def with_new_names(tensors: Mapping[str, Array]) -> dict[str, Array]:
    """Return the tensors with new names; an old one stays if there is a new one beside it."""
    found: dict[str, Array] = {}
    for name, array in tensors.items():
        renamed = _renamed(name, array)
        found |= {name: array} if tensors.keys() & renamed.keys() else renamed
    return found


def _renamed(name: str, array: Array) -> dict[str, Array]:
    """Return a tensor with its new name, or its three parts."""
    norm, joined = OLD_NORM.fullmatch(name), JOINED.fullmatch(name)
    if name == OLD_OUTPUT:
        return {OUTPUT: array}
    if norm is not None and int(norm[3]) < len(NORMS[norm[2]]):
        return {f"{norm[1]}.{NORMS[norm[2]][int(norm[3])]}.{norm[4]}": array}
    if joined is not None and array.ndim and len(array) % 3 == 0:
        parts = np.split(array, 3)
        return {
            f"{joined[1]}.{q}_proj.{joined[2]}": part for q, part in zip("qkv", parts, strict=True)
        }
    return {name: array}


def import_fairseq(path: Path, files: TextFiles = NO_FILES) -> ImportedModel:
    """Return the model of the checkpoint at ``path``, a file or a folder that holds one.

    Raises UserError with all reasons if it cannot be imported, or if a file cannot be
    read, and DamagedError if a file is damaged.
    """
    if path.is_dir():
        path = only_file(path, path.glob(f"*{pickles.SUFFIX}"), f"checkpoint *{pickles.SUFFIX}")
    checkpoint = read_checkpoint(path)
    with refusing(path):
        return _model(path, checkpoint, files)


def _model(path: Path, checkpoint: Checkpoint, files: TextFiles) -> ImportedModel:
    """Return the model. Raises ValueError with all reasons if it cannot be represented."""
    tensors, theirs = TensorsTaken(with_new_names(checkpoint.tensors)), checkpoint.options
    ours = _read_options(checkpoint, tensors)
    models = read_models(files.models())
    languages = [checkpoint.task.get(f"{side}_lang") for side in SIDES.values()]
    source, target = (
        code if isinstance(code, str) and LANGUAGE.fullmatch(code) else None for code in languages
    )
    vocabularies = read_vocabularies(path, files, (source, target))
    is_shared, is_learned = bool(theirs.get("share_all_embeddings")), theirs.get(LEARNED[0])
    order = None if is_learned else order_from_sines_first(ours["d_model"])
    taken = WeightsTaken(tensors, ours, order)
    if is_shared and vocabularies["source"] != vocabularies["target"]:
        tensors.reasons.append("its sides share their embeddings, but not the vocabulary")
    matrices = taken.take_matrices(
        [*EMBEDDINGS.values(), OUTPUT],
        [_rows(tensors, side, len(each.rows)) for side, each in vocabularies.items()],
        is_shared=is_shared,
        is_tied=is_shared or bool(theirs.get("share_decoder_input_output_embed")),
    )
    taken.put_pieces(vocabularies, matrices)
    if is_learned:
        taken.put_learned_positions(taken.take_tables(POSITIONS, FIRST_POSITION))
    else:
        taken.options |= SINUSOIDS
        for name in DERIVED:
            tensors.take_if_there(name)
    for side, names in NAMES.items():
        taken.take_stack(side, names)
    return taken.model(vocabularies, models).with_languages(source, target)


def _rows(tensors: TensorsTaken, side: Side, pieces: int) -> int:
    """Return the rows of a side's embeddings; add a reason if they are not its pieces."""
    name = EMBEDDINGS[side]
    rows = tensors.length(name)
    if rows in {0, pieces}:
        return pieces
    text = f"the {side} vocabulary has {pieces:,} pieces with its {len(MARKS)} marks"
    tensors.reasons.append(f"{text}, {name} {rows:,} rows")
    return rows


def _read_options(checkpoint: Checkpoint, tensors: TensorsTaken) -> dict[str, Any]:
    """Return the options of our architecture. Raises ValueError with all reasons against it."""
    theirs, task, reasons = checkpoint.options, checkpoint.task, tensors.reasons
    defaults = {f"{side}_{key}": size for key, size in DEFAULTS.items() for side in SIDES}
    del defaults["decoder_embed_dim"]
    # A text such as ${model.encoder_layers} is a reference to what the default stands for.
    given = {
        key: value
        for key, value in theirs.items()
        if value is not None and not (isinstance(value, str) and value.startswith("${"))
    }
    options = Options({**defaults, **given}, reasons)
    for key in OTHER_WAYS:
        if theirs.get(key):
            options.refuse(key)
    kind = theirs.get("arch") or theirs.get("_name") or "transformer"
    if not isinstance(kind, str) or not (kind in ARCHITECTURES or kind.startswith(SIZES_OF)):
        reasons.append(f"its architecture is {shown(kind)}, which is not fairseq's transformer")
    job = task.get("task") or task.get("_name") or "translation"
    if job != "translation":
        reasons.append(f"its task is {shown(job)}, not translation")
    ours: dict[str, Any] = {
        "activation": options.choose("activation_fn", ACTIVATIONS, "relu"),
        "norm": _norm(theirs, tensors),
        "norm_epsilon": EPSILON,
        "scale_embeddings": not theirs.get("no_scale_embedding"),
        "embedding_norm": bool(theirs.get("layernorm_embedding")),
        "decoder_start": "eos",
        **read_sizes(SIZES, options, options, is_divided=True),
    }
    for key in WIDTHS:
        if options.values.get(key, ours["d_model"]) != ours["d_model"]:
            options.refuse(key, f", its {WIDTH} {ours['d_model']:,}")
    if bool(theirs.get(LEARNED[0])) != bool(theirs.get(LEARNED[1])):
        reasons.append("only one of its sides has learned positions")
    refuse(reasons)
    return ours


def _norm(theirs: Mapping[str, Any], tensors: TensorsTaken) -> str:
    """Return the place of the norms."""
    reasons = tensors.reasons
    before = {side: bool(theirs.get(f"{side}_normalize_before")) for side in SIDES}
    versions = {side: tensors.take_number(f"{side}.version", FIRST_VERSION) for side in SIDES}
    if len(set(before.values())) > 1:
        reasons.append("only one of its sides has its norms before the layers")
    elif not before["decoder"]:
        return "post"
    if theirs.get("no_decoder_final_norm"):
        reasons.append("its decoder has no norm after the layers")
    for side, last in LAST_WITHOUT_NORM.items():
        if before[side] and versions[side] <= last:
            reasons.append(
                f"its {side} has the version {versions[side]:g}, and so no norm after the layers"
            )
    return "pre"
