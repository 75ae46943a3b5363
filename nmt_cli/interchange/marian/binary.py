"""Marian's binary files of weights, as marian-conv and the translators of browsers have them.

Numbers are little-endian. A file has, one after the other:

    1 and the number of items
    of each item the lengths of its name, of its shape and of its content, and its type
    the names, which end with 0; the shapes; the length of the padding; the padding; the contents

The numbers of types are those of Marian 1.12.42, and of its branch browsermt, which Firefox uses.
Integers that stand for a matrix are followed by what its weights were multiplied by. The matrix is
transposed, unless it is one of embeddings; the shape is always that of before.
"""

import math
import re
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

START = (1).to_bytes(8, "little")
NAME = re.compile(r"[\w:.-]{1,200}", re.ASCII)
PLAIN = {0x101: "<i1", 0x402: "<f2", 0x404: "<f4"}
QUANTIZED = {0x4101: "<i1", 0x4102: "<i2", 0x10001: "<i1", 0x10002: "<i2"}
EMBEDDINGS = "Wemb"
TILE = 16  # Marian transposes a matrix correctly only if its sizes are multiples of this


class _Content:
    """Gives out the bytes of a file, one part after the other."""

    def __init__(self, data: bytes) -> None:
        self._data, self._start = data, 0

    def take(self, count: int, dtype: DTypeLike = np.uint8) -> NDArray[Any]:
        """Return the next ``count`` numbers. Raises ValueError if there are not so many."""
        end = self._start + count * np.dtype(dtype).itemsize
        if end > len(self._data):
            raise ValueError("it ends too early")
        start, self._start = self._start, end
        return np.frombuffer(self._data, dtype, count, start)


def read_items(data: bytes) -> Iterator[tuple[str, NDArray[Any] | str]]:
    """Yield the name and the array of each item; the name of its type if that is not known.

    Integers that stand for weights become fp32. Raises ValueError if ``data`` is something else.
    """
    content = _Content(data)
    if content.take(len(START)).tobytes() != START:
        raise ValueError("it does not begin with 1")
    (count,) = content.take(1, "<u8").tolist()
    headers = content.take(4 * count, "<u8").reshape(-1, 4).tolist()
    names = [content.take(length).tobytes()[:-1] for length, *_ in headers]
    shapes = [content.take(length, "<i4").tolist() for *_, length, _ in headers]
    (padding,) = content.take(1, "<u8").tolist()
    content.take(padding)
    for name, shape, (_, kind, _, length) in zip(names, shapes, headers, strict=True):
        text = name.decode("latin-1")
        if not NAME.fullmatch(text):
            raise ValueError(f"it holds {ascii(text)[:100]}, which names no tensor")
        yield text, _array(content.take(length).tobytes(), kind, shape, text)


def _array(data: bytes, kind: int, shape: list[int], name: str) -> NDArray[Any] | str:
    dtype = PLAIN.get(kind) or QUANTIZED.get(kind)
    if dtype is None:
        return f"type {kind:#x}"
    count, content = math.prod(shape), _Content(data)
    if min(shape, default=0) < 1:
        raise ValueError(f"{name} has the shape {str(shape)[:60]}")
    numbers = content.take(count, dtype)
    if kind in PLAIN:
        return numbers.reshape(shape)
    (scale,) = content.take(1, "<f4").tolist()
    if not 0 < scale < math.inf:
        raise ValueError(f"{name} was multiplied by {scale}")
    weights = numbers / np.float32(scale)
    if EMBEDDINGS in name:
        return weights.reshape(shape)
    if any(size % TILE for size in shape):
        raise ValueError(
            f"{name} has the shape {str(shape)[:60]}, and Marian writes integers wrongly unless "
            f"sizes are multiples of {TILE}"
        )
    return weights.reshape(shape[::-1]).T
