"""The options of a training: of ``train``, and of the trainings of ``run`` and ``compare``.

They have a module of their own, because these commands need them before they import torch.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path

from nmt_cli.hardware.machine_options import MachineOptions

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
    workers: int | None = None  # of preprocess, in ``run``
    devices: int | None = None
    nnodes: int = 1
    rdzv_endpoint: str | None = None
    rdzv_id: str | None = None
    in_run: bool = False  # this is a stage of ``run``, which averages the checkpoints itself

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
