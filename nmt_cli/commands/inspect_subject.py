"""What ``nmt-cli inspect`` looks at: a recipe, a model directory or a run, without its weights."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from nmt_cli import logs
from nmt_cli.atomic_files import read_manifest
from nmt_cli.corpus.binarized import BinarizedText, refuse_stale
from nmt_cli.corpus.tokenizer import load_tokenizer
from nmt_cli.costs.lengths import (
    ASSUMED_LENGTH,
    SentenceLengths,
    equal_pairs,
    sum_of_text,
)
from nmt_cli.errors import RecipeError, UserError
from nmt_cli.file_names import AVERAGE, CHECKPOINT_GLOB, CHECKPOINTS, RECIPE
from nmt_cli.folders import PREPARED, is_model, is_run, kind_of, what_to_give
from nmt_cli.missing_paths import expansion_hint
from nmt_cli.model_settings import read_settings
from nmt_cli.proposed_commands import as_argument, command
from nmt_cli.recipe.reader import SUFFIXES, RecipeFile, read_recipe
from nmt_cli.recipe.schema import ModelConfig, Recipe, TrainingConfig
from nmt_cli.recipe.shipped import is_near_shipped, shipped_file

Lengths = tuple[int, int]  # tokens of a source and of a target sentence


class Subject(NamedTuple):
    """An architecture, and what is known of its training and its text."""

    name: str
    architecture: ModelConfig
    vocabulary_size: int
    training: TrainingConfig | None  # None if the recipe of a model cannot be read
    lengths: SentenceLengths


def find_subject(
    name_or_path: str,
    overrides: Sequence[str] = (),
    *,
    vocabulary_size: int | None = None,
    lengths: Lengths | None = None,
) -> Subject:
    """Return what ``name_or_path`` means: a recipe, a model directory, a checkpoint or a run.

    Raises UserError if there is no such thing, if the size of a recipe's vocabulary is not known,
    or if ``overrides`` or ``vocabulary_size`` are given for a model.
    """
    path = Path(name_or_path)
    if path.is_dir() and shipped_file(name_or_path) is None:
        if overrides or vocabulary_size is not None:
            raise UserError(
                f"{path} is a folder, and --set and --vocabulary-size change a recipe; give the "
                "recipe, or leave them out."
            )
        return _of_folder(path, lengths)
    _refuse_missing(name_or_path)
    file = read_recipe(name_or_path, overrides)
    words = [word for override in overrides for word in ("--set", override)]
    preprocess = command("nmt-cli", "preprocess", as_argument(name_or_path), *words)
    return _of_recipe(file, preprocess, vocabulary_size, lengths)


def _refuse_missing(name_or_path: str) -> None:
    """Raise UserError for a missing path that is no more likely to be a recipe than a model."""
    path = Path(name_or_path)
    is_name = "/" not in name_or_path or shipped_file(name_or_path) is not None
    if is_name or path.suffix in SUFFIXES or is_near_shipped(name_or_path) or path.exists():
        return
    raise UserError(
        f"{path} not found{expansion_hint(path)}; give a recipe, a model directory, a checkpoint "
        "or a run directory."
    )


def _of_folder(path: Path, lengths: Lengths | None) -> Subject:
    """Return the model of ``path``, or the newest one in the run ``path``."""
    if not is_model(path) and not is_run(path):
        raise UserError(what_to_give(path, "model"))
    models = [path] if is_model(path) else _models_of(path)
    if not models:
        file = read_recipe(str(path / RECIPE))
        preprocess = command("nmt-cli", "preprocess", path / RECIPE)
        return _of_recipe(file, preprocess, None, lengths)
    model = models[-1]
    settings = read_settings(model, read_manifest(model))
    recipe = _recorded_recipe(model)
    size = settings.vocabulary_size or load_tokenizer(model, settings.text).size
    return Subject(
        name=str(path),
        architecture=settings.architecture,
        vocabulary_size=size,
        training=recipe.training if recipe is not None else None,
        lengths=_chosen_lengths(lengths),
    )


def _models_of(run: Path) -> list[Path]:
    """Return the checkpoints of ``run`` and its average, which comes last; none is verified."""
    candidates = [*sorted((run / CHECKPOINTS).glob(CHECKPOINT_GLOB)), run / AVERAGE]
    return [candidate for candidate in candidates if is_model(candidate)]


def _recorded_recipe(model: Path) -> Recipe | None:
    try:
        return read_recipe(str(model / RECIPE)).recipe
    except RecipeError:  # a record of another version; using the model does not need it
        return None


def _of_recipe(
    file: RecipeFile, preprocess: str, vocabulary_size: int | None, lengths: Lengths | None
) -> Subject:
    recipe = file.recipe
    prepared = _prepared(file, preprocess)
    size = vocabulary_size or (prepared or {}).get("vocabulary_size")
    if size is None and recipe.tokenizer.type == "sentencepiece":
        size = recipe.tokenizer.vocabulary_size
    if size is None:
        raise UserError(
            f"{file.path}: the size of the vocabulary is known only after the text is prepared. "
            f"Give it with --vocabulary-size N, or run: {preprocess}"
        )
    chosen = _chosen_lengths(lengths)
    if prepared is not None:
        text = _lengths_of(file.prepared, recipe, prepared)
        chosen = text if lengths is None else chosen._replace(pairs_per_epoch=text.pairs_per_epoch)
    return Subject(file.name, recipe.model, size, recipe.training, chosen)


def _prepared(file: RecipeFile, preprocess: str) -> dict[str, Any] | None:
    """Return the manifest of the recipe's prepared text; None if there is none that fits it."""
    if kind_of(file.prepared) != PREPARED:
        return None
    try:
        manifest = read_manifest(file.prepared)
        refuse_stale(file.prepared, manifest, file.recipe, preprocess)
    except UserError as error:
        logs.warning(f"{file.prepared} is not used: {error}")
        return None
    return manifest


def _chosen_lengths(lengths: Lengths | None) -> SentenceLengths:
    if lengths is None:
        return equal_pairs(ASSUMED_LENGTH, ASSUMED_LENGTH, "assumed")
    return equal_pairs(*lengths, "given")


def _lengths_of(prepared: Path, recipe: Recipe, manifest: dict[str, Any]) -> SentenceLengths:
    source, target = (
        BinarizedText.open(prepared, f"train.{side}").lengths for side in ("source", "target")
    )
    sizes, corpora = manifest["corpus_sizes"], recipe.data.train
    pairs = sum(corpus.weight * size for corpus, size in zip(corpora, sizes, strict=True))
    return SentenceLengths(sum_of_text(source, target), len(source), str(prepared), pairs)
