"""What ``nmt-cli inspect`` looks at: a recipe, a model directory or a run."""

from collections.abc import Sequence
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from nmt_cli.corpus.binarized import BinarizedText
from nmt_cli.corpus.prepared import refuse_stale
from nmt_cli.corpus.tokenizers.normalization import SIDES
from nmt_cli.costs import flops as costs
from nmt_cli.files.atomic_files import read_manifest
from nmt_cli.files.file_names import (
    AVERAGE,
    CHECKPOINT_GLOB,
    CHECKPOINTS,
    LEXICON,
    RECIPE,
    RECIPE_SUFFIXES,
)
from nmt_cli.files.folders import (
    PREPARED,
    is_model,
    is_run,
    kind_of,
    recipes_meant,
    runs_meant,
)
from nmt_cli.messages import logs
from nmt_cli.messages.errors import RecipeError, UserError
from nmt_cli.messages.proposals import any_of, as_argument, command, where_missing
from nmt_cli.recipe.model_values import ModelShape
from nmt_cli.recipe.reading.reader import RecipeFile, read_recipe
from nmt_cli.recipe.reading.shipped import is_near_shipped, shipped_file
from nmt_cli.recipe.sections.training import TrainingConfig
from nmt_cli.saved.model_directory import Model, find_model, use_model

WHAT_IS_INSPECTED = "a recipe, a model directory, a checkpoint or a run directory"
Lengths = tuple[int, int]  # tokens of a source and of a target sentence


class InspectedModel(NamedTuple):
    """An architecture, and what is known of its training and its text."""

    name: str
    architecture: ModelShape
    vocabulary_size: int
    training: TrainingConfig | None  # None if the recipe of a model cannot be read
    lengths: costs.SentenceLengths
    lexicon: dict[str, Any] | None = None  # its bytes, and whether shortlists are the default
    num_characters: int | None = None  # that its sources had in training; None if not known


def find_subject(
    name_or_path: str,
    overrides: Sequence[str],
    vocabulary_size: int | None,
    lengths: Lengths | None,
) -> InspectedModel:
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
    """Raise UserError for a missing path that does not look like a recipe, or is the name of a run.

    For one that looks like a recipe, reading it raises the error.
    """
    path = Path(name_or_path)
    if path.exists() or shipped_file(name_or_path) is not None:
        return
    runs = [] if path.suffix in RECIPE_SUFFIXES else runs_meant(path)
    if not runs and (
        "/" not in name_or_path
        or path.suffix in RECIPE_SUFFIXES
        or is_near_shipped(name_or_path)
        or recipes_meant(path)
    ):
        return
    meant = [*(each for each in recipes_meant(path) if each.name != RECIPE), *runs]
    give = any_of([*map(as_argument, meant)]) if meant else WHAT_IS_INSPECTED
    text = f"{path} not found{where_missing(path)}; give {give}."
    raise UserError(text).proposing(name_or_path, meant)


def _of_folder(path: Path, lengths: Lengths | None) -> InspectedModel:
    """Return the model of ``path``, or the recipe of a run that has no model yet."""
    preprocess = command("nmt-cli", "preprocess", path / RECIPE)
    models = ((path / CHECKPOINTS).glob(CHECKPOINT_GLOB), [path / AVERAGE])
    if is_run(path) and not any(map(is_model, chain(*models))):
        return _of_recipe(read_recipe(str(path / RECIPE)), preprocess, None, lengths)
    settings, lexicon = use_model(path, lambda model: (model.settings, _lexicon_as_json(model)))
    file = text = None
    with suppress(RecipeError):  # a record of another version; using the model does not need it
        file = read_recipe(str(path / RECIPE))
        text = _prepared_text(file, preprocess)
    return InspectedModel(
        name=str(path),
        architecture=settings.architecture,
        vocabulary_size=settings.vocabulary_size,
        training=file.recipe.training if file is not None else None,
        lengths=_chosen_lengths(lengths, text, settings.architecture.attention_window),
        lexicon=lexicon,
        num_characters=None if settings.characters is None else len(settings.characters),
    )


def _lexicon_as_json(model: Model) -> dict[str, Any] | None:
    if LEXICON not in model.manifest["files"]:
        return None
    size = model.manifest["files"][LEXICON]["bytes"]
    return {"bytes": size, "uses_shortlist": model.uses_shortlist}


def _of_recipe(
    file: RecipeFile, preprocess: str, vocabulary_size: int | None, lengths: Lengths | None
) -> InspectedModel:
    recipe, text = file.recipe, _prepared_text(file, preprocess)
    size = vocabulary_size
    if size is None and text is not None:
        size = text.vocabulary_size
    if size is None and recipe.origin is not None and is_model(recipe.origin):
        size = find_model(recipe.origin).settings.vocabulary_size
    if size is None and recipe.tokenizer.type == "sentencepiece":
        size = recipe.tokenizer.vocabulary_size
    if size is None:
        raise UserError(
            f"{file.path}: the size of the vocabulary is known only after the text is prepared. "
            f"Give it with --vocabulary-size N, or run: {preprocess}"
        )
    architecture = recipe.model
    chosen = _chosen_lengths(lengths, text, architecture.attention_window)
    if not recipe.tokenizer.shared and architecture.source_vocabulary_size is None:
        own = size if text is None else text.source_vocabulary_size
        architecture = architecture.model_copy(update={"source_vocabulary_size": own})
    return InspectedModel(file.name, architecture, size, recipe.training, chosen)


class _PreparedText(NamedTuple):
    vocabulary_size: int
    source_vocabulary_size: int | None  # None if both languages share a vocabulary
    lengths: costs.SentenceLengths


def _prepared_text(file: RecipeFile, preprocess: str) -> _PreparedText | None:
    """Return what is known of the recipe's prepared text; None if there is none that fits it."""
    prepared = file.prepared
    if kind_of(prepared) != PREPARED:
        return None
    try:
        manifest = read_manifest(prepared)
        refuse_stale(prepared, manifest, file.recipe, preprocess)
        source, target = (BinarizedText.open(prepared, f"train.{side}").lengths for side in SIDES)
    except UserError as error:
        logs.warning(f"{prepared} is not used: {error}")
        return None
    sizes = manifest["corpus_sizes"]
    weights = file.recipe.data.weights(sizes)
    pairs_per_epoch = sum(w * size for w, size in zip(weights, sizes, strict=True))
    if file.recipe.tokenizer.sampling is not None or file.recipe.data.is_augmented:
        logs.warning(
            f"the lengths are those of the plain pieces in {prepared}; tokenizer.sampling and "
            "augment make more pieces, so training takes longer than these figures say."
        )
    window = file.recipe.model.attention_window
    lengths = costs.lengths_of_text(source, target, window, str(prepared), pairs_per_epoch)
    own = manifest.get("source_vocabulary_size")
    return _PreparedText(manifest["vocabulary_size"], own, lengths)


def _chosen_lengths(
    lengths: Lengths | None, text: _PreparedText | None, window: int | None
) -> costs.SentenceLengths:
    if lengths is None and text is not None:
        return text.lengths
    origin = "assumed" if lengths is None else "given"
    source, target = lengths or (costs.ASSUMED_LENGTH, costs.ASSUMED_LENGTH)
    pairs_per_epoch = None if text is None else text.lengths.pairs_per_epoch
    sums = costs.sum_lengths([source], [target], window)
    return costs.SentenceLengths(sums, 1, origin, pairs_per_epoch)
