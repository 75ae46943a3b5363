"""Reads the tensors of a safetensors file into memory of their own.

The library maps the file into memory instead. Where the tensors are copied from there, the process
has them in memory twice, and it is killed if the file becomes shorter meanwhile.
"""

from pathlib import Path

import safetensors
import torch
from torch import Tensor

DTYPES = {"F32": torch.float32, "I8": torch.int8}  # all that models are stored in
HEADER_LENGTH = 8  # bytes in front of the header: its length, little-endian


def read_shapes(path: Path) -> dict[str, Tensor]:
    """Return tensors without memory (on "meta") like those of the file, in the order of its bytes.

    Raises SafetensorError if the file is damaged, ValueError if it has another dtype or an
    impossible shape.
    """
    shapes = {}
    with safetensors.safe_open(path, "pt") as file:  # checks that no bytes are between tensors
        for name in file.offset_keys():
            stored = file.get_slice(name)
            if stored.get_dtype() not in DTYPES:
                raise ValueError(f"{name} has the type {stored.get_dtype()}")
            shape, dtype = stored.get_shape(), DTYPES[stored.get_dtype()]
            try:
                shapes[name] = torch.empty(shape, dtype=dtype, device="meta")
            except (TypeError, RuntimeError):
                # torch refuses the size 2**63. The library accepts it if another size is 0, because
                # the tensor then takes no bytes of the file.
                raise ValueError(f"{name} has the shape {shape}") from None
    return shapes


def read_tensors(path: Path) -> dict[str, Tensor]:
    """Return the tensors of the file; raises as ``read_shapes`` does, and OSError."""
    tensors = {}
    shapes = read_shapes(path)
    with path.open("rb") as stream:
        stream.seek(HEADER_LENGTH + int.from_bytes(stream.read(HEADER_LENGTH), "little"))
        for name, shape in shapes.items():
            tensors[name] = torch.empty(shape.shape, dtype=shape.dtype, device="cpu")
            into = tensors[name].flatten().view(torch.uint8).numpy().data
            if stream.readinto(into) != into.nbytes:
                raise ValueError(f"it ends in {name}")
    return tensors
