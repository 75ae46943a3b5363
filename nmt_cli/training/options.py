"""The options of a training: of ``train``, and of the trainings of ``run`` and ``compare``.

They have a module of their own, because these commands need them before they import torch.
"""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING

from nmt_cli.hardware.machine_options import MachineOptions
from nmt_cli.messages.errors import UserError, WrongUsageError

if TYPE_CHECKING:
    from nmt_cli.recipe.schema import Recipe

NO_SCRIPT = "off"  # the recipe decides again in a training that a script decided before
SHELL_WORDS = frozenset({"|", "<", ">", ">>", "&&", "||", ";", "&"})
NAMES = {"overrides": "--set", "allowed_changes": "--allow-change"}  # other flags are their fields'


@dataclass(frozen=True, kw_only=True)
class TrainOptions(MachineOptions):
    """The options with their defaults; the names of most are those of the flags."""

    overrides: Sequence[str] = ()
    prepared: Path | None = None
    run_dir: Path | None = None
    resume: bool = False
    allowed_changes: Sequence[str] = ()
    init_from: Path | None = None
    max_time: float | None = None  # seconds, counted from the start of the command
    validation_script: str | None = None  # a command that judges translations, or NO_SCRIPT
    keep_validations: int = 0  # validations whose translations stay in the run directory
    workers: int | None = None  # of preprocess, in ``run``
    devices: int | None = None
    nnodes: int = 1
    rdzv_endpoint: str | None = None
    rdzv_id: str | None = None
    in_run: bool = False  # this is a stage of ``run``, which averages the checkpoints itself

    @property
    def script(self) -> str | None:
        """The command that judges translations; None if validation.best_by decides."""
        return None if self.validation_script == NO_SCRIPT else self.validation_script

    def as_flags(self) -> list[str]:
        """Return the words of a command line that give these options to a command."""
        flags: list[str] = []
        for field in fields(self):
            flag = NAMES.get(field.name, f"--{field.name.replace('_', '-')}")
            value = getattr(self, field.name)
            if isinstance(value, list | tuple):
                flags += [f"{flag}={item}" for item in value]
            elif value is True:
                flags.append(flag)
            elif value != field.default:
                text = f"{value:f}s" if field.name == "max_time" else value
                flags.append(f"{flag}={text}")
        return flags


DEFAULTS = TrainOptions()


def refuse_unusable(options: TrainOptions, recipe: Recipe) -> None:
    """Raise UserError for a script that cannot judge, or if no validation translates for it."""
    if options.script is not None and (problem := _problem_of(options.script)):
        raise WrongUsageError(f"--validation-script {options.script}: {problem}.")
    translates = recipe.validation.bleu != "off" or recipe.validation.parseval != "off"
    if not translates and (options.script is not None or options.keep_validations):
        option = "--keep-validations" if options.script is None else "--validation-script"
        raise UserError(
            f"{option} needs translations, but validation.bleu is off; set it to greedy or beam."
        )


def _problem_of(script: str) -> str | None:
    try:
        words = shlex.split(script)
    except ValueError as error:
        return str(error)
    if not any("{output}" in word for word in words):
        return (
            "{output} must be in the command; it stands for the file with the translations, as "
            "{source} and {reference} for those with the sources and the references"
        )
    if of_shell := SHELL_WORDS.intersection(words):
        return f"no shell reads the command, so {min(of_shell)} has no meaning; write bash -c '...'"
    if shutil.which(words[0]) is None:
        return f"there is no program {words[0]} to run (and no shell reads the command)"
    return None
