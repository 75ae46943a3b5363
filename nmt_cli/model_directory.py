"""Model directories.

config.json        the settings that using the model requires (``recipe.model_settings``)
tokenizer.model    or vocabulary.txt
model.safetensors  the weights
manifest.json      checksums, and what the model was made of
recipe.yaml        a record of how it was trained; loading does not read it
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import safetensors
import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor

from nmt_cli.checkpoints import read_model
from nmt_cli.corpus.tokenizers.tokenizer import Tokenizer, load_tokenizer
from nmt_cli.files.atomic_files import Partial
from nmt_cli.files.file_names import CONFIG, RECIPE, TOKENIZER_FILES, WEIGHTS
from nmt_cli.files.folders import verify_model
from nmt_cli.files.formats import INT8
from nmt_cli.messages.errors import DamagedError
from nmt_cli.model.cpu_products import as_fp32, as_int8
from nmt_cli.model.format_1 import weights_of_today
from nmt_cli.model.no_draws import NoDraws
from nmt_cli.model.transformer import Transformer
from nmt_cli.recipe.model_settings import ModelSettings, as_json, read_settings


class LoadedModel(NamedTuple):
    """A model ready for use."""

    settings: ModelSettings
    tokenizer: Tokenizer
    model: Transformer  # in evaluation mode, fp32, on the device asked for
    path: Path
    manifest: dict[str, Any]


def save_model(
    partial: Partial,
    settings: ModelSettings,
    recipe: bytes,
    tokenizer: Tokenizer,
    weights: Mapping[str, Tensor],
    precision: str = "fp32",
) -> None:
    """Write the files of a model into ``partial``; the caller adds the facts.

    ``recipe`` is the content of the recipe file with which the model was trained. With
    ``precision`` int8, matrices take a quarter of the bytes.
    """
    partial.facts["format_version"] = INT8 if precision == "int8" else settings.format_version
    (partial.path / CONFIG).write_bytes(as_json(settings).encode())
    (partial.path / RECIPE).write_bytes(recipe)
    tokenizer.save(partial.path)
    tensors = {name: weight.detach().cpu().contiguous() for name, weight in weights.items()}
    if precision == "int8":
        tensors = as_int8(tensors)
    with (partial.path / WEIGHTS).open("wb") as stream:  # a stream's errors have an errno
        stream.write(safetensors.torch.save(tensors))


def load_model(path: Path, device: torch.device | str = "cpu") -> LoadedModel:
    """Return the model of ``path``: a model directory, a checkpoint or a run.

    Raises UserError if there is no model, DamagedError if a file of it is damaged.
    """
    return read_model(path, lambda directory: _load(directory, device))


def _load(directory: Path, device: torch.device | str) -> LoadedModel:
    manifest = verify_model(directory)
    described_by = RECIPE if manifest["format_version"] == 1 else CONFIG
    for names in ((described_by,), (WEIGHTS,), TOKENIZER_FILES):
        if not any(name in manifest["files"] for name in names):
            raise DamagedError(f"{directory} is damaged: its manifest names no {names[0]}.")
    settings = read_settings(directory, manifest)
    tokenizer = load_tokenizer(directory, settings.text)
    settings = settings._replace(vocabulary_size=settings.vocabulary_size or tokenizer.size)
    if settings.vocabulary_size != tokenizer.size:
        raise DamagedError(
            f"{directory} is damaged: its tokenizer has {tokenizer.size:,} pieces, {CONFIG} says "
            f"{settings.vocabulary_size:,}."
        )
    if settings.architecture.source_vocabulary_size != tokenizer.source_size:
        raise DamagedError(
            f"{directory} is damaged: the source's own vocabulary has {tokenizer.source_size} "
            f"pieces, {CONFIG} says {settings.architecture.source_vocabulary_size}."
        )
    weights = read_weights(directory, settings)
    with NoDraws():
        model = Transformer(settings.architecture, tokenizer.size)
    check_weights(model, weights, directory)
    for name, parameter in model.named_parameters():
        parameter.data = weights[name]
    return LoadedModel(settings, tokenizer, model.to(device).eval(), directory, manifest)


def read_weights(directory: Path, settings: ModelSettings | None = None) -> dict[str, Tensor]:
    """Return the tensors of the verified model in ``directory``, under today's names.

    With ``settings``, names and shapes in the file's header are checked before memory is allocated.
    Raises DamagedError if they differ or the file cannot be read.
    """
    path = directory / WEIGHTS
    try:
        if settings is not None:
            refuse_other_shapes(path, settings)
        return weights_of_today(as_fp32(read_tensors(path)))
    except (OSError, SafetensorError, ValueError, KeyError) as error:
        raise DamagedError(f"{path} cannot be read: {error}.") from None


def refuse_other_shapes(path: Path, settings: ModelSettings) -> None:
    """Raise DamagedError if a file of weights has other tensors than a model of ``settings``."""
    found = weights_of_today(as_fp32(read_shapes(path)))
    stacks = (settings.architecture.encoder, settings.architecture.decoder)
    num_layers = max(stack.num_layers for stack in stacks)
    if num_layers > len(found):
        raise DamagedError(
            f"{path} does not fit its {CONFIG}: it has {len(found):,} tensors for "
            f"{num_layers:,} layers."
        )
    with torch.device("meta"), NoDraws():
        model = Transformer(settings.architecture, settings.vocabulary_size)
    _refuse_different(dict(model.named_parameters()), found, path)


def load_weights(model: Transformer, weights: Mapping[str, Tensor], directory: Path) -> None:
    """Copy ``weights`` into ``model``; raises as ``check_weights`` does."""
    check_weights(model, weights, directory)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(weights[name])


def check_weights(model: Transformer, weights: Mapping[str, Tensor], directory: Path) -> None:
    """Raise DamagedError if ``weights`` do not fit ``model``, or if a value is not finite."""
    _refuse_different(dict(model.named_parameters()), weights, directory / WEIGHTS)
    for name, weight in weights.items():
        # The sum takes less time; that of finite numbers may be infinite.
        if not weight.sum().isfinite() and not weight.isfinite().all():
            raise DamagedError(f"{directory / WEIGHTS} is damaged: {name} is not finite.")


def _refuse_different(
    parameters: Mapping[str, Tensor], weights: Mapping[str, Tensor], path: Path
) -> None:
    if missing := sorted(parameters.keys() ^ weights.keys()):
        raise DamagedError(
            f"{path} does not fit its model: {', '.join(missing[:3])} is in one and not in the "
            "other."
        )
    for name, parameter in parameters.items():
        weight = weights[name]
        if weight.shape != parameter.shape or weight.dtype != parameter.dtype:
            raise DamagedError(
                f"{path} does not fit its model: {name} is {weight.dtype} {list(weight.shape)}, "
                f"not {parameter.dtype} {list(parameter.shape)}."
            )


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
