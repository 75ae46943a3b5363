"""Reads the tensors of a file in fp32; nothing in it is executed."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor

from nmt_cli.errors import DamagedError, UserError
from nmt_cli.interchange.arrays import Array

FLOATS = (torch.float32, torch.float16, torch.bfloat16, torch.float64)


def read_safetensors(path: Path) -> dict[str, Array]:
    """Return the tensors of a file in fp32.

    Raises UserError if it cannot be read or holds other things, DamagedError if it is damaged.
    """
    try:
        return as_fp32(safetensors.torch.load_file(path), path)
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}.") from None
    except (SafetensorError, ValueError, KeyError) as error:
        raise DamagedError(f"{path} is damaged: {' '.join(str(error).split())}.") from None


def read_parts(paths: Iterable[Path]) -> dict[str, Array]:
    """Return the tensors of several files; raises UserError if two hold one of the same name."""
    found: dict[str, Array] = {}
    for path in paths:
        part = read_safetensors(path)
        twice = sorted(found.keys() & part.keys())
        if twice:
            raise UserError(f"{path} holds {twice[0]}, which another part holds, too.")
        found |= part
    return found


def as_fp32(tensors: Mapping[str, Tensor], path: Path) -> dict[str, Array]:
    """Return the tensors of the file at ``path`` in fp32; raises UserError if one is integers."""
    made: dict[tuple[Any, ...], Array] = {}  # so that the other names of a tensor take no memory
    found: dict[str, Array] = {}
    for name, tensor in tensors.items():
        if tensor.dtype not in FLOATS:
            raise UserError(f"{path} holds {name!r} as {tensor.dtype}, which is no fraction.")
        key = (tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.dtype)
        if key not in made:
            made[key] = tensor.float().numpy()
        found[name] = made[key]
    return found
