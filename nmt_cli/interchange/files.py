"""Reads the files of other programs."""

import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import safetensors.torch
import torch
from numpy.typing import DTypeLike, NDArray
from safetensors import SafetensorError
from torch import Tensor

from nmt_cli.corpus.tokenizers.normalization import Side
from nmt_cli.files.file_names import CONFIG
from nmt_cli.files.text_files import read_text
from nmt_cli.messages.errors import DamagedError, UserError, WrongUsageError

Array = NDArray[np.float32]
Weights = dict[str, Array]
# The sides of a model, and our names of their text.
SIDES: dict[str, Side] = {"encoder": "source", "decoder": "target"}


def read_config(folder: Path, name: str = CONFIG) -> dict[str, Any]:
    """Return a file of settings; {} if there is none. Raises DamagedError if it is no object."""
    path = folder / name
    if not path.exists():
        return {}
    try:
        config = json.loads(read_text(path))
    except (ValueError, RecursionError):
        config = None
    if not isinstance(config, dict):
        raise DamagedError(f"{path} is damaged: it is not a JSON object.")
    return config


def only_file(folder: Path, found: Iterable[Path], what: str) -> Path:
    """Return the one file that was ``found`` in ``folder``; raises UserError unless it is one."""
    paths = sorted(found)
    if len(paths) != 1:
        named = ", ".join(each.name for each in paths[:3]) or "none"
        raise UserError(
            f"{folder} must hold one {what}, but holds {named}; name the file to import."
        )
    return paths[0]


class TextFiles(NamedTuple):
    """The files that the user names; None for one that is found beside the model, or is absent."""

    source_vocabulary: Path | None = None
    target_vocabulary: Path | None = None
    sentencepiece: Path | None = None  # of both languages, or of the source
    target_sentencepiece: Path | None = None

    def refuse_any(self, program: str) -> None:
        """Raise UserError if the user names a file; models of ``program`` have their own."""
        for name, path in self._asdict().items():
            if path is not None:
                option = f"--{name.replace('_', '-')}"
                raise UserError(
                    f"{option} {path} has no use: models of {program} have their own, and that is "
                    "read; leave it out."
                )

    def refuse_vocabularies(self, program: str) -> None:
        """Raise UserError if the user names a file other than SentencePiece models."""
        self._replace(sentencepiece=None, target_sentencepiece=None).refuse_any(program)

    def models(self) -> dict[Side, Path] | None:
        """Return the SentencePiece models that the user names; None without any.

        Raises UserError if only the target's is named.
        """
        source, target = self.sentencepiece, self.target_sentencepiece
        if source is not None:
            return {"source": source, "target": target or source}
        if target is not None:
            raise WrongUsageError(
                f"--target-sentencepiece {target} needs --sentencepiece, the model of the source."
            )
        return None


NO_FILES = TextFiles()


ENDS_EARLY = "it ends too early"


class Content:
    """Gives out the bytes of a file, one part after the other."""

    def __init__(self, data: bytes | memoryview) -> None:
        self._data, self._start = data, 0

    @property
    def num_left(self) -> int:
        """How many bytes are left."""
        return len(self._data) - self._start

    def take(self, count: int, dtype: DTypeLike = np.uint8) -> NDArray[Any]:
        """Return the next ``count`` numbers. Raises ValueError if there are not so many."""
        size = count * np.dtype(dtype).itemsize
        if size > self.num_left:
            raise ValueError(ENDS_EARLY)
        self._start += size
        return np.frombuffer(self._data, dtype, count, self._start - size)

    def number(self, dtype: DTypeLike) -> Any:
        """Return the next number."""
        return self.take(1, dtype).item()


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


def read_parts(
    paths: Iterable[Path], read: Callable[[Path], dict[str, Array]] = read_safetensors
) -> dict[str, Array]:
    """Return the tensors of several files; raises UserError if two hold one of the same name."""
    found: dict[str, Array] = {}
    for path in paths:
        part = read(path)
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
