"""Model directories, and the models that a run holds.

config.json        the settings that using the model requires (``model_settings``)
tokenizer.model    or vocabulary.txt
model.safetensors  the weights
manifest.json      checksums, and what the model was made of
recipe.yaml        a record of how it was trained; loading does not read it
"""

import hashlib
import json
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor

from nmt_cli import logs
from nmt_cli.atomic_files import Partial, read_manifest
from nmt_cli.corpus.tokenizer import Tokenizer, load_tokenizer
from nmt_cli.errors import DamagedError, UserError
from nmt_cli.file_names import (
    AVERAGE,
    CHECKPOINTS,
    CONFIG,
    MANIFEST,
    RECIPE,
    TOKENIZER_FILES,
    WEIGHTS,
)
from nmt_cli.folders import MODEL_KINDS, is_model, is_of_others, is_run, verify_model, what_to_give
from nmt_cli.formats import INT8
from nmt_cli.locks import restore_replaced
from nmt_cli.model.format_1 import weights_of_today
from nmt_cli.model.int8_weights import as_fp32, as_int8
from nmt_cli.model.no_draws import NoDraws
from nmt_cli.model.transformer import Transformer
from nmt_cli.model_settings import ModelSettings, as_json, read_settings
from nmt_cli.proposed_commands import command
from nmt_cli.stored_tensors import read_shapes, read_tensors

CHECKPOINT_NAME = re.compile(r"step-(\d{8,})")


class LoadedModel(NamedTuple):
    """A model ready for use."""

    settings: ModelSettings
    tokenizer: Tokenizer
    model: Transformer  # in evaluation mode, fp32, on the device asked for
    path: Path
    manifest: dict[str, Any]


class Checkpoint(NamedTuple):
    """A checkpoint of a run, as its manifest describes it."""

    path: Path
    step: int
    manifest: dict[str, Any]

    @property
    def enters_average(self) -> bool:
        """Whether it was made at the recipe's interval or at the end."""
        return self.manifest["kind"] in {"regular", "final"}

    @property
    def quality(self) -> float | None:
        """The number by which the best checkpoint is chosen; higher is better. None if unknown."""
        validation = self.manifest.get("validation")
        quality = validation.get("quality") if isinstance(validation, dict) else None
        return quality if isinstance(quality, float) and math.isfinite(quality) else None

    @property
    def quality_since(self) -> int:
        """The step at which the way of measuring quality last changed.

        Only qualities with the same ``quality_since`` can be compared.
        """
        validation = self.manifest.get("validation")
        since = validation.get("quality_since") if isinstance(validation, dict) else None
        return since if isinstance(since, int) else 0


def checkpoint_name(step: int) -> str:
    """Return the directory name of the checkpoint of ``step``."""
    return f"step-{step:08d}"


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
    directory = find_model(path)
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


def fingerprint(manifest: Mapping[str, Any]) -> str:
    """Return a sha256 of the files that using a model needs, by their checksums."""
    files = manifest["files"]
    needed = sorted((name, files[name]["sha256"]) for name in files if name != RECIPE)
    return hashlib.sha256(json.dumps(needed).encode()).hexdigest()


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


def find_model(path: Path) -> Path:
    """Return the model directory that ``path`` means.

    It is ``path`` itself, or of a run the average, else the best checkpoint by validation, else the
    last. Raises UserError if ``path`` is missing or has no model, DamagedError if a manifest is
    damaged.
    """
    restore_replaced(path)
    if not path.exists():
        raise UserError(what_to_give(path, "model"))
    is_alone = not (path / CHECKPOINTS).is_dir() and not is_of_others(path)
    if is_alone and ((path / MANIFEST).exists() or (path / WEIGHTS).exists()):
        if str(read_manifest(path).get("kind")) not in MODEL_KINDS:
            raise UserError(what_to_give(path, "model"))
        return path
    restore_replaced(path / AVERAGE)
    checkpoints = list_checkpoints(path)
    if is_model(path / AVERAGE):
        logs.info(f"Using {path / AVERAGE}, the average of {path}.")
        _warn_if_stale(path, checkpoints)
        return path / AVERAGE
    if not checkpoints:
        if (path / CHECKPOINTS).is_dir() or is_run(path):
            raise UserError(f"{path} holds no checkpoint yet; train it first.")
        raise UserError(what_to_give(path, "model"))
    best = best_checkpoint(checkpoints)
    if best is not None:
        logs.info(f"Using {best.path}, the best by validation of {path}.")
        return best.path
    logs.info(f"Using {checkpoints[-1].path}, the last of {path}.")
    return checkpoints[-1].path


def _warn_if_stale(run_dir: Path, checkpoints: Sequence[Checkpoint]) -> None:
    """Warn if the average was made without the newest checkpoint that averages may use."""
    averaged = read_manifest(run_dir / AVERAGE).get("averaged")
    available = [checkpoint for checkpoint in checkpoints if checkpoint.enters_average]
    if not available or not isinstance(averaged, list):
        return
    newest = available[-1]
    if newest.manifest["files"].get(WEIGHTS, {}).get("sha256") in {
        part.get("sha256") for part in averaged
    }:
        return
    steps = sorted(part["step"] for part in averaged if isinstance(part.get("step"), int))
    made_of = f" of steps {steps[0]:,} to {steps[-1]:,}" if len(steps) > 1 else ""
    logs.warning(
        f"{run_dir / AVERAGE} was made{made_of}, without the newest checkpoint of {run_dir}, of "
        f"step {newest.step:,}. It is used as it is; to renew it run: "
        f"{average_command(run_dir, checkpoints)}"
    )


def average_command(run_dir: Path, checkpoints: Sequence[Checkpoint]) -> str:
    """Return the command that averages the last of ``checkpoints``.

    It averages as many as the recipe of the newest one asks for, or all if there are fewer. Raises
    RecipeError if that recipe cannot be read.
    """
    from nmt_cli.recipe.reader import read_recipe  # needs yaml, which translating does not

    available = [checkpoint for checkpoint in checkpoints if checkpoint.enters_average]
    wanted = read_recipe(str(available[-1].path / RECIPE)).recipe.checkpoints.keep_for_average
    words = ["--last", str(len(available))] if len(available) < wanted else []
    words += ["--force"] if (run_dir / AVERAGE).exists() else []
    return command("nmt-cli", "average-checkpoints", run_dir, *words)


def list_checkpoints(run_dir: Path) -> list[Checkpoint]:
    """Return the checkpoints of ``run_dir`` by step; warn about damaged ones and leave them out.

    Raises NewerFormatError if a newer version wrote one of them.
    """
    checkpoints = []
    for path in (run_dir / CHECKPOINTS).iterdir() if (run_dir / CHECKPOINTS).is_dir() else ():
        match = CHECKPOINT_NAME.fullmatch(path.name)
        if match is None:
            continue
        try:
            manifest = read_manifest(path)
        except DamagedError as error:
            logs.warning(str(error))
            continue
        if (
            manifest.get("step") != int(match.group(1))
            or str(manifest.get("kind")) not in MODEL_KINDS
        ):
            logs.warning(f"{path} is damaged: its manifest is that of another checkpoint.")
            continue
        checkpoints.append(Checkpoint(path, manifest["step"], manifest))
    return sorted(checkpoints, key=lambda checkpoint: checkpoint.step)


def best_checkpoint(checkpoints: list[Checkpoint]) -> Checkpoint | None:
    """Return the checkpoint whose validation was best, the earliest of equals.

    Only checkpoints whose quality was measured in the same way as the newest one's are compared.
    """
    measured = [checkpoint for checkpoint in checkpoints if checkpoint.quality is not None]
    since = max((checkpoint.quality_since for checkpoint in measured), default=0)
    comparable = [checkpoint for checkpoint in measured if checkpoint.quality_since == since]
    return max(comparable, key=lambda checkpoint: checkpoint.quality or 0.0, default=None)
