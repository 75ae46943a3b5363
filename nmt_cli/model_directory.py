"""Model directories; reading one needs no torch.

config.json        the settings that using the model requires (``recipe.model_settings``)
tokenizer.model    or vocabulary.txt
model.safetensors  the weights
manifest.json      checksums, and what the model was made of
recipe.yaml        a record of how it was trained; loading does not read it
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from nmt_cli.checkpoints import read_model
from nmt_cli.corpus.tokenizers.tokenizer import Tokenizer, load_tokenizer
from nmt_cli.costs.parameters import parameter_shapes
from nmt_cli.files.atomic_files import Partial
from nmt_cli.files.file_names import CONFIG, RECIPE, TOKENIZER_FILES, WEIGHTS
from nmt_cli.files.folders import verify_model
from nmt_cli.files.formats import INT8
from nmt_cli.messages.errors import DamagedError
from nmt_cli.model.stored_weights import Array, StoredWeights, as_bytes
from nmt_cli.recipe.model_settings import ModelSettings, as_json, read_settings

if TYPE_CHECKING:
    from nmt_cli.model.transformer import Transformer

Used = TypeVar("Used")


class ModelFiles(NamedTuple):
    """The content of a model directory whose checksums are right."""

    settings: ModelSettings
    tokenizer: Tokenizer
    weights: StoredWeights  # each is read when it is taken
    path: Path
    manifest: dict[str, Any]


class LoadedModel(NamedTuple):
    """A model of PyTorch ready for use."""

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
    weights: Mapping[str, Array],
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
    with (partial.path / WEIGHTS).open("wb") as stream:  # a stream's errors have an errno
        stream.write(as_bytes(weights, in_int8=precision == "int8"))


def open_model(path: Path, use: Callable[[ModelFiles], Used]) -> Used:
    """Return what ``use`` makes of the model of ``path``: a model directory, a checkpoint or a run.

    Raises UserError if there is no model, DamagedError if a file of it is damaged.
    """
    return read_model(path, lambda directory: use(_files_of(directory)))


def load_model(path: Path) -> LoadedModel:
    """Return the model of ``path`` in PyTorch, on the CPU; raises as ``open_model`` does."""
    from nmt_cli.model.transformer import build_transformer  # it imports torch

    def load(files: ModelFiles) -> LoadedModel:
        settings, tokenizer, weights, path, manifest = files
        model = build_transformer(settings.architecture, tokenizer.size, weights)
        return LoadedModel(settings, tokenizer, model, path, manifest)

    return open_model(path, load)


def _files_of(directory: Path) -> ModelFiles:
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
    wanted = parameter_shapes(settings.architecture, settings.vocabulary_size)
    weights = StoredWeights(directory / WEIGHTS, wanted)
    return ModelFiles(settings, tokenizer, weights, directory, manifest)
