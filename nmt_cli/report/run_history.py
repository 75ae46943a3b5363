"""Reads the records of a run directory, also while it is still training."""

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nmt_cli.files import file_names
from nmt_cli.files.atomic_files import read_manifest
from nmt_cli.files.folders import is_run, wrong_folder
from nmt_cli.messages import logs
from nmt_cli.messages.errors import DamagedError, RecipeError, UserError
from nmt_cli.messages.figures import counted, short_number
from nmt_cli.model.stored_weights import StoredWeights
from nmt_cli.recipe.reading.reader import read_recipe
from nmt_cli.recipe.schema import Recipe

Floats = NDArray[np.float64]
StudentTable = tuple[list[list[str]], list[str]]  # rows, the first with the headings; and notes


class StepFigures(NamedTuple):
    """Named columns of figures, in the order of their steps; NaN if a record has none."""

    steps: Floats
    columns: dict[str, Floats]

    def column(self, name: str) -> Floats:
        """Return the column called ``name``; all NaN if no record has it."""
        return self.columns.get(name, np.full(len(self.steps), np.nan))


class RunHistory(NamedTuple):
    """One run: its figures, the recipe it followed and the machines it ran on."""

    label: str
    training: StepFigures
    validation: StepFigures  # of the set that decides which checkpoint is the best
    validation_sets: dict[str, StepFigures]  # of each set by its name; empty if it has none
    recipe: Recipe | None  # None if this version cannot read it
    sessions: list[dict[str, Any]]
    num_parameters: int | None  # None before the first checkpoint
    scores: dict[str, Any]  # of the test text, as ``run`` wrote them; empty before
    test_sets: dict[str, dict[str, Any]]  # such scores of each set by its name, if it has one
    student_table: StudentTable | None  # its figures beside its teacher's; None without ``distil``

    @property
    def deciding_set(self) -> str | None:
        """The name of the validation set that decides which checkpoint is the best, if it is known.

        None also if that set has no name, or if the mean of all sets decides.
        """
        if self.recipe is None or self.recipe.validation.best_on_mean:
            return None
        name = self.recipe.validation.deciding(self.recipe.data.validation_sets).name
        return name if name in self.validation_sets else None

    def stage_starts(self) -> dict[int, float]:
        """Return the step at which each stage after the first began, by its number from 1."""
        stages, steps = self.training.column("stage"), self.training.steps
        places = np.flatnonzero(np.diff(stages) > 0)  # NaN is not greater
        return {int(stages[place + 1]): float(steps[place]) for place in places}

    def validated(self, name: str | None) -> StepFigures:
        """Return the figures of the validation set ``name``; None is the one that decides."""
        if name is None:
            return self.validation
        return self.validation_sets.get(name, StepFigures(np.empty(0), {}))


class TranslatedSet(NamedTuple):
    """A test set that was translated."""

    name: str
    languages: tuple[str, str]
    lines: list[tuple[str, str, str, float]]  # source, translation, reference, chrF2
    signature: str  # of chrF2


class RunDetails(NamedTuple):
    """What the page of one run shows beside its figures."""

    serve: str = ""  # the command that serves the model, if there is one
    state: str = ""
    translated: Sequence[TranslatedSet] = ()
    dropped: Sequence[Sequence[str]] = ()  # rows, the first with the names of the corpora


def read_runs(paths: Sequence[Path]) -> list[RunHistory]:
    """Return the history of each run directory.

    Raises UserError if one of the paths is not a run, has no step yet or is given twice.
    """
    labels = distinct_labels(paths)
    return [_read_run(path, label) for path, label in zip(paths, labels, strict=True)]


def sets_to_show(runs: Sequence[RunHistory]) -> list[str | None]:
    """Return the name of each validation set of the runs.

    None, the set that decides, is among them only if a run does not show that set by its name.
    """
    names = dict.fromkeys(name for run in runs for name in run.validation_sets)
    return [*([None] if any(run.deciding_set is None for run in runs) else []), *names]


def distinct_labels(paths: Sequence[Path]) -> list[str]:
    """Return the last parts of each path, as many as distinguish it from the others.

    Raises UserError if a path is given twice.
    """
    parts = [path.resolve().parts for path in paths]
    labels = []
    for index, (path, own) in enumerate(zip(paths, parts, strict=True)):
        others = parts[:index] + parts[index + 1 :]
        if own in others:
            raise UserError(f"{path} is given twice; give each run once.")
        length = next(
            n for n in range(1, len(own) + 1) if all(other[-n:] != own[-n:] for other in others)
        )
        label = str(Path(*own[-length:]))
        labels.append(logs.printable(label.encode(errors="replace").decode()))
    return labels


def _read_run(path: Path, label: str) -> RunHistory:
    if not is_run(path):
        raise wrong_folder(path, "run")
    metrics = path / file_names.METRICS
    if not metrics.is_file():
        raise UserError(f"{path} holds no {file_names.METRICS}; run report after the first step.")
    records = list(_records_in(metrics))
    training = _figures_of(record for record in records if "validation" not in record)
    validated = [record for record in records if isinstance(record.get("validation"), dict)]
    validation = _figures_of(
        {**record["validation"], "step": record.get("step")} for record in validated
    )
    sets: dict[str, list[dict[str, Any]]] = {}
    for record in validated:
        for name, figures in _sets_in(record["validation"]).items():
            sets.setdefault(name, []).append({**figures, "step": record.get("step")})
    if not len(training.steps) and not len(validation.steps):
        raise UserError(f"{metrics} holds no step yet; draw it when training has begun.")
    sessions = path / file_names.SESSIONS
    last_step = int(
        max(figures.steps[-1] for figures in (training, validation) if figures.steps.size)
    )
    scores = _scores_of(path, last_step)
    return RunHistory(
        label,
        training,
        validation,
        {name: _figures_of(iter(of_set)) for name, of_set in sets.items()},
        _recipe_of(path),
        list(_records_in(sessions)) if sessions.is_file() else [],
        _size_of(path),
        scores,
        _sets_in(scores),
        _student_table_of(path),
    )


def _sets_in(figures: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the figures of each set by its name; names that files cannot have are left out."""
    sets = figures.get(file_names.SETS)
    if not isinstance(sets, dict):
        return {}
    return {
        name: of_set
        for name, of_set in sets.items()
        if file_names.SET_NAME.fullmatch(name) and isinstance(of_set, dict)
    }


def _records_in(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the records of a file of JSON lines.

    A last line without a line feed is ignored, because it is still being written.
    """
    *lines, _ = path.read_bytes().split(b"\n")
    num_damaged = 0
    for line in lines:
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            record = None
        if isinstance(record, dict):
            yield record
        else:
            num_damaged += 1
    if num_damaged:
        logs.warning(f"{path}: left out {counted(num_damaged, 'damaged line')}.")


def _figures_of(records: Iterator[dict[str, Any]]) -> StepFigures:
    """Return the columns. If a step has several records, as after a resume, the last one counts."""
    by_step = {
        record["step"]: record
        for record in records
        if isinstance(record.get("step"), int) and 0 <= record["step"] < 2**53
    }
    in_order = [by_step[step] for step in sorted(by_step)]
    names = {name: None for record in in_order for name in record}  # a set that keeps its order
    columns = {
        name: np.array([_as_float(record.get(name)) for record in in_order]) for name in names
    }
    return StepFigures(columns.pop("step", np.empty(0)), columns)


def _as_float(value: object) -> float:
    """Return ``value`` as a float, or NaN if it is not a finite number."""
    if isinstance(value, int | float) and abs(value) <= sys.float_info.max:
        return float(value)
    return np.nan


def _recipe_of(path: Path) -> Recipe | None:
    try:
        return read_recipe(str(path / file_names.RECIPE)).recipe
    except RecipeError as error:
        logs.warning(f"the recipe of {path} is not compared: {str(error).splitlines()[0]}")
        return None


def _scores_of(path: Path, last_step: int) -> dict[str, Any]:
    """Return the scores of the test text, unless the run was trained further since."""
    folder = path / file_names.SCORES
    try:
        scores = json.loads((folder / file_names.SCORES_FILE).read_bytes())
        step = read_manifest(folder)["step"]  # the last one of the model with these scores
    except (OSError, ValueError, RecursionError, DamagedError, KeyError):
        return {}
    if step < last_step:
        logs.warning(
            f"{folder} is not shown: it is of step {step:,}, and the run is at step {last_step:,}; "
            "nmt-cli run makes it anew."
        )
        return {}
    return scores if isinstance(scores, dict) else {}


def _student_table_of(path: Path) -> StudentTable | None:
    file = path / file_names.DISTILLATION / file_names.STUDENT_TABLE / file_names.FIGURES_FILE
    try:
        return student_table(json.loads(file.read_bytes()))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError, TypeError, LookupError) as error:
        logs.warning(f"{file} is not shown, because it is damaged: {error!r}.")
        return None


DIGITS_OF_COSTS = {"megabytes": 2, "lines_per_second": 1, "ms_of_one_line": 1}


def student_table(measured: Mapping[str, Any]) -> StudentTable:
    """Return the rows of a student and its teachers, and what the figures measure.

    A language model as the teacher has only scores.
    """
    sets = list(measured["rows"][0]["sets"])
    headings = [f"{metric} {name}" for name in sets for metric in ("BLEU", "chrF2")]
    table = [
        ["system", "precision", "shortlist", "beam", *headings, "MB", "lines/s", "ms of one line"]
    ]
    for row in measured["rows"]:
        scores = [row["sets"][name][key]["score"] for name in sets for key in ("bleu", "chrf")]
        table.append(
            [
                row["system"],
                row["precision"] or "",
                {True: "yes", False: "no", None: ""}[row["shortlist"]],
                str(row["beam_size"] or ""),
                *(short_number(score, 2) for score in scores),
                *(
                    "" if row[name] is None else short_number(row[name], digits)
                    for name, digits in DIGITS_OF_COSTS.items()
                ),
            ]
        )
    each = [
        scores["bleu"]["signature"] for row in measured["rows"] for scores in row["sets"].values()
    ]
    return table, [
        f"MB are 10⁶ bytes of all files of a model; speed is that of {measured['cores']} cores "
        f"({measured['cpu']}).",
        f"The signature of BLEU is {' or '.join(dict.fromkeys(each))}.",
    ]


def _size_of(path: Path) -> int | None:
    """Return the number of parameters, from the header of the newest checkpoint's weights."""
    checkpoints = (path / file_names.CHECKPOINTS).glob(file_names.CHECKPOINT_GLOB)
    for checkpoint in sorted(checkpoints, reverse=True):
        # One may be removed meanwhile, or damaged; an older checkpoint has the same number.
        with suppress(DamagedError):
            return StoredWeights(checkpoint / file_names.WEIGHTS).num_parameters
    return None
