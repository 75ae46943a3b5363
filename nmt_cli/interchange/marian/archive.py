"""Reads the tensors of a model file of Marian (.npz); nothing in it is executed.

The file is a zip archive of arrays without compression, so memory is bounded by its size.
"""

import math
import re
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nmt_cli.errors import DamagedError, UserError
from nmt_cli.interchange.files import Array

SUFFIX = ".npy"
SETTINGS = "special:model.yml"
NAME = re.compile(r"[\w:.-]{1,200}", re.ASCII)
MAGIC = b"\x93NUMPY\x01\x00"
HEADER = re.compile(
    r"\{'descr': '([<|](?:f[248]|[iu][1248]))', 'fortran_order': (True|False), "
    r"'shape': \(([0-9, ]{0,100})\),? ?\} *\n?"
)
NUMBER = re.compile(r"[0-9]+")
FLOATS = ("<f2", "<f4")
MATRIX_OF_LAYER = re.compile(r"_W[qkvo\d]$|_logit_out_W$")  # [in, out]; ours are [out, in]


class Archive(NamedTuple):
    """The content of a file."""

    settings: str  # YAML
    tensors: dict[str, Array]  # matrices of layers are [out, in], all vectors have one axis
    quantized: dict[str, str]  # the types of tensors that are no fractions, by name


def read_archive(path: Path) -> Archive:
    """Return the tensors in fp32.

    Raises UserError if the file cannot be read, DamagedError if it is something else.
    """
    try:
        with zipfile.ZipFile(path) as file:
            return _archive(file, path.stat().st_size)
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}.") from None
    except (zipfile.BadZipFile, EOFError) as error:
        reason = str(error).lower().rstrip(".") or "it ends too early"
    except (ValueError, RuntimeError) as error:
        reason = str(error)
    reason = " ".join(reason.split())
    raise DamagedError(f"{path} is not an .npz file of Marian, or is damaged: {reason}.")


def _archive(file: zipfile.ZipFile, size: int) -> Archive:
    _refuse_large(file.infolist(), size)
    settings, tensors, quantized = None, dict[str, Array](), dict[str, str]()
    for entry in file.infolist():
        name = entry.filename.removesuffix(SUFFIX)
        if not NAME.fullmatch(name) or name == entry.filename:
            raise ValueError(f"it holds {ascii(entry.filename)[:100]}, which names no tensor")
        if name in tensors or name in quantized:
            raise ValueError(f"it holds {name} twice")
        array = _array(file.read(entry), name)
        if name == SETTINGS:
            settings = array.tobytes().partition(b"\0")[0].decode()
        elif array.dtype.str in FLOATS:
            tensors[name] = _as_ours(name, array.astype(np.float32, copy=False))
        else:
            quantized[name] = array.dtype.name
    if settings is None:
        raise ValueError(f"it has no {SETTINGS}")
    return Archive(settings, tensors, quantized)


def _refuse_large(entries: Sequence[zipfile.ZipInfo], size: int) -> None:
    """Raise ValueError if the entries are compressed, or overlap in a file of ``size`` bytes."""
    for entry in entries:
        if entry.compress_type != zipfile.ZIP_STORED:
            raise ValueError(f"{ascii(entry.filename)[:100]} is compressed; use numpy.savez")
    if sum(entry.file_size for entry in entries) > size:
        raise ValueError("it holds more bytes than it has")


def _array(data: bytes, name: str) -> NDArray[Any]:
    """Return the array in ``data``. Raises ValueError if its header does not fit its bytes."""
    if data[: len(MAGIC)] != MAGIC:
        raise ValueError(f"{name} is no array of the first version")
    start = len(MAGIC) + 2
    end = start + int.from_bytes(data[len(MAGIC) : start], "little")
    header = HEADER.fullmatch(data[start:end].decode("latin-1"))
    if header is None:
        raise ValueError(f"the header of {name} is not that of an array of numbers")
    dtype, shape = np.dtype(header[1]), [int(size) for size in NUMBER.findall(header[3])]
    if math.prod(shape) * dtype.itemsize != len(data) - end or 0 in shape:
        raise ValueError(f"{name} has {len(data) - end:,} bytes for the shape {str(shape)[:60]}")
    order: Literal["C", "F"] = "F" if header[2] == "True" else "C"
    return np.frombuffer(data, dtype, offset=end).reshape(shape, order=order)


def _as_ours(name: str, array: Array) -> Array:
    if array.ndim == 2 and MATRIX_OF_LAYER.search(name):
        return array.T
    # Biases and norms are matrices of one row; a vocabulary or table of one row is not possible.
    return array[0] if array.ndim == 2 and len(array) == 1 else array
