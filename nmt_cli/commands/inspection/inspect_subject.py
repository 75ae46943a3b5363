"""What ``nmt-cli inspect`` looks at: a recipe, a model directory or a run, without its weights."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from nmt_cli.corpus.binarized import BinarizedText, refuse_stale
from nmt_cli.corpus.tokenizers.tokenizer import load_tokenizer
from nmt_cli.costs.training_time import (
    ASSUMED_LENGTH,
    SentenceLengths,
    equal_pairs,
    sum_of_text,
)
from nmt_cli.files.atomic_files import read_manifest
from nmt_cli.files.file_names import AVERAGE, CHECKPOINT_GLOB, CHECKPOINTS, RECIPE
from nmt_cli.files.folders import PREPARED, is_model, is_run, kind_of, what_to_give
from nmt_cli.messages import logs
from nmt_cli.messages.errors import RecipeError, UserError
from nmt_cli.messages.proposals import as_argument, command, missing_hint
from nmt_cli.recipe.model_config import ModelConfig
from nmt_cli.recipe.model_settings import read_settings
from nmt_cli.recipe.reader import SUFFIXES, RecipeFile, read_recipe
from nmt_cli.recipe.schema import TrainingConfig
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
        f"{path} not found{missing_hint(path)}; give a recipe, a model directory, a checkpoint "
        "or a run directory."
    )


def _of_folder(path: Path, lengths: Lengths | None) -> Subject:
    """Return the model of ``path``, or the newest one in the run ``path``."""
    if not is_model(path) and not is_run(path):
        raise UserError(what_to_give(path, "model"))
    models = [path] if is_model(path) else _models_of(path)
    preprocess = command("nmt-cli", "preprocess", path / RECIPE)
    if not models:
        return _of_recipe(read_recipe(str(path / RECIPE)), preprocess, None, lengths)
    settings = read_settings(models[-1], read_manifest(models[-1]))
    file = _recorded_recipe(path)
    text = _prepared_text(file, preprocess) if file is not None else None
    return Subject(
        name=str(path),
        architecture=settings.architecture,
        vocabulary_size=settings.vocabulary_size or load_tokenizer(models[-1], settings.text).size,
        training=file.recipe.training if file is not None else None,
        lengths=_chosen_lengths(lengths, text),
    )


def _models_of(run: Path) -> list[Path]:
    """Return the checkpoints of ``run`` and its average, which comes last; none is verified."""
    candidates = [*sorted((run / CHECKPOINTS).glob(CHECKPOINT_GLOB)), run / AVERAGE]
    return [candidate for candidate in candidates if is_model(candidate)]


def _recorded_recipe(folder: Path) -> RecipeFile | None:
    try:
        return read_recipe(str(folder / RECIPE))
    except RecipeError:  # a record of another version; using the model does not need it
        return None


def _of_recipe(
    file: RecipeFile, preprocess: str, vocabulary_size: int | None, lengths: Lengths | None
) -> Subject:
    recipe, text = file.recipe, _prepared_text(file, preprocess)
    size = vocabulary_size
    if size is None and text is not None:
        size = text.vocabulary_size
    if size is None and recipe.origin is not None and is_model(recipe.origin):
        size = read_settings(recipe.origin, read_manifest(recipe.origin)).vocabulary_size or None
    if size is None and recipe.tokenizer.type == "sentencepiece":
        size = recipe.tokenizer.vocabulary_size
    if size is None:
        raise UserError(
            f"{file.path}: the size of the vocabulary is known only after the text is prepared. "
            f"Give it with --vocabulary-size N, or run: {preprocess}"
        )
    chosen = _chosen_lengths(lengths, text)
    return Subject(file.name, recipe.model, size, recipe.training, chosen)


class _PreparedText(NamedTuple):
    vocabulary_size: int
    lengths: SentenceLengths


def _prepared_text(file: RecipeFile, preprocess: str) -> _PreparedText | None:
    """Return what is known of the recipe's prepared text; None if there is none that fits it."""
    prepared = file.prepared
    if kind_of(prepared) != PREPARED:
        return None
    try:
        manifest = read_manifest(prepared)
        refuse_stale(prepared, manifest, file.recipe, preprocess)
        source, target = (
            BinarizedText.open(prepared, f"train.{side}").lengths for side in ("source", "target")
        )
    except UserError as error:
        logs.warning(f"{prepared} is not used: {error}")
        return None
    corpora = zip(file.recipe.data.train, manifest["corpus_sizes"], strict=True)
    pairs_per_epoch = sum(corpus.weight * size for corpus, size in corpora)
    if file.recipe.tokenizer.sampling is not None:
        logs.warning(
            f"the lengths are those of the plain pieces in {prepared}; tokenizer.sampling draws "
            "more pieces, so training takes longer than these figures say."
        )
    sums = sum_of_text(source, target)
    lengths = SentenceLengths(sums, len(source), str(prepared), pairs_per_epoch)
    return _PreparedText(manifest["vocabulary_size"], lengths)


def _chosen_lengths(lengths: Lengths | None, text: _PreparedText | None) -> SentenceLengths:
    if lengths is not None:
        pairs_per_epoch = text.lengths.pairs_per_epoch if text is not None else None
        return equal_pairs(*lengths, "given")._replace(pairs_per_epoch=pairs_per_epoch)
    if text is not None:
        return text.lengths
    return equal_pairs(ASSUMED_LENGTH, ASSUMED_LENGTH, "assumed")
