"""The weights of a model in a file: written, and read one by one as arrays of numpy in fp32.

A matrix that is stored in int8 has a scale for each of its rows, in a tensor of its own.
"""

from __future__ import annotations

import hashlib
import math
import mmap
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from typing import Any, NamedTuple

import numpy as np
import safetensors
import safetensors.numpy
from safetensors import SafetensorError

from nmt_cli.costs.parameters import Shapes
from nmt_cli.files.atomic_files import HASHED_AT_ONCE, changed, checking
from nmt_cli.messages.errors import DamagedError
from nmt_cli.model.compiled.c_library import Array

# All that models are stored in.
DTYPES: dict[str, np.dtype[Any]] = {"F32": np.dtype(np.float32), "I8": np.dtype(np.int8)}
HEADER_LENGTH = 8  # bytes in front of the header: its length, little-endian
SCALES = ".scales"  # ends the name of a matrix's scales
MAPPED_AT_ONCE = 1 << 22  # bytes of a file, in whole pages, or one weight
LARGEST = 127
SMALLEST_SCALE = 1e-30  # of a row that is zero


class StoredTensor(NamedTuple):
    """A tensor in a file, whose ``name`` there is for messages."""

    name: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    offset: int  # bytes from the start of the file

    @property
    def end(self) -> int:
        """Where the next tensor is."""
        return self.offset + math.prod(self.shape) * self.dtype.itemsize


class StoredWeights(Mapping[str, Array]):
    """The weights in a file; ``weights[name]`` reads one.

    Making it reads the header only. Raises DamagedError if the file cannot be read, if it lacks one
    of the weights that are ``wanted`` or has others, and later if a weight is not finite.
    """

    def __init__(self, path: Path, wanted: Shapes | None = None) -> None:
        self._path = path
        with _naming_errors(path):
            tensors = stored_tensors(path)
            _refuse_lone_scales({name: each.shape for name, each in tensors.items()})
        self._scales = {
            name.removesuffix(SCALES): tensors.pop(name)
            for name in [*tensors]
            if name.endswith(SCALES)
        }
        self._tensors = tensors
        if wanted is not None:
            found = {
                name: (each.shape, "float32" if name in self._scales else each.dtype.name)
                for name, each in self._tensors.items()
            }
            refuse_others(wanted, found, path)

    @property
    def num_parameters(self) -> int:
        """How many numbers all weights have."""
        return sum(math.prod(tensor.shape) for tensor in self._tensors.values())

    def __getitem__(self, name: str) -> Array:
        with _naming_errors(self._path):
            return self._finite(name, self._read)

    def _finite(self, name: str, stored: Callable[[StoredTensor], Array]) -> Array:
        """Return a weight in fp32, finite, of what is ``stored`` of it."""
        weight = stored(self._tensors[name])
        if name in self._scales:
            weight = weight.astype(np.float32)
            weight *= stored(self._scales[name])
        refuse_not_finite(name, weight, self._path)
        return weight

    def checked(self, sha256: str) -> Iterator[tuple[str, Array]]:
        """Return an iterator of the names and the weights, in the order of the file.

        A thread hashes the file from now on. The iterator raises DamagedError if a weight is not
        finite and, behind the last one, if the file does not have this checksum.
        """
        with _naming_errors(self._path), self._path.open("rb") as stream:
            content = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
        digest = hashlib.sha256()
        hashing = Thread(target=_hash, args=(content, digest))
        hashing.start()

        def weights() -> Iterator[tuple[str, Array]]:
            try:
                yield from self._weights_in(content)
            finally:
                hashing.join()
            if digest.hexdigest() != sha256:
                raise changed(self._path)

        return weights()

    def _weights_in(self, content: mmap.mmap) -> Iterator[tuple[str, Array]]:
        array: Array = np.frombuffer(content, np.uint8)
        first = 0  # of the pages that are still in memory

        def stored(tensor: StoredTensor) -> Array:
            part = array[tensor.offset : tensor.end].view(tensor.dtype)
            return np.require(part.reshape(tensor.shape), requirements="A")

        with _naming_errors(self._path), checking(self._path, len(content)) as counter:
            for name, tensor in self._tensors.items():
                yield name, self._finite(name, stored)
                if tensor.end - first > MAPPED_AT_ONCE:
                    counter.advance(tensor.end // HASHED_AT_ONCE - first // HASHED_AT_ONCE)
                    first = _unmap(content, first, tensor.end)

    def __iter__(self) -> Iterator[str]:
        return iter(self._tensors)

    def __len__(self) -> int:
        return len(self._tensors)

    def _read(self, tensor: StoredTensor) -> Array:
        array = np.empty(tensor.shape, tensor.dtype)
        left = array.reshape(-1).view(np.uint8).data
        with self._path.open("rb", buffering=0) as stream:
            stream.seek(tensor.offset)
            while left:
                if not (count := stream.readinto(left)):
                    raise ValueError(f"it ends in {tensor.name}")
                left = left[count:]
        return array


def _hash(content: mmap.mmap, digest: hashlib._Hash) -> None:
    """Hash all bytes, without Python's lock; no more of them are in memory than have to be."""
    view = memoryview(content)
    for begin in range(0, len(content), MAPPED_AT_ONCE):
        digest.update(view[begin : begin + MAPPED_AT_ONCE])
        _unmap(content, begin, begin + MAPPED_AT_ONCE)


def _unmap(content: mmap.mmap, begin: int, end: int) -> int:
    """Take the whole pages of this part of a file out of memory; return where they end.

    If they are read again, they come from the file.
    """
    end = min(end, len(content)) // mmap.PAGESIZE * mmap.PAGESIZE
    content.madvise(mmap.MADV_DONTNEED, begin, end - begin)
    return end


@contextmanager
def _naming_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, SafetensorError, ValueError) as error:
        raise DamagedError(f"{path} cannot be read: {error}.") from None


def stored_tensors(path: Path) -> dict[str, StoredTensor]:
    """Return what the header of the file names, in the order of the bytes; these are not read.

    Raises SafetensorError if the file is damaged, ValueError if it has another dtype or an
    impossible shape, and OSError.
    """
    tensors = {}
    with path.open("rb") as stream:
        end = HEADER_LENGTH + int.from_bytes(stream.read(HEADER_LENGTH), "little")
    with safetensors.safe_open(path, "np") as file:  # checks that no bytes are between tensors
        for name in file.offset_keys():
            tensor = file.get_slice(name)
            if (kind := tensor.get_dtype()) not in DTYPES:
                raise ValueError(f"{name} has the type {kind}")
            dtype, shape = DTYPES[kind], tuple(tensor.get_shape())
            # An array has no such shape. The library accepts it if another size is 0, because the
            # tensor then takes no bytes of the file.
            if math.prod(filter(None, shape)) * dtype.itemsize > sys.maxsize:
                raise ValueError(f"{name} has the shape {list(shape)}")
            tensors[name] = StoredTensor(name, dtype, shape, end)
            end += math.prod(shape) * dtype.itemsize
    return tensors


def _refuse_lone_scales(shapes: Mapping[str, tuple[int, ...]]) -> None:
    for name in shapes:
        matrix = shapes.get(name.removesuffix(SCALES), ())
        if name.endswith(SCALES) and (len(matrix) != 2 or shapes[name] != (matrix[0], 1)):
            of = name.removesuffix(SCALES)
            raise ValueError(f"{name} does not have a scale for each row of {of}")


def check_weights(wanted: Shapes, weights: Mapping[str, Array], path: Path) -> None:
    """Raise DamagedError if ``weights`` of ``path`` are not those ``wanted``, or not finite."""
    found = {name: (weight.shape, weight.dtype.name) for name, weight in weights.items()}
    refuse_others(wanted, found, path)
    for name, weight in weights.items():
        refuse_not_finite(name, weight, path)


def refuse_others(
    wanted: Shapes, found: Mapping[str, tuple[tuple[int, ...], str]], path: Path
) -> None:
    """Raise DamagedError if what is ``found`` in ``path`` differs in names, shapes or types."""
    if missing := sorted(wanted.keys() ^ found.keys()):
        raise DamagedError(
            f"{path} does not fit its model: {', '.join(missing[:3])} is in one and not in the "
            "other."
        )
    for name, shape in wanted.items():
        if found[name] != (shape, "float32"):
            found_shape, dtype = found[name]
            raise DamagedError(
                f"{path} does not fit its model: {name} is {dtype} {list(found_shape)}, not "
                f"float32 {list(shape)}."
            )


def refuse_not_finite(name: str, weight: Array, path: Path) -> None:
    """Raise DamagedError if a number of ``weight`` is not finite."""
    with np.errstate(over="ignore", invalid="ignore"):
        total = weight.sum()
    # The sum takes less time; that of finite numbers may be infinite.
    if not np.isfinite(total) and not np.isfinite(weight).all():
        raise DamagedError(f"{path} is damaged: {name} is not finite.")


def as_bytes(weights: Mapping[str, Array], *, in_int8: bool) -> bytes:
    """Return the content of a file of ``weights``, of matrices in int8 if that is asked for."""
    stored = {name: np.asarray(weight, order="C") for name, weight in weights.items()}
    if in_int8:
        for name, weight in weights.items():
            if weight.ndim == 2:
                stored[f"{name}{SCALES}"], stored[name] = quantized_rows(weight)
    return safetensors.numpy.save(stored)


def quantized_rows(rows: Array) -> tuple[Array, Array]:
    """Return the scale [R, 1] of each of ``rows`` [R, I] in fp32, and the rows over it as int8."""
    largest = np.abs(rows).max(axis=1, keepdims=True)
    scales = np.maximum(largest, np.float32(SMALLEST_SCALE)) / np.float32(LARGEST)
    # By the reciprocal, as layers.c does, so that both round to the same integers.
    return scales, np.rint(rows * (1 / scales)).astype(np.int8)
