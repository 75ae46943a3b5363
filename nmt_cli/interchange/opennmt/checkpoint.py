"""Reads a checkpoint of OpenNMT-py 3; OpenNMT-py need not be installed, nothing is executed.

It is a pickle of options, vocabularies and tensors.
"""

import zipfile
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from nmt_cli.interchange.files import Array, as_fp32, read_parts
from nmt_cli.interchange.pickled_tensors import (
    Inert,
    StandIns,
    content_of_pickle,
    read_pickle,
    tensors_by_name,
)
from nmt_cli.messages.errors import UserError

SUFFIX = ".pt"
KNOWN_BY = b"pos_ffn_activation_fn"  # an option of its Transformers, which no other program has
REMEDY = "load it with OpenNMT-py where you trust it, and save it with OpenNMT-py 3"
PLAIN = (str, int, float, bool, list, type(None))  # the types of options that are of use
# A set in the options is torch's own, whatever stands for it here.
STAND_INS: StandIns = MappingProxyType({"argparse Namespace": Inert, "builtins set": set})


class Checkpoint(NamedTuple):
    """A checkpoint; the tensors of the softmax are called generator.weight and generator.bias."""

    options: Mapping[str, Any]
    vocabulary: Mapping[str, Any]
    tensors: Mapping[str, Array]


def is_checkpoint(path: Path) -> bool:
    """Return whether ``path`` is a checkpoint of OpenNMT-py's Transformer."""
    try:
        return path.suffix == SUFFIX and path.is_file() and KNOWN_BY in content_of_pickle(path)
    except (OSError, zipfile.BadZipFile, ValueError):
        return False


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
    plain = {key: value for key, value in options.items() if isinstance(value, PLAIN)}
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
