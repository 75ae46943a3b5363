"""Imports a Transformer of Marian from its .npz or .bin file.

Its sinusoids have the sines of all frequencies before the cosines, where ours have them in turn.
Biases that are all zero are left out. Names and formulas are those of Marian 1.12.42.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from nmt_cli.corpus.tokenizers.mapped_sentencepiece import END, UNKNOWN, read_ids
from nmt_cli.corpus.tokenizers.normalization import Side
from nmt_cli.corpus.tokenizers.sentencepiece_tokenizer import load_processor
from nmt_cli.files.text_files import decoded, read_content
from nmt_cli.interchange.files import NO_FILES, SIDES, TextFiles
from nmt_cli.interchange.imported_model import ImportedModel
from nmt_cli.interchange.marian import files as marian
from nmt_cli.interchange.options import Options, read_sizes, refuse, refusing, shown
from nmt_cli.interchange.tensor_names import (
    Pair,
    StackNames,
    order_from_sines_first,
    parts_of_layer,
)
from nmt_cli.interchange.vocabularies import Vocabulary, marks_first, read_models, rename
from nmt_cli.interchange.weights_taken import NAMED, TensorsTaken, WeightsTaken
from nmt_cli.messages import logs
from nmt_cli.messages.errors import DamagedError
from nmt_cli.messages.figures import counted
from nmt_cli.recipe.reading.yaml_tree import MAX_BYTES, parse_yaml

ENTRY = re.compile(r"""("(?:[^"\\]|\\.)*"|'(?:[^']|'')*'|[^"'].*?):\s+([0-9]{1,9})\s*""")
COMPLEX, NUMBER = "? ", re.compile(r"[0-9]{1,9}")  # of a key of several lines, and its number
ESCAPE = re.compile(r"\\(?:x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|(.))")
ESCAPED = {**dict(zip('"\\/ 0abtnvfre', '"\\/ \0\a\b\t\n\v\f\r\x1b', strict=True)), "N": "\x85",
           "_": "\xa0", "L": "\u2028", "P": "\u2029"}  # fmt: skip
OTHER_DELETE = b"\xc1\xbf"  # Marian writes U+007F in two bytes, which UTF-8 forbids
# What Nematus calls the marks, if they have these numbers.
OLD_NAMES = {0: ("eos", END), 1: ("UNK", UNKNOWN)}


def read_vocabularies(
    files: marian.MarianFiles, sizes: Mapping[Side, int], reasons: list[str]
) -> tuple[dict[Side, Vocabulary], dict[Side, bytes] | None]:
    """Return the vocabularies, and the SentencePiece models; ``sizes`` are the rows of matrices.

    The reasons against them are added to ``reasons``. Raises UserError if a file cannot be read,
    DamagedError if it is damaged.
    """
    paths = files.sentencepiece
    if files.vocabularies["source"].suffix == marian.SENTENCEPIECE:
        paths = files.vocabularies
    models = read_models(paths)
    found = {}
    for side, size in sizes.items():
        path = files.vocabularies[side]
        if files.sentencepiece is None and models is not None:
            pieces = _pieces_of_model(models[side], path, reasons)
        else:
            pieces = _pieces_of_list(path, size, reasons)
        name = path.name
        if len(pieces) != size:
            reasons.append(f"{name} has {len(pieces):,} pieces, its matrix {size:,} rows")
        elif missing := [mark for mark in (UNKNOWN, END) if mark not in pieces]:
            reasons.append(f"{name} has no {' and no '.join(missing)}")
        elif models is None:
            unknown, end = pieces.index(UNKNOWN), pieces.index(END)
            found[side] = marks_first(pieces, [unknown, -1, end])  # a piece <s> is not our mark
        else:
            found[side] = Vocabulary(pieces, list(range(size)))
    return found, models


def _pieces_of_model(model: bytes, path: Path, reasons: list[str]) -> list[str]:
    processor = load_processor(model, str(path))
    pieces = dict(enumerate(processor.id_to_piece(list(range(processor.get_piece_size())))))
    for number, mark in ((processor.unk_id(), UNKNOWN), (processor.eos_id(), END)):
        if number >= 0:
            rename(pieces, number, mark, reasons)
    return list(pieces.values())


def _pieces_of_list(path: Path, size: int, reasons: list[str]) -> list[str]:
    """Return the pieces by number; Marian uses the first ones if a list has more than ``size``."""
    if path.suffix == ".json":
        ids = read_ids(path)
    elif path.suffix in marian.YAML:
        ids = parse_vocabulary(_text(path), path)
    else:
        ids = _ids_of_lines(_text(path), path)
    for number, (old, mark) in OLD_NAMES.items():
        if mark not in ids and ids.get(old) == number:
            ids[mark] = ids.pop(old)
    if len(ids) > size:
        logs.warning(f"of the {len(ids):,} pieces in {path}, Marian uses the first {size:,}.")
    ids = {piece: number for piece, number in ids.items() if number < size}
    if sorted(ids.values()) != list(range(len(ids))):
        reasons.append(f"the numbers in {path.name} are not 0 to {len(ids) - 1:,}, each once")
    return sorted(ids, key=ids.__getitem__)


def _text(path: Path) -> str:
    return decoded(read_content(path, "; is it a vocabulary?").replace(OTHER_DELETE, b"\x7f"), path)


def parse_vocabulary(text: str, path: Path) -> dict[str, int]:
    """Return the numbers of the pieces in YAML as Marian writes it, a line for each piece.

    A library for YAML reads some of these lines, such as "- : 7" and "yes: 8", as something else
    than a piece, so they are read one by one. What PyYAML wrote has keys of several lines as well.
    Raises DamagedError if a line is not a piece and a number, or has a piece again.
    """
    ids: dict[str, int] = {}
    lines = enumerate(text.split("\n"), start=1)
    for number, line in lines:
        if not line.strip() or line in ("---", "---\r"):
            continue
        try:
            if line.startswith(COMPLEX):
                piece, token = _complex(line, (following for _, following in lines))
            else:
                piece, token = _simple(line)
            problem = "has a piece again" if piece in ids else ""
        except (ValueError, KeyError, OverflowError):  # also of an escape without a character
            problem = "is no piece with its number"
        if problem:
            raise DamagedError(
                f"{path}:{number}: this line {problem}; get the vocabulary again as Marian wrote "
                "it."
            )
        ids[piece] = token
    return ids


def _simple(line: str) -> tuple[str, int]:
    """Return the piece in a line and its number. Raises ValueError if the line has none."""
    entry = ENTRY.fullmatch(line)
    if entry is None:
        raise ValueError
    return _unquoted(entry[1]), int(entry[2])


def _complex(first: str, following: Iterator[str]) -> tuple[str, int]:
    """Return the same of an entry of several lines: a key behind "? ", its number behind ": ".

    PyYAML writes long keys so, and those with a character that it takes for the end of a line.
    """
    entry = [first]
    for line in following:
        entry.append(line)
        if line.startswith(":"):
            break
    text = "\n".join(entry)
    found = parse_yaml(text, "").value if len(text) <= MAX_BYTES else None
    ((piece, number),) = list(found.items()) if isinstance(found, dict) else []
    if not isinstance(number, str) or not NUMBER.fullmatch(number):
        raise ValueError
    return piece, int(number)


def _ids_of_lines(text: str, path: Path) -> dict[str, int]:
    """Return the numbers of the pieces in a file with one piece a line."""
    ids: dict[str, int] = {}
    for number, piece in enumerate(text.removesuffix("\n").split("\n")):
        if not piece or piece in ids:
            again = "has a piece again" if piece else "is empty"
            raise DamagedError(f"{path}:{number + 1}: this line {again}; get the vocabulary again.")
        ids[piece] = number
    return ids


def _unquoted(key: str) -> str:
    if key[0] == "'":
        return key[1:-1].replace("''", "'")
    if key[0] != '"':
        return key.strip(" ")
    piece = ESCAPE.sub(_escaped, key[1:-1])
    piece.encode()  # half a character is none
    return piece


def _escaped(match: re.Match[str]) -> str:
    digits = match[1] or match[2] or match[3]
    return chr(int(digits, 16)) if digits else ESCAPED[match[4]]


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
    found = marian.find_files(path, files)
    archive = marian.read_archive(found.weights)
    settings = marian.read_settings(archive.settings, f"{found.weights}: {marian.SETTINGS}")
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
            for side, name in zip(SIDES.values(), names, strict=True)
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
