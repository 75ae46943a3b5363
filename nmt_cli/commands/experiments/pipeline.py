"""One pipeline for ``run`` and ``distil``: a list of stages.

A stage is skipped if what it makes is whole and was made from the present inputs and settings; the
others are made, or go on where they were interrupted.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nmt_cli.files.atomic_files import Partial, directory_appearing_whole, verify
from nmt_cli.files.folders import DISTILLED, may_become
from nmt_cli.files.locks import OutputInUseError, UnwritableOutputError, claimed
from nmt_cli.messages import errors, logs

# The stages of ``run`` and ``distil`` in their order, for --help: what makes them imports torch.
STAGES_OF_RUN = ("preprocess", "train", "average", "translate", "score", "report")
STAGES_OF_DISTIL = (
    *("texts", "teach", "choose", "filter", "align"),
    *("preprocess", "lexicon", "train", "average", "round", "ship", "measure", "report"),
)


@dataclass(frozen=True)
class PipelineStage:
    """One stage of a pipeline.

    ``make`` gets whether it was asked for by --force-from. A stage that ``is_optional`` may be left
    out without a warning.
    """

    name: str
    subject: Any  # the experiment or the distillation that its functions get
    is_made: Callable[[Any], bool]
    make: Callable[[Any, bool], None]
    why_left_out: str | None = None
    is_optional: bool = False


def folder_stage(
    subject: Any,
    name: str,
    folder: Path,
    kind: str,
    made_from: Callable[[Any], Any],
    fill: Callable[[Any, Partial], None],
    why_left_out: str | None = None,
) -> PipelineStage:
    """Return a stage that makes ``folder``, which stays as long as ``made_from`` is equal.

    ``fill`` writes its files, and may add to its manifest.
    """

    def make(subject: Any, _: bool) -> None:
        inputs = made_from(subject)
        with replacing(folder) as partial:
            partial.manifest.update(kind=kind, made_from=inputs)
            fill(subject, partial)

    def is_made(subject: Any) -> bool:
        return was_made_from(folder, made_from(subject))

    return PipelineStage(name, subject, is_made, make, why_left_out, is_optional=kind == DISTILLED)


def was_made_from(
    folder: Path,
    made_from: object,
    recorded: Callable[[dict[str, Any]], object] = lambda manifest: manifest.get("made_from"),
) -> bool:
    """Return whether ``folder`` is whole and was made from this, as its manifest records it."""
    try:
        return recorded(verify(folder)) == made_from
    except errors.DamagedError:
        return False


@contextmanager
def replacing(folder: Path) -> Iterator[Partial]:
    """Yield what becomes ``folder``; no other process writes it meanwhile."""
    with claimed(folder, "--run-dir"), directory_appearing_whole(folder, replace=True) as partial:
        yield partial


def refuse_foreign(replaced: Mapping[Path, str], command: str, option: str = "--run-dir") -> None:
    """Raise UserError if ``command`` would replace a folder of the user.

    ``replaced`` has the kinds of its own folders. ``option`` names another folder for runs.
    """
    for folder, kind in replaced.items():
        if not may_become(folder, kind):
            raise errors.UserError(
                f"{folder} exists, and `nmt-cli {command}` did not write it; move it away, or "
                f"choose another {option}."
            )


def wanted_stages(names: Sequence[str], until: str, force_from: str | None) -> Sequence[str]:
    """Return the ``names`` up to ``until``.

    Raises WrongUsageError if ``force_from`` is a later one.
    """
    if force_from is not None and names.index(force_from) > names.index(until):
        raise errors.WrongUsageError(
            f"--force-from {force_from} comes after --until {until}; "
            f"the stages are {', '.join(names)}."
        )
    return names[: names.index(until) + 1]


def take_through(stages: Sequence[PipelineStage], force_from: str | None, anew: str) -> None:
    """Make the ``stages`` that are not made yet, and all from ``force_from`` on.

    What will be done is logged before, a line for each stage. ``anew`` is how to train anew. Raises
    UserError, which names the stage that failed.
    """
    to_do: list[PipelineStage] = []
    for stage in stages:
        with naming(stage.name, anew):
            if stage.why_left_out is not None:
                log = logs.info if stage.is_optional else logs.warning
                log(f"{stage.name} is left out: {stage.why_left_out}")
                continue
            if stage.name == force_from:
                why = "anew, because of --force-from"
            elif to_do:
                why = f"after {to_do[0].name}"
            elif stage.is_made(stage.subject):
                logs.info(f"{stage.name}: unchanged, skipped.")
                continue
            else:
                why = "to do"
        to_do.append(stage)
        logs.info(f"{stage.name}: {why}.")
    is_forced = False
    for stage in stages:
        is_forced = is_forced or stage.name == force_from
        if stage in to_do:
            with naming(stage.name, anew):
                if not is_forced and stage.is_made(stage.subject):
                    logs.info(f"{stage.name}: unchanged, skipped.")
                    continue
                logs.info(f"{stage.name}:")
                stage.make(stage.subject, is_forced)


@contextmanager
def naming(name: str, anew: str) -> Iterator[None]:
    """Name the stage in its errors, and how to go on; ``anew`` is how to train anew."""
    try:
        yield
    except errors.InterruptedTrainingError:
        raise
    except errors.UserError as error:
        # Only train refuses to replace what is there; all other stages are made anew in any case.
        problem = str(error)
        if isinstance(error, OutputInUseError | UnwritableOutputError):
            problem = problem.replace("another --output.", "another --run-dir.")
        or_anew = f"; {anew}" if name == "train" else ""
        error.args = (
            f"{name} failed: {problem} When this is corrected, the same command goes on with "
            f"{name}{or_anew}.",
        )
        raise
