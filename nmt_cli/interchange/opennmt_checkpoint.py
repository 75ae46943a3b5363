"""Reads a checkpoint of OpenNMT-py 3; OpenNMT-py need not be installed, nothing is executed.

It is a pickle of options, vocabularies and tensors. Before torch reads it, the names of all classes
and functions in it are compared with the few that such a checkpoint needs; options become inert
objects in place of those of argparse.
"""

import pickle
import pickletools
import zipfile
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.serialization import safe_globals

from nmt_cli.errors import DamagedError, UserError
from nmt_cli.interchange.arrays import Array
from nmt_cli.interchange.huggingface_folder import as_fp32, read_safetensors
from nmt_cli.interchange.pickled_copies import refuse_copies
from nmt_cli.interchange.pickled_tensors import LARGEST_PICKLE, NAMES, OTHER_CALLS, PROTOCOL

SUFFIX = ".pt"
KNOWN_BY = b"pos_ffn_activation_fn"  # an option of its Transformers, which no other program has
LONGEST = 200  # characters of names in a message
REMEDY = "load it with OpenNMT-py where you trust it, and save it with OpenNMT-py 3"
PLAIN = (str, int, float, bool, list, type(None))  # the types of options that are of use


class Inert:
    """The options, with what they hold."""

    state: Any = None

    def __setstate__(self, state: Any) -> None:
        self.state = state


STAND_INS = MappingProxyType({"argparse Namespace": Inert})
# A set in the options is torch's own; ``refuse_copies`` sees what it is made of.
ALLOWED = NAMES | STAND_INS.keys() | {"__builtin__ set", "builtins set"}


class Checkpoint(NamedTuple):
    """A checkpoint; the tensors of the softmax are called generator.weight and generator.bias."""

    options: Mapping[str, Any]
    vocabulary: Mapping[str, Any]
    tensors: Mapping[str, Array]


def is_checkpoint(path: Path) -> bool:
    """Return whether ``path`` is a checkpoint of OpenNMT-py's Transformer."""
    try:
        return path.suffix == SUFFIX and path.is_file() and KNOWN_BY in _pickle_of(path)
    except (OSError, zipfile.BadZipFile, ValueError):
        return False


def read_checkpoint(path: Path) -> Checkpoint:
    """Return a checkpoint, with the weights that OpenNMT-py saved in it or beside it.

    Raises UserError if it cannot be read or is none, DamagedError if it is damaged.
    """
    if not path.is_file():
        raise UserError(f"{path} is no file; give a checkpoint of OpenNMT-py, a file *{SUFFIX}.")
    content = _read(path)
    content = content if isinstance(content, dict) else {}
    options = content.get("opt")
    options = options.state if isinstance(options, Inert) else None
    vocabulary = content.get("vocab")
    if not isinstance(options, dict) or not isinstance(vocabulary, dict):
        raise UserError(f"{path} is no checkpoint of OpenNMT-py 3: it has no opt, or no vocab.")
    if "model" in content:
        generator = content.get("generator")
        parts = {"": content["model"], "generator.": {} if generator is None else generator}
        tensors = as_fp32(_named(parts, path), path)
    else:
        tensors = _beside(path)
    names = {_new_name(name): name for name in tensors}
    if len(names) < len(tensors):
        raise UserError(f"{path} holds tensors with old names beside the same with new names.")
    plain = {key: value for key, value in options.items() if isinstance(value, PLAIN)}
    return Checkpoint(plain, vocabulary, {new: tensors[name] for new, name in names.items()})


def _read(path: Path) -> Any:
    try:
        if not zipfile.is_zipfile(path):
            raise UserError(f"{path} was written before torch 1.6, or is damaged; {REMEDY}.")
        _refuse_calls(_pickle_of(path), path)
        with safe_globals([(each, name.replace(" ", ".")) for name, each in STAND_INS.items()]):
            return torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}.") from None
    except (zipfile.BadZipFile, ValueError, RuntimeError, EOFError, pickle.UnpicklingError):
        raise _damaged(path) from None
    except (ArithmeticError, AssertionError, AttributeError, LookupError, MemoryError, TypeError):
        raise _damaged(path) from None  # of instructions that make no sense


def _pickle_of(path: Path) -> bytes:
    """Return the pickle in a file. Raises ValueError if torch did not write the file."""
    with zipfile.ZipFile(path) as file:
        entries = file.infolist()
        pickles = [each for each in entries if each.filename.lower().endswith(".pkl")]
        if len(pickles) != 1 or any(each.compress_type for each in entries):
            raise ValueError("torch writes one, and compresses nothing")
        if pickles[0].file_size > LARGEST_PICKLE:
            raise ValueError("it is too large")
        return file.read(pickles[0])


def _refuse_calls(content: bytes, path: Path) -> None:
    """Raise UserError if a pickle has unknown names, ValueError if it is damaged."""
    unknown = set()
    for opcode, argument, _ in pickletools.genops(content):
        if opcode.name == "GLOBAL" and argument not in ALLOWED:
            unknown.add(str(argument))
        elif opcode.name in OTHER_CALLS:
            unknown.add(opcode.name)
        elif opcode.name == "PROTO" and argument != PROTOCOL:
            raise ValueError(f"its protocol is {argument}")
    if unknown:
        named = ascii(", ".join(name.replace(" ", ".") for name in sorted(unknown)[:3]))[1:-1]
        raise UserError(
            f"{path} may run code, so it was not loaded: it calls {named[:LONGEST]}; {REMEDY}."
        )
    refuse_copies(content)


def _named(parts: Mapping[str, Any], path: Path) -> dict[str, Tensor]:
    """Return the tensors of all parts, with the prefix of each in front of their names."""
    found: dict[str, Tensor] = {}
    for prefix, part in parts.items():
        kinds = (Tensor, torch.nn.Parameter)
        if not isinstance(part, dict) or not all(
            isinstance(name, str) and type(each) in kinds for name, each in part.items()
        ):
            raise UserError(f"{path} holds other things than tensors by name.")
        found |= {f"{prefix}{name}": each.detach() for name, each in part.items()}
    sizes = {
        (each.data_ptr(), each.shape, each.stride(), each.dtype): each.numel() * each.itemsize
        for each in found.values()
    }
    if sum(sizes.values()) > path.stat().st_size:
        raise _damaged(path)
    return found


def _beside(path: Path) -> dict[str, Array]:
    """Return the tensors that OpenNMT-py saved in safetensors files beside ``path``."""
    start = f"{path.name.removesuffix(SUFFIX)}."
    names = sorted(each.name for each in path.parent.iterdir() if each.name.startswith(start))
    files = [path.parent / name for name in names if name.endswith(".safetensors")]
    if not files:
        raise UserError(f"{path} has no weights, and there are none in {start}safetensors.")
    found: dict[str, Array] = {}
    for file in files:
        part = read_safetensors(file)
        if found.keys() & part.keys():
            raise UserError(f"{file} holds a tensor that another part holds, too.")
        found |= part
    return found


def _new_name(name: str) -> str:
    """Return the name of a tensor in newer checkpoints."""
    for old, new in ((".a_2", ".weight"), (".b_2", ".bias")):
        if name.endswith(old):
            return name.removesuffix(old) + new
    return name.replace("generator.0.", "generator.")


def _damaged(path: Path) -> DamagedError:
    return DamagedError(f"{path} is damaged, or torch did not write it; get the file again.")
