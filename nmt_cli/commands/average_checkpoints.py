"""``nmt-cli average-checkpoints``: the last checkpoints of a run become one model."""

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from nmt_cli.checkpoints import find_model, list_checkpoints
from nmt_cli.corpus.tokenizers.tokenizer import load_tokenizer
from nmt_cli.files.atomic_files import directory_appearing_whole
from nmt_cli.files.file_names import (
    AVERAGE,
    AVERAGE_INT8,
    FURTHER_TOKENIZER_FILES,
    RECIPE,
    TOKENIZER_FILES,
    WEIGHTS,
)
from nmt_cli.files.folders import AVERAGED, is_run, refuse_output, verify_model, what_to_give
from nmt_cli.files.locks import claimed
from nmt_cli.hardware.cpu import set_num_threads
from nmt_cli.messages import logs
from nmt_cli.messages.errors import DamagedError, UserError
from nmt_cli.messages.figures import counted
from nmt_cli.model_directory import save_model
from nmt_cli.recipe.model_settings import ModelSettings, read_settings
from nmt_cli.recipe.reader import read_recipe
from nmt_cli.runs.checkpoint import mean_weights


def run(
    run_dir: Path,
    *,
    last: int | None = None,
    checkpoints: Sequence[Path] = (),
    output: Path | None = None,
    precision: str = "fp32",
    force: bool = False,
) -> None:
    """Write the mean of the chosen checkpoints as a model directory.

    It averages ``checkpoints``, or else the ``last`` regular or final ones of the run, by default
    as many as the recipe's keep_for_average, into RUN/average. With ``precision`` int8 the model
    has a quarter of the size and goes into RUN/average-int8. Raises UserError if there are too few,
    if they do not fit together or if the output exists without ``force``, and DamagedError if one
    is damaged. If a training removes one meanwhile, the last ones are chosen once more.
    """
    if not run_dir.exists() or (not is_run(run_dir) and not checkpoints):
        raise UserError(what_to_give(run_dir, "run"))
    set_num_threads(None)
    given = [_checkpoint(path) for path in checkpoints]
    output = output or run_dir / (AVERAGE if precision == "fp32" else AVERAGE_INT8)
    with claimed(output, "--output"):
        refuse_output(output, AVERAGED, "an average", force=force)
        if given:
            _write_average(given, output, precision, replace=force)
        else:
            _write_average_of_last(run_dir, last, output, precision, replace=force)


def _write_average_of_last(
    run_dir: Path, last: int | None, output: Path, precision: str, *, replace: bool
) -> None:
    """Average the last checkpoints; choose them once more if a training removes one meanwhile."""
    removed: list[Path] = []
    for _ in range(2):
        chosen = _last(run_dir, last)
        try:
            _write_average(chosen, output, precision, replace=replace)
            return
        except (DamagedError, FileNotFoundError):
            removed = [path for path in chosen if not path.exists()]
            if not removed:
                raise
    raise UserError(
        f"{removed[0]} was removed while it was averaged: a training goes on there, which keeps "
        "only its newest checkpoints. Run the command again, or give a smaller --last."
    )


def _write_average(chosen: Sequence[Path], output: Path, precision: str, *, replace: bool) -> None:
    manifests = [verify_model(path) for path in chosen]
    _refuse_repeated(chosen, manifests)
    settings = [read_settings(*pair) for pair in zip(chosen, manifests, strict=True)]
    _refuse_different(chosen, manifests, settings)
    tokenizer = load_tokenizer(chosen[-1], settings[-1].text)
    recipe = (chosen[-1] / RECIPE).read_bytes()
    with directory_appearing_whole(output, replace=replace) as partial:
        save_model(partial, settings[-1], recipe, tokenizer, mean_weights(chosen), precision)
        partial.facts.update(kind=AVERAGED, averaged=_facts(chosen, manifests))
    logs.info(f"Averaged {', '.join(path.name for path in chosen)} into {output}.")


def _checkpoint(path: Path) -> Path:
    if path.name.isdecimal() and not path.exists():
        raise UserError(
            f"{path} is not a checkpoint folder; to average the last {path} give --last {path}."
        )
    return find_model(path)


def _last(run_dir: Path, count: int | None) -> list[Path]:
    checkpoints = list_checkpoints(run_dir)
    available = [c for c in checkpoints if c.enters_average]
    if checkpoints and not available:
        newest = checkpoints[-1].path
        raise UserError(
            f"{run_dir} holds only checkpoints that were saved for safety, such as {newest}, which "
            "are not averaged unless you name them. Continue with train --resume, or name them: "
            f"--checkpoints {shlex.quote(str(newest))}."
        )
    if count is None:
        if not available:
            raise UserError(f"{run_dir} holds no checkpoint yet; train it first.")
        recipe = read_recipe(str(available[-1].path / RECIPE)).recipe
        count = recipe.checkpoints.keep_for_average
    if len(available) < count:
        steps = ", ".join(str(checkpoint.step) for checkpoint in available) or "none"
        raise UserError(
            f"average-checkpoints needs {counted(count, 'checkpoint')}, {run_dir} has "
            f"{len(available)} (steps {steps}). Train longer or give a smaller --last."
        )
    return [checkpoint.path for checkpoint in available[-count:]]


def _refuse_repeated(chosen: Sequence[Path], manifests: Sequence[Mapping[str, Any]]) -> None:
    seen: set[str] = set()
    for path, manifest in zip(chosen, manifests, strict=True):
        weights = manifest["files"][WEIGHTS]["sha256"]
        if weights in seen:
            raise UserError(f"{path} is given twice; give each checkpoint once.")
        seen.add(weights)


def _refuse_different(
    chosen: Sequence[Path],
    manifests: Sequence[Mapping[str, Any]],
    settings: Sequence[ModelSettings],
) -> None:
    for path, manifest, own in zip(chosen, manifests, settings, strict=True):
        other_model = own.architecture != settings[0].architecture
        other_pieces = any(
            manifest["files"].get(name) != manifests[0]["files"].get(name)
            for name in (*TOKENIZER_FILES, *FURTHER_TOKENIZER_FILES)
        )
        if other_model or other_pieces:
            what = "model" if other_model else "tokenizer"
            raise UserError(f"{path} has another {what} than {chosen[0]}; they cannot be averaged.")


def _facts(chosen: Sequence[Path], manifests: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    return [
        {
            "name": path.name,
            "step": manifest.get("step"),
            "sha256": manifest["files"][WEIGHTS]["sha256"],
            "prepared_files": manifest.get("prepared_files"),
        }
        for path, manifest in zip(chosen, manifests, strict=True)
    ]
