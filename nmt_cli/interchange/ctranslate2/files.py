"""Reads the files of a model of CTranslate2; nothing in them is executed.

``model.bin`` is a list of variables, each with a name, a shape and its bytes. Memory is bounded by
the size of the files.
"""

import json
import math
import mmap
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nmt_cli.corpus.tokenizers.normalization import Side
from nmt_cli.corpus.tokenizers.whitespace_tokenizer import CONTROL
from nmt_cli.files.text_files import read_text
from nmt_cli.interchange.files import Array, Content
from nmt_cli.interchange.vocabularies import (
    SENTENCEPIECE_FILES,
    Vocabulary,
    list_of_texts,
    vocabulary_of,
)
from nmt_cli.interchange.weights_taken import TensorsTaken
from nmt_cli.messages.errors import DamagedError

VERSIONS = range(2, 7)  # of the binary format
FIRST_WITH_ALIASES, FIRST_WITH_TYPES = 3, 4
MOST_DIMENSIONS = 8
BF16 = "bfloat16"
TYPES: tuple[str, ...] = ("<f4", "<i1", "<i2", "<i4", "<f2", BF16)  # in the order of their numbers
TYPES_BY_SIZE = {4: "<f4", 1: "<i1", 2: "<i2"}  # before files named the types


class Variables(NamedTuple):
    """The content of ``model.bin``; integers that stand for weights are multiplied out."""

    spec: str
    revision: int
    by_name: dict[str, Array]

    def shape(self, name: str) -> tuple[int, ...]:
        """Return the shape of a variable; () if there is none of this name."""
        found = self.by_name.get(name)
        return () if found is None else found.shape


def read_variables(path: Path) -> Variables:
    """Return the variables of a ``model.bin``. Raises DamagedError if it is something else."""
    try:
        with path.open("rb") as stream:
            data = memoryview(mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ))
    except ValueError:  # nothing can be mapped
        raise DamagedError(f"{path} is empty; copy it again.") from None
    try:
        return _variables(Content(data))
    except ValueError as error:
        raise DamagedError(
            f"{path} is not a model of CTranslate2, or is damaged: {error}; copy it again."
        ) from None


def _name(content: Content) -> str:
    return content.take(content.number("<u2")).tobytes().rstrip(b"\0").decode()


def _variables(content: Content) -> Variables:
    version = content.number("<u4")
    if version not in VERSIONS:
        raise ValueError(
            f"its version is {version:,}, known are {VERSIONS.start} to {VERSIONS.stop - 1}"
        )
    spec, revision = _name(content), content.number("<u4")
    stored: dict[str, NDArray[Any]] = {}
    for _ in range(content.number("<u4")):
        name = _name(content)
        if name in stored:
            raise ValueError(f"{name} is there twice")
        stored[name] = _array(content, name, has_type=version >= FIRST_WITH_TYPES)
    if version >= FIRST_WITH_ALIASES:
        for _ in range(content.number("<u4")):
            alias, name = _name(content), _name(content)
            if alias in stored or name not in stored:
                raise ValueError(f"{alias} is there twice, or {name} is missing")
            stored[alias] = stored[name]
            if f"{name}_scale" in stored:  # that of the alias is not named
                stored.setdefault(f"{alias}_scale", stored[f"{name}_scale"])
    if content.num_left:
        raise ValueError(f"{content.num_left:,} bytes follow the last variable")
    return Variables(spec, revision, _as_fp32(stored))


def _array(content: Content, name: str, *, has_type: bool) -> NDArray[Any]:
    rank = content.number("u1")
    if rank > MOST_DIMENSIONS:
        raise ValueError(f"{name} has {rank} dimensions")
    shape = [content.number("<u4") for _ in range(rank)]
    kind, count = content.number("u1"), content.number("<u4")
    if has_type:
        dtype = TYPES[kind] if kind < len(TYPES) else ""
        size = count
    else:
        dtype, size = TYPES_BY_SIZE.get(kind, ""), kind * count
    if not dtype:
        raise ValueError(f"{name} has an unknown type, {kind}")
    stored = np.frombuffer(content.take(size), "<u2" if dtype == BF16 else dtype)
    if math.prod(shape) != len(stored):
        raise ValueError(f"{name} has {len(stored):,} numbers for the shape {shape}")
    if dtype == BF16:
        stored = (stored.astype(np.uint32) << 16).view(np.float32)
    return stored.reshape(shape)


def _as_fp32(stored: dict[str, NDArray[Any]]) -> dict[str, Array]:
    """Return all arrays in fp32; quantized weights are divided by their scales, which are left out.

    CTranslate2 rounds W * scale to integers, with a scale for each row or for the whole matrix.
    """
    found: dict[str, Array] = {}
    made: dict[tuple[int, int], Array] = {}  # so that the other names of an array take no memory
    for name, array in stored.items():
        if name.endswith("weight_scale") and name.removesuffix("_scale") in stored:
            continue
        scale = stored.get(f"{name}_scale") if name.endswith("weight") else None
        key = (id(array), id(scale))
        if key in made:
            found[name] = made[key]
            continue
        wide = array.astype(np.float32)
        if scale is None and name.endswith("weight") and array.dtype.kind == "i":
            raise ValueError(f"{name} has integers, but no scale")
        if scale is not None:
            factors = np.asarray(scale, np.float32)
            if factors.ndim and (wide.ndim != 2 or factors.shape != (len(wide),)):
                raise ValueError(f"{name}_scale has the shape {list(factors.shape)}")
            wide = wide / (factors[:, None] if factors.ndim else factors)
        found[name] = made[key] = wide
    return found


def read_vocabulary(folder: Path, name: str) -> list[str] | None:
    """Return the tokens of ``NAME_vocabulary.json`` or ``.txt``; None if there is no such file."""
    path = folder / f"{name}_vocabulary.json"
    if path.exists():
        try:
            return list_of_texts(json.loads(read_text(path)))
        except (ValueError, RecursionError):
            raise DamagedError(f"{path} is damaged: it is not a JSON list of texts.") from None
    path = path.with_suffix(".txt")
    if not path.exists():
        return None
    lines = read_text(path).split("\n")
    return lines if lines[-1] else lines[:-1]


class SpecialTokens(NamedTuple):
    """The model's names of <unk>, <s> and </s>, and what its decoder starts with."""

    tokens: tuple[str, str, str]
    decoder_start: str  # as in model.decoder_start


def special_tokens_of(config: Mapping[str, Any], tensors: TensorsTaken) -> SpecialTokens:
    """Return the special tokens; our start mark is the token that the decoder starts with."""
    unk, bos, eos = (
        str(config.get(f"{name}_token", default))
        for name, default in zip(("unk", "bos", "eos"), CONTROL, strict=True)
    )
    if tensors.take_number("decoder/start_from_zero_embedding", 0.0):
        return SpecialTokens((unk, bos, eos), "zeros")
    start = config.get("decoder_start_token", bos)
    if start == eos:
        return SpecialTokens((unk, bos, eos), "eos")
    if not isinstance(start, str):
        tensors.reasons.append("its decoder starts with a token that the caller chooses")
        start = bos
    return SpecialTokens((unk, start, eos), "bos")


def read_vocabularies(
    folder: Path,
    special: SpecialTokens,
    sizes: Mapping[Side, int],
    reasons: list[str],
    *,
    are_words: bool,
) -> dict[Side, Vocabulary]:
    """Return the vocabulary of each side; ``sizes`` are the rows of its matrix.

    The reasons against them are added to ``reasons``; ``are_words`` is true for text in pieces.
    """
    shared, found = read_vocabulary(folder, "shared"), dict[Side, Vocabulary]()
    single = [name for name in SENTENCEPIECE_FILES[0].values() if (folder / name).is_file()]
    if len(single) == 1:
        reasons.append(f"it has {single[0]}, but not both source.spm and target.spm")
    unk, start, end = special.tokens
    for side, size in sizes.items():
        tokens = shared if shared is not None else read_vocabulary(folder, side)
        if tokens is None:
            reasons.append(f"it has no {side} vocabulary")
            continue
        if unk not in tokens:
            tokens = [*tokens, unk]  # as CTranslate2 does
        if len(set(tokens)) == len(tokens) != size:
            count = f"{len(tokens):,} tokens, its matrix {size:,} rows"
            reasons.append(f"the {side} vocabulary has {count}")
        needs_start = special.decoder_start == "bos" or start in {*tokens} - {unk, end}
        if shared is not None and not (are_words or needs_start) and {unk, end} <= {*tokens}:
            names = {unk: CONTROL[0], end: CONTROL[2]}
            pieces = [names.get(token, token) for token in tokens]
            found[side] = Vocabulary(pieces, list(range(len(tokens))))
            continue
        found[side] = vocabulary_of(
            tokens,
            [unk, start if needs_start else None, end],
            side,
            reasons,
            needs_marks=side == "target" or shared is not None,
        )
    return found
