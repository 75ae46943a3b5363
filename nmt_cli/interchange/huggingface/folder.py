"""Reads the files of a model of Hugging Face; transformers is not needed, nothing is executed."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor

from nmt_cli.errors import DamagedError, UserError
from nmt_cli.file_names import WEIGHTS
from nmt_cli.interchange.arrays import Array
from nmt_cli.interchange.pickled_tensors import read_pickled_tensors

PICKLED = "pytorch_model.bin"
FLOATS = (torch.float32, torch.float16, torch.bfloat16, torch.float64)


def read_tensors(folder: Path) -> dict[str, Array]:
    """Return the weights of ``folder`` in fp32.

    Raises UserError if a file cannot be read or holds other things, DamagedError if it is damaged.
    """
    path = folder / WEIGHTS
    if path.is_file():
        return read_safetensors(path)
    path = folder / PICKLED
    if path.is_file():
        return as_fp32(read_pickled_tensors(path), path)
    raise UserError(f"{folder} has no {WEIGHTS} and no {PICKLED}, which hold the weights.")


def read_safetensors(path: Path) -> dict[str, Array]:
    """Return the tensors of a file in fp32; raises as ``read_tensors`` does."""
    try:
        return as_fp32(safetensors.torch.load_file(path), path)
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}.") from None
    except (SafetensorError, ValueError, KeyError) as error:
        raise DamagedError(f"{path} is damaged: {' '.join(str(error).split())}.") from None


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
