"""Reads the weights of a model of Hugging Face; transformers is not needed, nothing is executed."""

from pathlib import Path

from nmt_cli.errors import UserError
from nmt_cli.file_names import WEIGHTS
from nmt_cli.interchange.arrays import Array
from nmt_cli.interchange.pickled_tensors import read_pickled_tensors
from nmt_cli.interchange.tensor_files import as_fp32, read_safetensors

PICKLED = "pytorch_model.bin"


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
