"""Takes an experiment through its stages: what is up to date is skipped, the rest is made."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from nmt_cli.files.atomic_files import Partial, directory_appearing_whole, verify
from nmt_cli.files.locks import OutputInUseError, UnwritableOutputError, claimed
from nmt_cli.messages import errors, logs

# The stages of ``run`` and ``distil`` in their order, for --help: what makes them imports torch.
STAGE_NAMES = ("preprocess", "train", "average", "translate", "score", "report")
STAGES_OF_DISTIL = (
    *("texts", "teach", "choose", "filter", "align"),
    *("preprocess", "lexicon", "train", "average", "round", "ship", "measure", "report"),
)
Subject = TypeVar("Subject")


def never_left_out(_: object) -> None:
    """Return no reason to leave a stage out."""


@dataclass(frozen=True)
class Stage(Generic[Subject]):
    """One step of an experiment; ``make`` gets whether it was asked for by --force-from.

    A stage that ``is_optional`` may be left out without a warning.
    """

    is_current: Callable[[Subject], bool]
    make: Callable[[Subject, bool], None]
    why_left_out: Callable[[Subject], str | None] = never_left_out
    is_optional: bool = False
    replaces: tuple[Callable[[Subject], Path], str] | None = None  # a folder, and its kind


def wanted_stages(
    stages: Mapping[str, Stage[Subject]], until: str, force_from: str | None
) -> list[str]:
    """Return the names of the stages up to ``until``.

    Raises WrongUsageError if ``force_from`` is a later one.
    """
    names = list(stages)
    if force_from is not None and names.index(force_from) > names.index(until):
        raise errors.WrongUsageError(
            f"--force-from {force_from} comes after --until {until}; "
            f"the stages are {', '.join(names)}."
        )
    return names[: names.index(until) + 1]


def take_through(
    stages: Mapping[str, Stage[Subject]],
    subject: Subject,
    wanted: list[str],
    force_from: str | None,
    anew: str,
) -> None:
    """Make the ``wanted`` stages that are not up to date, and all from ``force_from`` on.

    What will be done is logged before, a line for each stage. ``anew`` is how to train anew. Raises
    UserError, which names the stage that failed.
    """
    open_stages: list[str] = []
    for name in wanted:
        stage = stages[name]
        with naming(name, anew):
            if (reason := stage.why_left_out(subject)) is not None:
                log = logs.info if stage.is_optional else logs.warning
                log(f"{name} is left out: {reason}")
                continue
            if name == force_from:
                why = "anew, because of --force-from"
            elif open_stages:
                why = f"after {open_stages[0]}"
            elif stage.is_current(subject):
                logs.info(f"{name}: unchanged, skipped.")
                continue
            else:
                why = "to do"
        open_stages.append(name)
        logs.info(f"{name}: {why}.")
    is_forced = False
    for name in wanted:
        is_forced = is_forced or name == force_from
        if name in open_stages:
            with naming(name, anew):
                if not is_forced and stages[name].is_current(subject):
                    logs.info(f"{name}: unchanged, skipped.")
                    continue
                logs.info(f"{name}:")
                stages[name].make(subject, is_forced)


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


@contextmanager
def replacing(folder: Path) -> Iterator[Partial]:
    """Yield what becomes ``folder``; no other process writes it meanwhile."""
    with claimed(folder, "--run-dir"), directory_appearing_whole(folder, replace=True) as partial:
        yield partial


def was_made_from(folder: Path, made_from: Mapping[str, Any]) -> bool:
    """Return whether ``folder`` is whole and was made from this."""
    try:
        return bool(verify(folder).get("made_from") == made_from)
    except errors.DamagedError:
        return False


def stage_of_folder(
    folder_of: Callable[[Subject], Path],
    made_from: Callable[[Subject], dict[str, Any]],
    fill: Callable[[Subject, Partial], None],
    why_left_out: Callable[[Subject], str | None] = never_left_out,
    *,
    kind: str,
    is_optional: bool = False,
) -> Stage[Subject]:
    """Return a stage that makes a folder, which is up to date as long as ``made_from`` is equal.

    ``fill`` writes its files, and may add facts to its manifest.
    """

    def make(subject: Subject, _: bool) -> None:
        facts = made_from(subject)
        with replacing(folder_of(subject)) as partial:
            partial.facts.update(kind=kind, made_from=facts)
            fill(subject, partial)

    return Stage(
        lambda subject: was_made_from(folder_of(subject), made_from(subject)),
        make,
        why_left_out,
        is_optional,
        (folder_of, kind),
    )
