"""Reads what ``torch.save`` wrote; nothing in the file is executed.

Before torch reads the file, the names of all functions in it are compared with those that tensors
need, so that a file with another one is refused, whatever torch itself allows. A caller may give a
fixed list of further names, each with a stand-in that is called in place of what has this name. A
tensor that is larger than its file is refused as well, so that memory is bounded by the size of the
file.
"""

import pickle
import pickletools
import struct
import zipfile
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor
from torch.serialization import safe_globals

from nmt_cli.interchange.files import Array, as_fp32
from nmt_cli.messages.errors import DamagedError, UserError

STORES, RECALLS = {"BINPUT", "LONG_BINPUT", "PUT"}, {"BINGET", "LONG_BINGET", "GET"}
MARK = pickletools.markobject
SETS = ("__builtin__ set", "builtins set")
MOST_TUPLES = 1000  # in a tuple, each as often as it is reached; programs write about ten
COPYING = (*SETS, "collections OrderedDict", "collections defaultdict", "collections Counter")


class _Value:
    """A value on the stack of a pickle: a tuple with its parts, a function with its name."""

    def __init__(self, kind: Any, parts: Sequence["_Value"] = ()) -> None:
        self.kind, self.parts = kind, parts
        self.is_copied = False
        self.num_tuples = 0
        if kind is pickletools.pytuple:
            self.num_tuples = 1 + sum(part.num_tuples for part in parts)
        if self.num_tuples > MOST_TUPLES:
            raise ValueError("a tuple holds the same tuples too often")

    def copy(self) -> None:
        """Note that the value is copied. Raises ValueError if it was already."""
        if self.is_copied and not isinstance(self.kind, str):  # classes copy nothing
            raise ValueError("it makes containers of what it holds already")
        self.is_copied = True


def refuse_copies(content: bytes) -> None:
    """Raise ValueError if a pickle makes more than one container or object of a value.

    Raises it as well if the pickle is damaged.
    """
    stack: list[_Value] = []
    kept: dict[Any, _Value] = {}
    try:
        for opcode, argument, _ in pickletools.genops(content):
            if opcode.name in STORES:
                kept[argument] = stack[-1]
            elif opcode.name in RECALLS:
                stack.append(kept[argument])
            elif opcode.name == "GLOBAL":
                stack.append(_Value(argument))
            else:
                _step(opcode, stack)
    except LookupError:
        raise ValueError("its instructions make no sense") from None


def _step(opcode: pickletools.OpcodeInfo, stack: list[_Value]) -> None:
    """Do to the stack what an instruction does."""
    before, after = opcode.stack_before, opcode.stack_after
    taken: list[_Value] = []
    count = before.index(MARK) if MARK in before else len(before)
    if MARK in before:
        while stack[-1].kind is not MARK:
            taken.append(stack.pop())
        stack.pop()
    taken += [stack.pop() for _ in range(count)]
    if opcode.name == "REDUCE" and taken[1].kind in COPYING:
        if taken[0].kind is not pickletools.pytuple:
            raise ValueError("it calls a function without a tuple")
        for part in taken[0].parts:
            part.copy()
    elif opcode.name == "BUILD":
        taken[0].copy()
    if not after:
        return
    changes = before and before[0] in (pickletools.pylist, pickletools.pydict, pickletools.pyset)
    if changes or opcode.name == "BUILD":  # then the first value stays, with other contents
        stack.append(taken[-1])
    else:
        stack += [_Value(kind, taken) for kind in after]


# The keys under which omegaconf's configurations and their values hold what they stand for.
WRAPPING = ("_content", "_val")
DEEPEST = 4  # wrappings of one value


class Inert:
    """Any object, with the attributes that it gets."""

    __slots__ = ("state",)
    state: Any

    def __new__(cls, *arguments: Any) -> "Inert":
        """Return an object without attributes, whatever it would be made of."""
        made = super().__new__(cls)
        made.state = None
        return made

    def __setstate__(self, state: Any) -> None:
        self.state = state


def inert_mapping(*arguments: Any) -> dict[Any, Any]:
    """Return an empty mapping, whatever it would be made of; pickles fill it with its items."""
    return OrderedDict()


def unwrapped(value: Any) -> Any:
    """Return the value that a node of omegaconf holds; other values are themselves."""
    for _ in range(DEEPEST):
        state = value.state if isinstance(value, Inert) else None
        items = state if isinstance(state, Mapping) else {}
        inner = [items[key] for key in WRAPPING if key in items]
        if not inner:
            break
        value = inner[0]
    return value


def members(value: Any) -> Mapping[Any, Any]:
    """Return the attributes of an object or the items of a mapping; none of anything else."""
    value = unwrapped(value)
    if isinstance(value, Inert):
        value = value.state
    return value if isinstance(value, Mapping) else {}


TYPES = ("Float", "Half", "BFloat16", "Double", "Long", "Int", "Short", "Char", "Byte", "Bool")
NAMES = frozenset(
    {
        "collections OrderedDict",
        "torch._utils _rebuild_tensor_v2",
        "torch._utils _rebuild_parameter",
        *(f"torch {kind}Storage" for kind in TYPES),
    }
)
# Opcodes of pickle that find a function otherwise than by a name in the file, or call it.
OTHER_CALLS = {"STACK_GLOBAL", "INST", "OBJ", "EXT1", "EXT2", "EXT4", "NEWOBJ_EX"}
PROTOCOL = 2  # of the pickles that torch writes
SUFFIX = ".pt"  # of checkpoints
START = 4 << 20  # bytes of an older file, which begins with its pickle
LONGEST = 200  # characters of names in a message
LARGEST_PICKLE = 50 << 20  # bytes of the part without the numbers
SAFER = "load it where you trust it, and save it as model.safetensors"
# Numbers of numpy are made of bytes, which torch lets this function make of a text and a name.
BYTES, CODEC, TEXT = "_codecs encode", "latin1", "BINUNICODE"

StandIns = Mapping[str, Callable[..., Any]]  # by "module name", as in the file
NO_STAND_INS: StandIns = MappingProxyType({})


def read_pickled_tensors(path: Path) -> dict[str, Array]:
    """Return the tensors of a file by name, in fp32.

    Raises UserError if it cannot be read or holds anything else, DamagedError if it is damaged.
    """
    return as_fp32(tensors_by_name(read_pickle(path), path), path)


def read_pickle(path: Path, stand_ins: StandIns = NO_STAND_INS, remedy: str = SAFER) -> Any:
    """Return what a file holds, with ``stand_ins`` for the objects that have their names.

    Raises UserError, with ``remedy``, if it calls anything else or cannot be read, and DamagedError
    if it is damaged.
    """
    try:
        if not zipfile.is_zipfile(path):
            raise UserError(f"{path} was written before torch 1.6, or is damaged; {remedy}.")
        allowed = NAMES | stand_ins.keys()
        unknown = sorted({name for name in _calls(path) if name not in allowed})
        if unknown:
            named = ascii(", ".join(name.replace(" ", ".") for name in unknown[:3]))[1:-1]
            raise UserError(
                f"{path} may run code, so it was not loaded: it calls {named[:LONGEST]}; {remedy}."
            )
        with safe_globals([(each, name.replace(" ", ".")) for name, each in stand_ins.items()]):
            return torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}.") from None
    except (zipfile.BadZipFile, ValueError, RuntimeError, EOFError, pickle.UnpicklingError):
        raise _damaged(path) from None
    except (ArithmeticError, AssertionError, AttributeError, LookupError, MemoryError, TypeError):
        raise _damaged(path) from None  # of instructions that make no sense


def tensors_by_name(found: Any, path: Path) -> dict[str, Tensor]:
    """Return ``found``, a part of the file at ``path``, as tensors by name.

    Raises UserError if it holds anything else, DamagedError if a tensor is larger than the file.
    """
    if not isinstance(found, dict):
        raise UserError(f"{path} holds no tensors by name.")
    kinds = {type(value) for value in found.values()} - {Tensor, torch.nn.Parameter}
    if kinds or not all(isinstance(name, str) for name in found):
        raise UserError(f"{path} holds other things than tensors by name.")
    _refuse_large(path, found)
    return {name: tensor.detach() for name, tensor in found.items()}


def holds(path: Path, known_by: bytes) -> bool:
    """Return whether ``known_by`` is in the pickle of a file *.pt, or of one in a folder.

    Of a file that is not of torch 1.6 or later, only the start is read.
    """
    paths = path.glob(f"*{SUFFIX}") if path.is_dir() else [path]
    return any(known_by in _start_of(each) for each in paths if each.suffix == SUFFIX)


def _start_of(path: Path) -> bytes:
    try:
        if not zipfile.is_zipfile(path):
            with path.open("rb") as stream:
                return stream.read(START)
        return _content_of_pickle(path)
    except (OSError, EOFError, ValueError, RuntimeError, zipfile.BadZipFile, struct.error):
        return b""


def _content_of_pickle(path: Path) -> bytes:
    """Return the pickle in a file. Raises BadZipFile or ValueError if torch did not write it."""
    with zipfile.ZipFile(path) as file:
        entries = file.infolist()
        pickles = [each for each in entries if each.filename.lower().endswith(".pkl")]
        if len(pickles) != 1 or any(each.compress_type for each in entries):
            raise ValueError("torch writes one, and compresses nothing")
        if pickles[0].file_size > LARGEST_PICKLE:
            raise ValueError("it is too large")
        return file.read(pickles[0])


def _calls(path: Path) -> Iterator[str]:
    """Yield the names of functions in a file. Raises ValueError if it is damaged."""
    content = _content_of_pickle(path)
    if BYTES.replace(" ", "\n").encode() in content:
        _refuse_large_bytes(content)
    refuse_copies(content)
    for opcode, argument, _ in pickletools.genops(content):
        if opcode.name == "GLOBAL":
            yield str(argument).replace("__builtin__ ", "builtins ")  # as torch does
        elif opcode.name in OTHER_CALLS:
            yield opcode.name
        elif opcode.name == "PROTO" and argument != PROTOCOL:
            raise ValueError(f"its protocol is {argument}")


def _refuse_large_bytes(content: bytes) -> None:
    """Raise ValueError if bytes are made of anything but a text that stands right there.

    Then they are no more than the file holds; a large text could become bytes any number of times.
    """
    tops, top, since = dict[Any, str](), "", len((BYTES, CODEC))
    for opcode, argument, _ in pickletools.genops(content):
        if opcode.name in STORES:
            tops[argument] = top
            continue
        if opcode.name in RECALLS:
            top = tops.get(argument, "")
        else:
            top = str(argument) if opcode.name in {"GLOBAL", TEXT} else ""
        if (since == 0 and opcode.name != TEXT) or (since == 1 and top != CODEC):
            raise ValueError("it makes bytes of something else than a text")
        since = 0 if top == BYTES else since + 1


def _refuse_large(path: Path, tensors: dict[str, Tensor]) -> None:
    """Raise DamagedError if the tensors, each once, hold more bytes than the file."""
    sizes = {
        (each.data_ptr(), each.shape, each.stride(), each.dtype): each.numel() * each.itemsize
        for each in tensors.values()
    }
    if sum(sizes.values()) > path.stat().st_size:
        raise _damaged(path)


def _damaged(path: Path) -> DamagedError:
    return DamagedError(f"{path} is damaged, or torch did not write it; get the file again.")
