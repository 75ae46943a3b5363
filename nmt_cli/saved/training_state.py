"""Checkpoints of a run: saving, pruning, reading back with checks, and their mean."""

import errno
import math
import shutil
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from nmt_cli.corpus.prepared import PreparedCorpus
from nmt_cli.files.atomic_files import (
    REMEDIES,
    directory_appearing_whole,
    remove_directory,
    rewrite_manifest_without,
    verify,
)
from nmt_cli.files.file_names import CHECKPOINTS, TRAINING_STATE, WEIGHTS
from nmt_cli.messages import logs
from nmt_cli.messages.errors import DamagedError, OutputError, UserError, means_full_memory
from nmt_cli.model.compiled.c_library import Array
from nmt_cli.model.stored_weights import StoredWeights, check_weights
from nmt_cli.model.transformer import Transformer
from nmt_cli.optimization import Adam, MovingAverage
from nmt_cli.recipe.model_settings import settings_of
from nmt_cli.recipe.reading.recipe_files import dump_recipe
from nmt_cli.recipe.schema import Recipe
from nmt_cli.saved.checkpoints import Checkpoint, best_checkpoint, checkpoint_name, list_checkpoints
from nmt_cli.saved.model_directory import save_model

RESUMABLE_KEPT = 2  # a damaged newest one must leave another to fall back to
SPARE_SPACE = 1.2  # times the bytes of a checkpoint, free before one is written

CheckpointKind = Literal["regular", "final", "safety"]
Moments = Mapping[int, dict[str, Tensor]]  # Adam's state of each parameter, by its number


@dataclass
class Progress:
    """The counters of a training; recipe and counters determine all batches that follow."""

    step: int = 0  # optimizer updates
    batch_index: int = 0  # batches of the plan that were used or skipped
    target_tokens: int = 0
    skipped: list[int] = field(default_factory=list)  # batch indices, of the last thousand
    num_skipped: int = 0
    best_quality: float | None = None
    best_nll: float | None = None  # of the same validation; decides where BLEU or F1 are equal
    validations_without_improvement: int = 0
    validated_step: int = 0
    script: str | None = None  # --validation-script, whose number is the quality
    quality_since: int = 0  # best quality and patience count only validations after this step
    stage: int = 0  # index in data.stages; the next three are where this stage began
    stage_step: int = 0
    stage_epoch: int = 0
    stage_batch: int = 0


class LastSaved(NamedTuple):
    """The checkpoint that was saved last."""

    step: int = 0
    kind: CheckpointKind = "safety"
    is_measured: bool = False  # with the figures of its validation


@dataclass
class TrainingState:
    """Everything that training changes, and that a checkpoint saves and restores."""

    model: Transformer
    optimizer: Adam
    progress: Progress = field(default_factory=Progress)
    average: MovingAverage | None = None  # its weights are then the checkpoint's model
    validation: Mapping[str, Any] | None = None  # figures of the current step, once it is measured
    origin: Mapping[str, Any] | None = None  # the model from which --init-from took the weights
    saved: LastSaved = field(default_factory=LastSaved)  # last, or what training was resumed from


class CheckpointContents(NamedTuple):
    """What a checkpoint saves of a training."""

    progress: Progress
    trained: dict[str, Tensor]  # weights
    average: dict[str, Tensor] | None
    moments: Moments

    @classmethod
    def of(cls, state: TrainingState, *, are_copied: bool = False) -> "CheckpointContents":
        """Return the contents of ``state``; if they ``are_copied`` to the CPU, it may change."""

        def kept(tensors: Mapping[Any, Tensor]) -> dict[Any, Tensor]:
            tensors = {name: tensor.detach() for name, tensor in tensors.items()}
            if not are_copied:
                return tensors
            return {name: each.to("cpu", copy=True) for name, each in tensors.items()}

        # Without the settings of the optimizer, which come from the recipe.
        moments = (state.optimizer.state[parameter] for parameter in state.model.parameters())
        return cls(
            deepcopy(state.progress),
            kept(dict(state.model.named_parameters())),
            None if state.average is None else kept(state.average.weights()),
            {index: kept(of_weight) for index, of_weight in enumerate(moments)},
        )


def save_checkpoint(
    run_dir: Path,
    contents: CheckpointContents,
    recipe: Recipe,
    corpus: PreparedCorpus,
    entries: dict[str, Any],
) -> None:
    """Write the checkpoint of a step of a training on ``corpus``, with ``entries`` in its manifest.

    Raises UserError if a weight is not finite, and OutputError if the disk is full; earlier
    checkpoints stay as they were.
    """
    step, trained, average = contents.progress.step, contents.trained, contents.average
    for name, weight in trained.items():
        if not weight.isfinite().all():
            raise UserError(
                f"{name} is not finite after step {step:,}; nothing was saved. "
                "Lower training.learning_rate_factor (or peak_learning_rate) or set "
                "training.clip_norm, and continue with --resume."
            )
    directory = run_dir / CHECKPOINTS / checkpoint_name(step)
    _require_space(run_dir, trained, copies=3 if average is None else 4)
    saved = {"optimizer": contents.moments, "progress": asdict(contents.progress)}
    if average is not None:
        saved["trained_weights"] = trained
    weights = trained if average is None else average
    with directory_appearing_whole(directory, replace=True) as partial:
        tokenizer = corpus.tokenizer
        learnt = corpus.labels, corpus.characters, corpus.single_sentences
        settings = settings_of(recipe, tokenizer.size, *learnt)
        arrays = {name: weight.cpu().numpy() for name, weight in weights.items()}
        save_model(partial, settings, dump_recipe(recipe).encode(), tokenizer, arrays)
        with (partial.path / TRAINING_STATE).open("wb") as stream:
            _write(saved, stream)
        partial.manifest.update(entries)


def _write(saved: dict[str, Any], stream: BinaryIO) -> None:
    try:
        torch.save(saved, stream)
    except RuntimeError as error:
        if isinstance(error.__context__, OSError):  # torch replaces the error of a full disk
            raise error.__context__ from None
        raise


def load_newest(run_dir: Path, state: TrainingState) -> Checkpoint:
    """Restore ``state`` from the newest undamaged checkpoint; return that checkpoint.

    Logs a warning for each damaged one. Raises UserError if none is left, or if no release saved
    the newest one.
    """
    for checkpoint in reversed(list_checkpoints(run_dir)):
        if TRAINING_STATE not in checkpoint.manifest["files"]:
            continue
        if "epoch" not in checkpoint.manifest:  # the last fact that manifests got before 0.2.0
            raise UserError(
                f"{checkpoint.path} cannot be resumed from: it was saved before release 0.2.0 of "
                "nmt-cli. That release resumes it, and this one what that saves; or choose another "
                "--run-dir to train from the beginning."
            )
        try:
            _restore(checkpoint, state)
        except DamagedError as error:
            logs.warning(f"{error} Trying the checkpoint before it.")
            continue
        return checkpoint
    raise UserError(
        f"{run_dir / CHECKPOINTS} holds no undamaged checkpoint to resume from; "
        "choose another --run-dir to train from the beginning."
    )


def prune(run_dir: Path, keep_for_average: int, step: int) -> None:
    """Remove checkpoints up to ``step`` except the best, and those to average or to resume from.

    Later checkpoints are damaged, because training was resumed from an earlier one. They must not
    be kept in place of undamaged ones.
    """
    checkpoints = [c for c in list_checkpoints(run_dir) if c.step <= step]
    resumable = checkpoints[-RESUMABLE_KEPT:]
    averaged = [c for c in checkpoints if c.enters_average][-keep_for_average:]
    kept = {c.path for c in [*resumable, *averaged, best_checkpoint(checkpoints)] if c}
    for checkpoint in checkpoints:
        if checkpoint.path not in kept:
            remove_directory(checkpoint.path)
        elif checkpoint not in resumable and TRAINING_STATE in checkpoint.manifest["files"]:
            rewrite_manifest_without(checkpoint.path, TRAINING_STATE)


def _restore(checkpoint: Checkpoint, state: TrainingState) -> None:
    verify(checkpoint.path)
    path = checkpoint.path / TRAINING_STATE
    try:
        saved = torch.load(path, map_location="cpu", weights_only=True)
        moments = _checked_moments(saved["optimizer"], state, path)
        progress = Progress(**saved["progress"])
        saved_weights = saved["trained_weights"] if state.average is not None else {}
        trained = {name: each.numpy() for name, each in saved_weights.items()}
    except DamagedError:
        raise
    except Exception as error:  # torch.load names no narrower set
        if means_full_memory(error):
            raise
        raise DamagedError(f"{path} cannot be read: {error}.") from None
    if progress.step != checkpoint.step:
        raise DamagedError(f"{path} is of step {progress.step:,}, not {checkpoint.step:,}.")
    wanted = {name: tuple(each.shape) for name, each in state.model.named_parameters()}
    weights = dict(StoredWeights(checkpoint.path / WEIGHTS, wanted))
    if state.average is not None:
        check_weights(wanted, trained, path)
        state.average.restore({name: torch.from_numpy(each) for name, each in weights.items()})
        weights = trained
    with torch.no_grad():
        for name, parameter in state.model.named_parameters():
            parameter.copy_(torch.from_numpy(weights[name]))
    for index, parameter in enumerate(state.model.parameters()):
        of_weight = {name: moment.to(parameter.device) for name, moment in moments[index].items()}
        state.optimizer.state[parameter] = of_weight
    state.progress = progress
    state.validation = checkpoint.manifest.get("validation")
    state.origin = checkpoint.manifest.get("initialized_from")


def _checked_moments(moments: Moments, state: TrainingState, path: Path) -> Moments:
    parameters = list(state.model.named_parameters())
    if sorted(moments) != list(range(len(parameters))):
        raise DamagedError(f"{path} has moments of {len(moments)} weights, not {len(parameters)}.")
    for index, (name, parameter) in enumerate(parameters):
        for moment in state.optimizer.moments_of(parameter):
            tensor = moments[index][moment]
            fits = tensor.shape == parameter.shape and tensor.dtype == parameter.dtype
            if not (fits and tensor.is_contiguous() and tensor.isfinite().all()):
                raise DamagedError(f"{path} is damaged: {moment} of {name} does not fit.")
    return moments


def _require_space(run_dir: Path, weights: Mapping[str, Tensor], copies: int) -> None:
    """Raise OutputError if the disk has no space for ``copies`` of the weights."""
    needed = copies * SPARE_SPACE * sum(weight.nbytes for weight in weights.values())
    run_dir.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(run_dir).free
    if free < needed:
        # Rounded up and down, so that the two numbers differ.
        raise OutputError(
            f"no space for a checkpoint in {run_dir}: {math.ceil(needed / 2**20):,} MiB needed, "
            f"{free >> 20:,} MiB free. Nothing was removed to make room",
            REMEDIES[errno.ENOSPC],
        )


def mean_weights(directories: Sequence[Path]) -> dict[str, Array]:
    """Return the mean weights of verified models, in any order.

    They are summed in fp64, so the order does not change the rounded result. Raises UserError if
    the models do not have the same weights.
    """
    sums = {
        name: weight.astype(np.float64)
        for name, weight in StoredWeights(directories[0] / WEIGHTS).items()
    }
    with logs.progress("average", "checkpoints", len(directories), 1) as bar:
        for directory in directories[1:]:
            weights = StoredWeights(directory / WEIGHTS)
            for name in sorted(sums.keys() | weights.keys()):
                weight = weights.get(name)
                if weight is None or name not in sums or weight.shape != sums[name].shape:
                    raise UserError(
                        f"{directory / WEIGHTS} does not fit {directories[0] / WEIGHTS}: "
                        f"{name} is not the same in both."
                    )
                sums[name] += weight
            bar.advance()
    return {name: (total / len(directories)).astype(np.float32) for name, total in sums.items()}
