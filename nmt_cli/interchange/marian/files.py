"""The files of a model of Marian: the weights, and the vocabularies and models beside them."""

import math
import re
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nmt_cli.corpus.tokenizers.normalization import Side
from nmt_cli.files.text_files import read_text
from nmt_cli.interchange.files import ENDS_EARLY, Array, Content, TextFiles, only_file
from nmt_cli.interchange.vocabularies import SENTENCEPIECE_FILES
from nmt_cli.messages.errors import DamagedError, UserError, WrongUsageError
from nmt_cli.recipe.reading.yaml_tree import MAX_BYTES, parse_yaml

START = (1).to_bytes(8, "little")  # of a binary file
NAME = re.compile(r"[\w:.-]{1,200}", re.ASCII)
# Types by the numbers of Marian 1.12.42, and of its branch browsermt, which Firefox uses.
PLAIN = {0x101: "<i1", 0x402: "<f2", 0x404: "<f4"}
QUANTIZED = {0x4101: "<i1", 0x4102: "<i2", 0x10001: "<i1", 0x10002: "<i2"}
EMBEDDINGS = "Wemb"
TILE = 16  # Marian transposes a matrix correctly only if its sizes are multiples of this


def read_items(data: bytes) -> Iterator[tuple[str, NDArray[Any] | str]]:
    """Yield the name and the array of each item; the name of its type if that is not known.

    ``data`` is a binary file, as marian-conv and the translators of browsers have it. Its numbers
    are little-endian. It has, one after the other:

        1 and the number of items;
        of each item the lengths of its name, of its shape and of its content, and its type;
        the names, which end with 0; the shapes; the length of the padding; the padding; contents

    Integers that stand for a matrix are followed by what its weights were multiplied by, and become
    fp32. The matrix is transposed, unless it is one of embeddings; the shape is always that of
    before. Raises ValueError if ``data`` is something else.
    """
    content = Content(data)
    if content.take(len(START)).tobytes() != START:
        raise ValueError("it does not begin with 1")
    count = content.number("<u8")
    headers = content.take(4 * count, "<u8").reshape(-1, 4).tolist()
    names = [content.take(length).tobytes()[:-1] for length, *_ in headers]
    shapes = [content.take(length, "<i4").tolist() for *_, length, _ in headers]
    content.take(content.number("<u8"))  # the padding
    for name, shape, (_, kind, _, length) in zip(names, shapes, headers, strict=True):
        text = name.decode("latin-1")
        if not NAME.fullmatch(text):
            raise ValueError(f"it holds {ascii(text)[:100]}, which names no tensor")
        yield text, _array(content.take(length).tobytes(), kind, shape, text)


def _array(data: bytes, kind: int, shape: list[int], name: str) -> NDArray[Any] | str:
    dtype = PLAIN.get(kind) or QUANTIZED.get(kind)
    if dtype is None:
        return f"type {kind:#x}"
    count, content = math.prod(shape), Content(data)
    if min(shape, default=0) < 1:
        raise ValueError(f"{name} has the shape {str(shape)[:60]}")
    numbers = content.take(count, dtype)
    if kind in PLAIN:
        return numbers.reshape(shape)
    scale = content.number("<f4")
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


WEIGHTS, BINARY = ".npz", ".bin"
SUFFIX = ".npy"
SETTINGS = "special:model.yml"
MULTIPLIER = "_QuantMultA"  # ends the names of what 8-bit activations are multiplied by
MAGIC = b"\x93NUMPY\x01\x00"
HEADER = re.compile(
    r"\{'descr': '([<|](?:f[248]|[iu][1248]))', 'fortran_order': (True|False), "
    r"'shape': \(([0-9, ]{0,100})\),? ?\} *\n?"
)
NUMBER = re.compile(r"[0-9]+")
FLOATS = ("<f2", "<f4")
MATRIX_OF_LAYER = re.compile(r"_W[qkvof\d]?$")  # [in, out]; ours are [out, in]


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
        if path.suffix == BINARY:
            return _archive(read_items(path.read_bytes()))
        with zipfile.ZipFile(path) as file:
            return _archive(_arrays(file, path.stat().st_size))
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}.") from None
    except (zipfile.BadZipFile, EOFError, ValueError, RuntimeError) as error:
        reason = " ".join(str(error).split()) or ENDS_EARLY
        kind = "a .bin file" if path.suffix == BINARY else "an .npz file"
        raise DamagedError(f"{path} is not {kind} of Marian, or is damaged: {reason}.") from None


def _arrays(file: zipfile.ZipFile, size: int) -> Iterator[tuple[str, NDArray[Any]]]:
    """Yield the name and the array of each entry of a file of ``size`` bytes."""
    _refuse_large(file.infolist(), size)
    for entry in file.infolist():
        name = entry.filename.removesuffix(SUFFIX)
        if not NAME.fullmatch(name) or name == entry.filename:
            raise ValueError(f"it holds {ascii(entry.filename)[:100]}, which names no tensor")
        yield name, _entry(file.read(entry), name)


def _archive(items: Iterable[tuple[str, NDArray[Any] | str]]) -> Archive:
    """Return the content of ``items``, arrays by name, or their type if it is not known."""
    settings, tensors, quantized = None, dict[str, Array](), dict[str, str]()
    for name, array in items:
        if name in tensors or name in quantized:
            raise ValueError(f"it holds {name} twice")
        if name.endswith(MULTIPLIER):
            continue
        if isinstance(array, str):
            quantized[name] = array
        elif name == SETTINGS:
            settings = array.tobytes().partition(b"\0")[0].decode()
        elif array.dtype.str in FLOATS:
            tensors[name] = _as_ours(name, array.astype(np.float32, copy=False))
        else:
            quantized[name] = array.dtype.name
    if settings is None:
        raise ValueError(f"it has no {SETTINGS}")
    return Archive(settings, tensors, quantized)


def read_settings(text: str, name: str) -> dict[str, Any]:
    """Return the keys of a YAML file of Marian; lists, texts and None are the values.

    Raises DamagedError, which calls the file ``name``, if it is something else.
    """
    tree = parse_yaml(text if len(text) <= MAX_BYTES else "", name)
    finding = str(tree.findings[0]) if tree.findings else f"{name}: it has no keys"
    if len(text) > MAX_BYTES:
        finding = f"{name}: it is longer than {MAX_BYTES:,} characters"
    if tree.findings or not isinstance(tree.value, dict):
        raise DamagedError(f"{finding}; it is damaged, or Marian did not write it.")
    return tree.value


def _refuse_large(entries: Sequence[zipfile.ZipInfo], size: int) -> None:
    """Raise ValueError if the entries are compressed, or overlap in a file of ``size`` bytes."""
    for entry in entries:
        if entry.compress_type != zipfile.ZIP_STORED:
            raise ValueError(f"{ascii(entry.filename)[:100]} is compressed; use numpy.savez")
    if sum(entry.file_size for entry in entries) > size:
        raise ValueError("its entries have more bytes than the file")


def _entry(data: bytes, name: str) -> NDArray[Any]:
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


OPTIMIZER = ".optimizer.npz"  # what training needs to go on
DECODER = "decoder.yml"  # the options of Marian's decoder, with the names of the vocabularies
MODELS = SENTENCEPIECE_FILES[0]  # beside vocabularies that are lists
SENTENCEPIECE = ".spm"
YAML = (".yml", ".yaml")
FACTORS = ".fsv"
WORDS: dict[Side, tuple[str, ...]] = {
    "source": ("src", "source", "srcvocab"),
    "target": ("trg", "target", "trgvocab"),
}


class MarianFiles(NamedTuple):
    """The files of a model."""

    weights: Path
    vocabularies: dict[Side, Path]
    sentencepiece: dict[Side, Path] | None  # None if the vocabularies are models, or for pieces

    def __str__(self) -> str:
        paths = [*self.vocabularies.values(), *(self.sentencepiece or {}).values()]
        return ", ".join(dict.fromkeys(str(path) for path in (self.weights, *paths)))


def find_weights(path: Path) -> Path:
    """Return the file of the weights, ``path`` or the only one in the folder ``path``."""
    if not path.is_dir():
        if not is_weights(path):
            raise UserError(
                f"{path} is no {WEIGHTS} file, and no {BINARY} file of marian-conv; of Marian's "
                "files only those can be imported."
            )
        return path
    return only_file(path, weights_in(path), f"file *{WEIGHTS} or *{BINARY}")


def weights_in(folder: Path) -> list[Path]:
    """Return the files of weights in a folder: .npz files, or .bin files if there are none."""
    exact = [each for each in folder.glob(f"*{WEIGHTS}") if not each.name.endswith(OPTIMIZER)]
    return exact or [each for each in folder.glob(f"*{BINARY}") if is_weights(each)]


def is_weights(path: Path) -> bool:
    """Return whether a file is an .npz file, or a .bin file that begins as Marian's do."""
    if path.suffix != BINARY:
        return path.suffix == WEIGHTS
    try:
        with path.open("rb") as stream:
            return stream.read(len(START)) == START
    except OSError:
        return False


def find_files(path: Path, files: TextFiles) -> MarianFiles:
    """Return the files of the model at ``path``; those that ``files`` names come first.

    Raises UserError if the vocabularies or models are not to be found, DamagedError if the options
    of the decoder are damaged.
    """
    weights = find_weights(path)
    vocabularies = _vocabularies(weights, files)
    for each in vocabularies.values():
        if each.suffix == FACTORS:
            raise UserError(f"{each} has factors, which cannot be imported.")
    are_models = {each.suffix == SENTENCEPIECE for each in vocabularies.values()}
    if len(are_models) > 1:
        raise UserError(
            f"{' and '.join(map(str, vocabularies.values()))} are of two kinds; both must be "
            f"{SENTENCEPIECE} files, or none."
        )
    if True in are_models:
        for option in (files.sentencepiece, files.target_sentencepiece):
            if option is not None:
                raise UserError(f"{option} has no use: the vocabularies are SentencePiece models.")
        return MarianFiles(weights, vocabularies, None)
    return MarianFiles(weights, vocabularies, _models(weights.parent, files))


def _vocabularies(weights: Path, files: TextFiles) -> dict[Side, Path]:
    if files.source_vocabulary is not None:
        target = files.target_vocabulary or files.source_vocabulary
        return {"source": files.source_vocabulary, "target": target}
    if files.target_vocabulary is not None:
        raise WrongUsageError("--target-vocabulary needs --source-vocabulary beside it.")
    names = _names_in_options(weights)
    paths = [weights.parent / name for name in names]
    if not names or not all(each.is_file() for each in paths):
        paths = _by_names(weights.parent)
    if not paths:
        raise UserError(
            f"{weights.parent} has no vocabularies that can be told apart by their names; name "
            "them with --source-vocabulary and --target-vocabulary."
        )
    return {"source": paths[0], "target": paths[-1]}


def _names_in_options(weights: Path) -> list[str]:
    """Return the names of the vocabularies in the options of the decoder; [] if there are none."""
    for name in (f"{weights.name}.{DECODER}", DECODER):
        path = weights.parent / name
        if not path.is_file():
            continue
        found = read_settings(read_text(path), str(path)).get("vocabs")
        if isinstance(found, list) and len(found) == len(WORDS):
            # The folders are those of the machine that trained it.
            return [Path(str(each)).name for each in found]
    return []


def _by_names(folder: Path) -> list[Path]:
    """Return the one vocabulary of a folder, or that of the source and that of the target."""
    found = [each for each in folder.iterdir() if _is_vocabulary(each)]
    if len(found) == 1:
        return found
    of_sides = [
        [each for each in found if not set(each.stem.split(".")).isdisjoint(words)]
        for words in WORDS.values()
    ]
    return [each[0] for each in of_sides] if all(len(each) == 1 for each in of_sides) else []


def _is_vocabulary(path: Path) -> bool:
    if path.suffix == SENTENCEPIECE:
        return path.name not in MODELS.values() and path.is_file()
    return path.suffix in (*YAML, ".json") and "vocab" in path.stem and path.is_file()


def _models(folder: Path, files: TextFiles) -> dict[Side, Path] | None:
    if (named := files.models()) is not None:
        return named
    found = {side: folder / name for side, name in MODELS.items()}
    missing = [path.name for path in found.values() if not path.is_file()]
    if len(missing) == 1:
        raise UserError(f"{folder} has no {missing[0]} beside the other language's model.")
    return None if missing else found
