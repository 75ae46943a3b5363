"""The checkpoints of a run, and whether they will be enough.

Nothing is loaded, so torch is not needed.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from nmt_cli.files.atomic_files import read_manifest
from nmt_cli.files.file_names import AVERAGE, CHECKPOINTS, RECIPE
from nmt_cli.files.folders import MODEL_KINDS
from nmt_cli.messages import logs
from nmt_cli.messages.errors import DamagedError
from nmt_cli.messages.figures import counted
from nmt_cli.messages.proposals import any_of, command

if TYPE_CHECKING:
    from nmt_cli.recipe.reading.reader import RecipeFile
    from nmt_cli.recipe.schema import Recipe

CHECKPOINT_NAME = re.compile(r"step-(\d{8,})")

# From which share of the steps on checkpoints are averaged. A small model had BLEU 50.56 after
# 1,200 steps, and 51.28, 50.61, 49.12, 48.40, 46.42 and 36.13 as the average of the last 2, 3, 4,
# 5, 6 and all of 10 checkpoints. The longer a training is, the less changes in its last half: the
# average of parsing-small begins at 0.56 of its 12,000 steps.
LAST_PART, LAST_PART_IF_LONG = 0.75, 0.5
LONG = 10_000  # steps


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
        return self._measured("quality")

    @property
    def nll(self) -> float:
        """The nll of the validation, or infinity if it was not measured."""
        nll = self._measured("nll")
        return math.inf if nll is None else nll

    @property
    def quality_since(self) -> int:
        """The step at which the way of measuring quality last changed.

        Only qualities with the same ``quality_since`` can be compared.
        """
        validation = self.manifest.get("validation")
        since = validation.get("quality_since") if isinstance(validation, dict) else None
        return since if isinstance(since, int) else 0

    def _measured(self, name: str) -> float | None:
        validation = self.manifest.get("validation")
        figure = validation.get(name) if isinstance(validation, dict) else None
        return figure if isinstance(figure, float) and math.isfinite(figure) else None


def checkpoint_name(step: int) -> str:
    """Return the directory name of the checkpoint of ``step``."""
    return f"step-{step:08d}"


class ToAverage(NamedTuple):
    """The last checkpoints of a run, in the order of their steps: averaged, or left out."""

    chosen: list[Checkpoint]
    too_early: list[Checkpoint]

    @property
    def available(self) -> list[Checkpoint]:
        """All of them."""
        return [*self.too_early, *self.chosen]

    def remark(self, run_dir: Path) -> str:
        """Return which ones are left out, and why; "" if there are none."""
        if not self.too_early:
            return ""
        steps = any_of([f"{checkpoint.step:,}" for checkpoint in self.too_early], "and")
        plural = "s" if len(self.too_early) > 1 else ""
        end, number = self.chosen[-1].step, str(len(self.available))
        all_of_them = command("nmt-cli", "average-checkpoints", run_dir, "--last", number)
        return (
            f"Left out of the average, as too early in a training of {end:,} steps "
            f"(checkpoints.keep_for_average): step{plural} {steps}. "
            f"To average all {number}: {all_of_them} --force"
        )


def to_average(checkpoints: Sequence[Checkpoint], recipe: Recipe) -> ToAverage:
    """Return which of ``checkpoints`` the average of a run of ``recipe`` is made of.

    Of the last keep_for_average that an average may use, these are the last one, and those of the
    last quarter of the steps that are after the warm-up; of the last half in a long training. If
    the training began from a trained model, none is too early.
    """
    available = [checkpoint for checkpoint in checkpoints if checkpoint.enters_average]
    last = available[-recipe.checkpoints.keep_for_average :]
    if not last or last[-1].manifest.get("initialized_from") is not None:
        return ToAverage(last, [])
    end = last[-1].step
    share = LAST_PART if end < LONG else LAST_PART_IF_LONG
    earliest = max(share * end, recipe.training.warmup_steps)
    num_early = sum(checkpoint.step < earliest for checkpoint in last[:-1])
    return ToAverage(last[num_early:], last[:num_early])


def average_command(run_dir: Path, checkpoints: Sequence[Checkpoint]) -> str:
    """Return the command that averages the last of ``checkpoints``.

    It averages those that ``to_average`` chooses by the recipe of the newest one. Raises
    RecipeError if that recipe cannot be read.
    """
    from nmt_cli.recipe.reading.reader import read_recipe  # needs yaml, which translating does not

    available = [checkpoint for checkpoint in checkpoints if checkpoint.enters_average]
    recipe = read_recipe(str(available[-1].path / RECIPE)).recipe
    is_short = len(available) < recipe.checkpoints.keep_for_average
    words = ["--last", str(len(to_average(available, recipe).chosen))] if is_short else []
    words += ["--force"] if (run_dir / AVERAGE).exists() else []
    return command("nmt-cli", "average-checkpoints", run_dir, *words)


def list_checkpoints(run_dir: Path) -> list[Checkpoint]:
    """Return the checkpoints of ``run_dir`` by step; warn about damaged ones and leave them out.

    Raises OtherFormatError if one has a format that this program does not read.
    """
    checkpoints = []
    for path in (run_dir / CHECKPOINTS).iterdir() if (run_dir / CHECKPOINTS).is_dir() else ():
        match = CHECKPOINT_NAME.fullmatch(path.name)
        if match is None:
            continue
        try:
            manifest = read_manifest(path)
        except DamagedError as error:
            if path.exists():  # else a training that goes on has removed it meanwhile
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
    """Return the checkpoint whose validation was best; of equals that with the lowest nll.

    Only checkpoints whose quality was measured in the same way as the newest one's are compared.
    """
    measured = [checkpoint for checkpoint in checkpoints if checkpoint.quality is not None]
    since = max((checkpoint.quality_since for checkpoint in measured), default=0)
    comparable = [checkpoint for checkpoint in measured if checkpoint.quality_since == since]
    return max(comparable, key=lambda each: (each.quality or 0.0, -each.nll), default=None)


# An end of the training and an interval that together bound the number of checkpoints. An epoch has
# at least one step; how many it has depends on the text, so max_epochs does not bound every_steps.
BOUNDS = (
    ("max_steps", "every_steps"),
    ("max_epochs", "every_epochs"),
    ("max_steps", "every_epochs"),
)


def warn_of_few_checkpoints(file: RecipeFile) -> None:
    """Warn if the training must make too few checkpoints for its average."""
    if shortage := shortage_of_checkpoints(file.recipe):
        logs.warning(f"{file.path}: {shortage}")


def shortage_of_checkpoints(recipe: Recipe) -> str:
    """Return a warning if the training must make too few checkpoints for its average, else "".

    Patience, or another end that comes first, can only lower the number of checkpoints.
    """
    wanted = recipe.checkpoints.keep_for_average
    bounds = []
    for end_key, interval_key in BOUNDS:
        end, interval = getattr(recipe.training, end_key), getattr(recipe.checkpoints, interval_key)
        if end is not None and interval is not None:
            # The final checkpoint is one more if it is not at the interval.
            bounds.append((-(-end // interval), end_key, end, interval_key, interval))
    if not bounds:
        return ""
    most, end_key, end, interval_key, interval = min(bounds, key=lambda bound: bound[0])
    if most >= wanted:
        return ""
    remedies = [f"checkpoints.keep_for_average to {most}"]
    same_unit = end_key.rpartition("_")[2] == interval_key.rpartition("_")[2]
    if same_unit and end >= wanted:
        remedies.insert(0, f"checkpoints.{interval_key} to {end // wanted}")
    return (
        f"checkpoints.keep_for_average is {wanted}, but training.{end_key} {end:,} and "
        f"checkpoints.{interval_key} {interval:,} make at most {counted(most, 'checkpoint')}, the "
        f"final one included; lower {' or '.join(remedies)}."
    )
