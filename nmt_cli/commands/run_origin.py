"""``run --init-from``: a run whose training began from other weights is another experiment."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nmt_cli.atomic_files import read_manifest
from nmt_cli.checkpoints import find_model, list_checkpoints
from nmt_cli.errors import UserError
from nmt_cli.file_names import WEIGHTS


def refuse_other_origin(
    run_dir: Path, model: Path | None, *, is_removed: bool, named: str = "--init-from"
) -> None:
    """Raise UserError if the training in ``run_dir`` did not begin from ``model``.

    ``named`` is the option or the key of the recipe that gives the model; None stands for random
    weights. Before a training begins, the model must only be there. If the run ``is_removed``
    first, the model must not be a part of it.
    """
    checkpoints = [] if is_removed else list_checkpoints(run_dir)
    if checkpoints:
        _refuse_other(run_dir, model, checkpoints[-1].manifest.get("initialized_from"), named)
    elif model is not None:
        found = find_model(model)
        if is_removed and found.resolve().is_relative_to(run_dir.resolve()):
            raise UserError(
                f"{named} {model} is a part of {run_dir}, which would be removed first; "
                "choose another --run-dir."
            )


def _refuse_other(
    run_dir: Path, model: Path | None, origin: Mapping[str, Any] | None, named: str
) -> None:
    if origin is None and model is None:
        return
    if origin is not None and model is not None and _is_origin(model, origin):
        return
    began, remedy = "random weights", f"leave {named} out"
    if origin is not None:
        began, remedy = f"the weights of {origin['path']}", f"give {named} {origin['path']}"
    asked = f"no {named} is given" if model is None else f"{named} is {model}"
    if origin is not None and model is not None:
        asked += ", which has other weights" if model.exists() else ", which does not exist"
    raise UserError(
        f"the training in {run_dir} began from {began}, but {asked}; {remedy}, or choose another "
        "--run-dir."
    )


def _is_origin(model: Path, origin: Mapping[str, Any]) -> bool:
    if not model.exists():  # it may be removed once the training has begun
        return Path(origin["path"]).resolve().is_relative_to(model.resolve())
    weights = read_manifest(find_model(model))["files"][WEIGHTS]
    return bool(weights["sha256"] == origin["weights_sha256"])
