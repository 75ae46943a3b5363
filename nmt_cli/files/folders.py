"""Recognizes runs, models and prepared corpora, and proposes one if a path is wrong.

Functions that read manifests raise OtherFormatError for a format that this program does not read.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal

from nmt_cli.files.atomic_files import read_manifest, refuse_directory
from nmt_cli.files.file_names import (
    CHECKPOINT_GLOB,
    CHECKPOINTS,
    METRICS,
    RECIPE,
    RECIPE_SUFFIXES,
    RUNS,
    SESSIONS,
)
from nmt_cli.files.formats import OtherFormatError
from nmt_cli.messages.errors import DamagedError, UserError
from nmt_cli.messages.proposals import as_argument, command, unused_name, where_missing

# Values of "kind" in manifests.
PREPARED = "prepared"
REPORT = "report"
TRANSLATION = "translation"  # of the test text
SCORED = "scores"  # of that translation
DATASET = "dataset"
DISTILLED = "distilled"  # of what distil makes before the training
EXPORT = "export"  # of a model, for another program
AVERAGED = "average"
MODEL_KINDS = ("regular", "final", "safety", AVERAGED)
IMPORTED = "imported"  # no value, but a key: where the model came from
SHOWN = 5  # folders in a message
LEVELS_ABOVE = 3
# Files by which models of other programs are known, without reading them.
OF_OTHERS = (
    *("model.bin", "pytorch_model.bin", "generation_config.json", "model.00.safetensors"),
    *("*.npz", "*.intgemm*.bin", "*.pt", "*.argosmodel", "model/model.bin"),
)

Wanted = Literal["model", "model directory", "run", "prepared corpus"]


def kind_of(folder: Path) -> str | None:
    """Return the kind in the folder's manifest; None if there is no readable manifest.

    The manifest of an imported model has the kind of an average.
    """
    try:
        manifest = read_manifest(folder)
    except DamagedError:
        return None
    kind = str(manifest.get("kind"))
    return IMPORTED if kind == AVERAGED and IMPORTED in manifest else kind


def is_model(folder: Path) -> bool:
    """Return whether the manifest of ``folder`` is that of a model; files are not verified."""
    return kind_of(folder) in {*MODEL_KINDS, IMPORTED}


def refuse_output(
    output: Path, kind: str, name: str, *, force: bool, option: str = "--output"
) -> None:
    """Raise UserError if ``output`` cannot be written; ``force`` replaces folders of ``kind``.

    The message calls that kind ``name``, and proposes another ``option``.
    """
    if not may_become(output, kind):
        raise UserError(f"{output} exists and is not {name}; choose another {option}.")
    refuse_directory(output, replace=force)


def may_become(folder: Path, kind: str) -> bool:
    """Return whether ``folder`` is missing, empty or of ``kind``, so that no other file is lost."""
    is_empty = folder.is_dir() and not any(folder.iterdir())
    return is_empty or not folder.exists() or kind_of(folder) == kind


def is_run(folder: Path) -> bool:
    """Return whether a training has begun in ``folder``."""
    return (
        (folder / SESSIONS).is_file()
        or (folder / METRICS).is_file()
        or any((folder / CHECKPOINTS).glob(CHECKPOINT_GLOB))
    )


def runs_meant(path: Path) -> list[Path]:
    """Return the run that may be meant by the missing ``path`` or by its recipe: runs/NAME."""
    name = path.with_suffix("") if path.suffix in RECIPE_SUFFIXES else path
    places = (path.parent / RUNS / name.name, RUNS / name)
    return [each for each in dict.fromkeys(places) if each.is_dir()][:1]


def recipes_meant(path: Path) -> list[Path]:
    """Return the recipe that may be meant by the missing ``path``: NAME.yaml, or that of a run."""
    beside = [path.with_name(f"{path.name}{suffix}") for suffix in RECIPE_SUFFIXES if path.name]
    places = [*beside, *(run / RECIPE for run in runs_meant(path))]
    return [each for each in places if each.is_file()][:1]


def wrong_folder(path: Path, wanted: Wanted) -> UserError:
    """Return the error that states what ``path`` is, not ``wanted``, and which folder to give.

    A missing path is reported as missing.
    """
    error = UserError(what_to_give(path, wanted))
    return error if path.is_dir() else error.proposing(path, runs_meant(path))


def what_to_give(path: Path, wanted: Wanted) -> str:
    """Return the message of ``wrong_folder``."""
    runs = runs_meant(path)
    meant = _shown(runs[0]) if runs else DESCRIPTIONS[wanted]
    is_recipe = path.suffix in RECIPE_SUFFIXES and path.name != RECIPE and path.is_file()
    if is_recipe or not path.exists():
        prepared = path.parent / PREPARED / path.name
        recipes = [path] if is_recipe else recipes_meant(path)
        what = f"{path} is a recipe" if is_recipe else f"{wanted} {path} not found"
        what += f"{'' if is_recipe else where_missing(path)}; give {meant}"
        if prepared.is_dir() and not runs:
            run = path.parent / RUNS / path.name
            return f"{what}; {prepared} is there, from which train makes {run}."
        if recipes and not runs:
            return f"{what}. To make one by the recipe: {command('nmt-cli', 'run', recipes[0])}"
        return f"{what}."
    if wanted in {"model", "model directory"} and is_of_others(path):
        done = command("nmt-cli", "import", path, "--output", unused_name(Path("imported")))
        return f"{path} is not a model of nmt-cli; if it is one of another program, run: {done}"
    below, above = _below(path, FITS[wanted]), _above(path, FITS[wanted])
    if below and above and _holds_checkpoints(path):
        meant = f"{_shown(above)} or one of them, such as {_shown(below[-1])}"
    elif below:
        named = ", ".join(map(_shown, below[:SHOWN]))
        more = f" and {len(below) - SHOWN} more" if len(below) > SHOWN else ""
        meant = f"one of them: {named}{more}" if len(below) > 1 else named
    else:
        meant = _shown(above) if above is not None else DESCRIPTIONS[wanted]
    return f"{path} {_description(path, wanted)}; give {meant}."


def is_of_others(path: Path) -> bool:
    """Return whether ``path`` may be a model of another program, by the names of files."""
    if not path.is_dir():
        return any(path.match(name) for name in OF_OTHERS)
    is_ours = kind_of(path) is not None or is_run(path) or _holds_checkpoints(path)
    return not is_ours and any(any(path.glob(name)) for name in OF_OTHERS)


def not_a_run(path: Path) -> str | None:
    """Return a description of ``path`` if it is something other than a run; None if it may be one.

    An empty folder, or one with unknown files only, may become a run.
    """
    if is_run(path) or not path.is_dir():
        return None
    holds_runs = any(is_run(folder) for folder in _folders_in(path))
    is_other = kind_of(path) is not None or _holds_checkpoints(path) or holds_runs
    return _description(path, "run") if is_other else None


def _description(path: Path, wanted: Wanted) -> str:
    if not path.is_dir():
        return "is a file"
    kind = kind_of(path)
    if kind is not None:
        return f"is {KINDS.get(kind, 'of an unknown kind')}, not a {wanted}"
    if is_run(path):
        return f"is a run, not a {wanted}"
    if _holds_checkpoints(path):
        return "holds checkpoints"
    for plural, fits in HOLDINGS.items():
        if _below(path, fits):
            return f"holds {plural}"
    return "is empty" if not any(path.iterdir()) else f"is not a {wanted}"


def _holds_checkpoints(path: Path) -> bool:
    return path.is_dir() and any(_is_checkpoint(below) for below in path.glob(CHECKPOINT_GLOB))


def _is_checkpoint(folder: Path) -> bool:
    try:
        return is_model(folder)
    except OtherFormatError:  # this program cannot read it, but its name is that of a checkpoint
        return True


def _is_prepared(folder: Path) -> bool:
    return kind_of(folder) == PREPARED


def _below(path: Path, fits: Callable[[Path], bool]) -> list[Path]:
    """Return the folders in ``path`` that fit; if none does, those one level further down."""
    folders = list(_folders_in(path))
    return [folder for folder in folders if _fits(folder, fits)] or [
        inner for folder in folders for inner in _folders_in(folder) if _fits(inner, fits)
    ]


def _fits(folder: Path, fits: Callable[[Path], bool]) -> bool:
    """Return ``fits(folder)``; False for a folder of a format that is not read."""
    try:
        return fits(folder)
    except OtherFormatError:
        return False


def _folders_in(path: Path) -> Iterator[Path]:
    try:
        names = sorted(path.iterdir())
    except OSError:  # not a folder, or not readable for this user
        return
    yield from (name for name in names if name.is_dir() and not name.name.startswith("."))


def _above(path: Path, fits: Callable[[Path], bool]) -> Path | None:
    for _ in range(LEVELS_ABOVE):
        path = path / ".." if path.name in {"", ".."} else path.parent
        if _fits(path, fits):
            return path
    return None


def _shown(path: Path) -> str:
    # With a slash, because a full stop may follow in the message.
    return f"{path}/" if path.name in {"", ".."} else as_argument(path)


FITS: dict[Wanted, Callable[[Path], bool]] = {
    "model": lambda folder: is_run(folder) or is_model(folder),
    "model directory": is_model,
    "run": is_run,
    "prepared corpus": _is_prepared,
}
DESCRIPTIONS: dict[Wanted, str] = {
    "model": "a model directory, a checkpoint or a run directory",
    "model directory": "a model directory or a checkpoint",
    "run": "the run directory that train wrote",
    "prepared corpus": "the folder that preprocess wrote",
}
HOLDINGS: dict[str, Callable[[Path], bool]] = {
    "runs": is_run,
    "prepared corpora": _is_prepared,
    "models": is_model,
}
KINDS = {
    PREPARED: "a prepared corpus",
    REPORT: "a report",
    DATASET: "a data set",
    DISTILLED: "a part of a distillation",
    EXPORT: "a model that was exported for another program",
    TRANSLATION: "a translation of a test text",
    SCORED: "the scores of a translation",
    AVERAGED: "an average",
    IMPORTED: "an imported model",
    "regular": "a checkpoint",
    "final": "a checkpoint",
    "safety": "a checkpoint",
}
