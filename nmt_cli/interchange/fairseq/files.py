"""Reads a checkpoint of fairseq and its vocabularies; fairseq need not be installed.

Nothing in the files is executed.
"""

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from nmt_cli.corpus.tokenizers.normalization import SIDES, Side
from nmt_cli.corpus.tokenizers.whitespace_tokenizer import CONTROL
from nmt_cli.files.text_files import decoded, read_content
from nmt_cli.interchange.files import Array, TextFiles, as_fp32
from nmt_cli.interchange.pickled_tensors import (
    BYTES,
    Inert,
    StandIns,
    inert_mapping,
    members,
    read_pickle,
    tensors_by_name,
    unwrapped,
)
from nmt_cli.interchange.vocabularies import Vocabulary, marks_first, unreachable
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
    *(f"builtins {name}" for name in ("int", "long")),
    *("numpy.core.multiarray scalar", "numpy._core.multiarray scalar", "numpy dtype", BYTES),
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
STAND_INS: StandIns = MappingProxyType(
    dict.fromkeys(OBJECTS, Inert) | dict.fromkeys(MAPPINGS, inert_mapping)
)
STRUCTURED = ("encoder", "decoder")  # sections of options in new configurations


class Checkpoint(NamedTuple):
    """A checkpoint, with its options under the names that they have on the command line."""

    path: Path
    options: Mapping[str, Any]  # of the model
    task: Mapping[str, Any]
    tensors: Mapping[str, Array]


def read_checkpoint(path: Path) -> Checkpoint:
    """Return the checkpoint in the file ``path``.

    Raises UserError if it cannot be read or is none, DamagedError if it is damaged.
    """
    content = members(read_pickle(path, STAND_INS, REMEDY))
    old = members(content.get("args"))  # before fairseq 0.10, and of all parts
    new = members(content.get("cfg"))
    options, task = (old, old) if old else (members(new.get(key)) for key in ("model", "task"))
    if not options or "model" not in content:
        raise UserError(f"{path} is no checkpoint of fairseq: it has no args or cfg, or no model.")
    tensors = as_fp32(tensors_by_name(content["model"], path), path)
    return Checkpoint(path, _flat(options), _flat(task), tensors)


def _flat(options: Mapping[Any, Any]) -> dict[str, Any]:
    """Return the options with those of sections, such as ``encoder_layers``."""
    found = {str(key): unwrapped(value) for key, value in options.items()}
    for section in STRUCTURED:
        for key, value in members(found.get(section)).items():
            found[f"{section}_{key}"] = unwrapped(value)
    return found


MARKS = ("<s>", "<pad>", "</s>", "<unk>")  # ids 0 to 3
OVERWRITE = "#fairseq:overwrite"
LONGEST = 60  # characters of a line in a message


def read_vocabularies(
    checkpoint: Path, files: TextFiles, languages: tuple[str | None, str | None]
) -> dict[Side, Vocabulary]:
    """Return the vocabularies, from ``files`` or from the folder of ``checkpoint``.

    Raises UserError if a file is not found or cannot be read, DamagedError if one is damaged.
    """
    of_target = files.target_vocabulary or files.source_vocabulary
    found: dict[Side, Vocabulary] = {}
    for side, named, language in zip(
        SIDES, (files.source_vocabulary, of_target), languages, strict=True
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
            shown = ascii(word)[:LONGEST]
            raise DamagedError(f"{path}:{number} holds {shown} again, without {OVERWRITE}.")
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
        shown = ascii(line)[:LONGEST]
        text = f"{place} is {shown}; each line has a word, a space and a count."
        raise DamagedError(text) from None
    return word, is_new
