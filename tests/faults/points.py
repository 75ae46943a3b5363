"""Named moments of a training, reached in a fixed order: file operations, steps, validation."""

import re
from collections import Counter
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import torch

from tests.faults.file_operations import Operation, watch

NUMBERS = re.compile(r"-\d+")  # of steps
ORIGIN = re.compile(r"-[A-Za-z0-9_]+-[0-9a-f]{8}-[0-9a-f]{8}(?=/|$)")  # in temporary names
TENSORBOARD = "tensorboard"
IN_NO_ORDER = re.compile(r"(/\.delete-step)/.+")  # files as the folder lists them
Reached = Callable[[str], None]


def point_of(moment: str, operation: Operation, run_dir: Path) -> str:
    """Return the name of a file operation's moment, the same for every step and process."""
    name = f"{moment} {operation.kind} {_named(operation.path, run_dir)}"
    return name if operation.target is None else f"{name} to {_named(operation.target, run_dir)}"


def reach_points(run_dir: Path, prepared: Path, reached: Reached) -> None:
    """Call ``reached`` with the name of every point from now on."""

    def observe(moment: str, operation: Operation) -> None:
        if TENSORBOARD not in operation.path.parts:  # an extra; names of its files are random
            reached(point_of(moment, operation, run_dir))

    watch([run_dir, prepared], observe)
    _reach_points_of_computing(reached)


def do_at(point: str, nth: int, action: Callable[[], None]) -> Reached:
    """Return a callback that runs ``action`` when ``point`` is reached for the ``nth`` time."""
    counts: Counter[str] = Counter()

    def reached(name: str) -> None:
        counts[name] += 1
        if name == point and counts[name] == nth:
            action()

    return reached


def _reach_points_of_computing(reached: Reached) -> None:
    from torch.nn.modules.module import register_module_forward_pre_hook
    from torch.optim.optimizer import (
        register_optimizer_step_post_hook,
        register_optimizer_step_pre_hook,
    )

    from nmt_cli.metrics.scorer import Scorer

    was_training = True

    def during_forward(module: torch.nn.Module, _: Any) -> None:
        nonlocal was_training
        if was_training and not module.training:
            reached("start of validation")
        was_training = module.training
        reached("during forward" if module.training else "during validation")

    def backward(*arguments: Any, **settings: Any) -> None:
        reached("before backward")
        original_backward(*arguments, **settings)
        reached("after backward")

    def score(*arguments: Any) -> Any:
        reached("before bleu")
        return original_score(*arguments)

    original_backward, original_score = torch.Tensor.backward, Scorer.score
    torch.Tensor.backward = backward  # type: ignore[method-assign]
    Scorer.score = score  # type: ignore[assignment,method-assign]
    register_module_forward_pre_hook(during_forward)
    register_optimizer_step_pre_hook(lambda *_: reached("before update"))
    register_optimizer_step_post_hook(lambda *_: reached("after update"))


@cache  # each of the many writes of a file has the same one
def _named(path: Path, run_dir: Path) -> str:
    if path == run_dir or run_dir in path.parents:
        name = NUMBERS.sub("", ORIGIN.sub("", str(path.relative_to(run_dir.parent))))
        return IN_NO_ORDER.sub(r"\1/file", name)
    return "prepared/file"
