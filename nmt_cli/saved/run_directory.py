"""A run directory: which process may train in it, with which recipe, and what it writes there."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import Any

from nmt_cli.files import atomic_files, locks
from nmt_cli.files.file_names import (
    AVERAGE,
    CHECKPOINT_GLOB,
    CHECKPOINTS,
    LOCK,
    MANIFEST,
    METRICS,
    RECIPE,
    RUNS,
    SCORES,
    SESSIONS,
    STATUS,
    TENSORBOARD,
    TEST,
    TRAINING_STATE,
    VALIDATIONS,
)
from nmt_cli.files.folders import REPORT, not_a_run
from nmt_cli.files.temporary_names import Names, remove_leftovers, restore_names
from nmt_cli.launch.run_status import is_finished
from nmt_cli.messages import logs
from nmt_cli.messages.errors import EndedAtOnceError, UserError, WrongUsageError
from nmt_cli.messages.proposals import any_of, command
from nmt_cli.recipe.keys import Change, ChangeKind, changed_keys, key_at, needs_training
from nmt_cli.recipe.reading.reader import read_recipe
from nmt_cli.recipe.reading.recipe_files import dump_recipe
from nmt_cli.recipe.schema import Recipe
from nmt_cli.saved.checkpoints import CHECKPOINT_NAME, list_checkpoints

MOST_LOOKED_AT, MOST_NAMED = 100, 3  # runs beside one without checkpoints, for --resume
LAST_BYTES_OF_LOG = 10_000  # longer than a line
LEFTOVERS = re.compile("|".join(map(re.escape, (RECIPE, METRICS, STATUS))))
RESULTS = (CHECKPOINTS, AVERAGE, TEST, SCORES, REPORT, TENSORBOARD, VALIDATIONS)


class RunInUseError(UserError):
    """Another process trains in the run directory, so this one must not change anything there."""


@contextmanager
def locked(run_dir: Path, *, is_logged: bool = True) -> Iterator[None]:
    """Hold the run for this process alone.

    Raises RunInUseError if another process trains in it, and UserError if it is not a run or cannot
    be written. On a file system without locks another process is not noticed, which is a warning if
    ``is_logged``, and no leftovers of killed processes are removed.

    If no session begins, the lock file and the folders that were made for it are removed again.
    """
    if run_dir.exists() and not run_dir.is_dir():
        raise UserError(f"{run_dir} is a file; choose another --run-dir.")
    _refuse_foreign(run_dir)
    existed, before = (run_dir / LOCK).exists(), _size(run_dir / SESSIONS)
    with ExitStack() as stack:
        try:
            stack.enter_context(
                locks.locked(
                    run_dir / LOCK,
                    "trains in it",
                    lambda: existed or _size(run_dir / SESSIONS) != before,
                )
            )
        except locks.LockHeldError as error:
            raise RunInUseError(
                f"{run_dir} is in use: {error}; wait for it, or choose another --run-dir."
            ) from None
        except locks.NoLocksError as error:
            if is_logged:
                logs.warning(
                    f"{run_dir} cannot be locked ({error}): if another process trains in it at the "
                    "same time, both are lost. Start only one."
                )
            _clean_up(run_dir, restore_names)
        except OSError as error:
            if atomic_files.is_failed_write(error):
                raise
            option = "--run-dir"
            if any((run_dir / CHECKPOINTS).glob(CHECKPOINT_GLOB)):
                option += ", and copy the run there to go on with it"
            raise locks.UnwritableOutputError.of(error, option) from None
        else:
            _clean_up(run_dir, remove_leftovers)
        yield


def remove_run(run_dir: Path) -> None:
    """Remove what a run wrote, and leave other files, such as runs of other seeds.

    Raises RunInUseError if another process trains in it.
    """
    with locked(run_dir, is_logged=False):
        for name in RESULTS:  # without checkpoints, the rest is no finished run
            atomic_files.remove_directory(run_dir / name)
        for name in (STATUS, METRICS, RECIPE):
            (run_dir / name).unlink(missing_ok=True)
        if (run_dir / SESSIONS).exists():
            (run_dir / SESSIONS).write_bytes(b"")  # stays the mark of a run beside those within it


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _clean_up(run_dir: Path, clean: Callable[[Path, Names], None]) -> None:
    clean(run_dir, LEFTOVERS)
    clean(run_dir / CHECKPOINTS, CHECKPOINT_NAME)
    for checkpoint in (run_dir / CHECKPOINTS).glob(CHECKPOINT_GLOB):
        clean(checkpoint, MANIFEST)


def check_run_directory(
    run_dir: Path, recipe: Recipe, *, resume: bool, allowed: Sequence[str], is_logged: bool = True
) -> bool:
    """Return whether there is a checkpoint to resume from; log what changed if ``is_logged``.

    Raises UserError if the folder is not a run, if it holds checkpoints but ``resume`` is not
    given, if the recipe changed in a key that is neither free nor ``allowed``, or if a key in
    ``allowed`` does not exist.
    """
    _refuse_foreign(run_dir)
    if not any((run_dir / CHECKPOINTS).glob(CHECKPOINT_GLOB)):
        if resume and is_logged:
            others = [command("--run-dir", run) for run in _of_same_recipe(run_dir, recipe)]
            hint = f" To continue a run of this recipe, give {any_of(others)}." if others else ""
            logs.warning(
                f"{run_dir} holds no checkpoint to resume from; training starts anew.{hint}"
            )
        return False
    checkpoints = list_checkpoints(run_dir)
    if not resume:
        last = f"up to step {checkpoints[-1].step:,}" if checkpoints else "that are damaged"
        raise UserError(
            f"{run_dir} already holds checkpoints {last}. "
            "Add --resume to continue, or choose another --run-dir."
        )
    for change in _accepted_changes(run_dir, recipe, allowed):
        if is_logged:
            logs.info(f"Recipe changed: {change}.")
    return True


def _of_same_recipe(run_dir: Path, recipe: Recipe) -> list[Path]:
    """Return the runs beside ``run_dir`` that training could continue with ``recipe``."""
    pattern = f"[!.]*/{CHECKPOINTS}/{CHECKPOINT_GLOB}"
    runs = dict.fromkeys(path.parents[1] for path in sorted(run_dir.parent.glob(pattern)))
    found = []
    for run in islice(runs, MOST_LOOKED_AT):
        with suppress(UserError):  # its recipe is missing or damaged
            if all(change.kind is ChangeKind.FREE for change in changes_since(run, recipe)):
                found.append(run)
    return found[:MOST_NAMED]


def _accepted_changes(run_dir: Path, recipe: Recipe, allowed: Sequence[str]) -> list[Change]:
    """Return what the recipe changes within the run. Raises UserError for a change it may not."""
    changes, refused, accepted = changes_since(run_dir, recipe), [], []
    for key in allowed:
        if key_at(key) is None:
            raise WrongUsageError(
                f"--allow-change {key}: there is no such key; nmt-cli recipes keys lists them."
            )
    for change in changes:
        if change.kind is ChangeKind.FORBIDDEN:
            refused.append(f"{change} cannot change within a run")
        elif change.kind is ChangeKind.DECLARED and change.key not in allowed:
            refused.append(f"{change} needs --allow-change {change.key}")
        else:
            accepted.append(change)
    if refused:
        raise UserError(f"{run_dir} was trained with another recipe: {'; '.join(refused)}.")
    return accepted


def _refuse_foreign(run_dir: Path) -> None:
    """Raise UserError for a folder of another kind, or for files that no session has written."""
    if not run_dir.resolve().name:
        raise UserError(f"{run_dir} is the whole file system; choose another --run-dir.")
    if (run_dir / SESSIONS).exists() or any((run_dir / CHECKPOINTS).glob(CHECKPOINT_GLOB)):
        return
    if found := not_a_run(run_dir):
        raise UserError(f"{run_dir} {found}; choose another --run-dir.")
    for name in (RECIPE, METRICS):
        if (run_dir / name).exists():
            raise UserError(
                f"{run_dir / name} exists and is not a run's; choose another --run-dir."
            )


def ended_at_once(run_dir: Path) -> EndedAtOnceError:
    """Return the error for a training that a second interrupt ended, with what is saved and lost.

    Call it only after all processes that trained in ``run_dir`` have ended.
    """
    saved = [c for c in list_checkpoints(run_dir) if TRAINING_STATE in c.manifest["files"]]
    first_lost, last_lost = saved[-1].step + 1 if saved else 1, _last_logged_step(run_dir)
    lost = f"steps {first_lost:,} to {last_lost:,} are lost"
    if last_lost < first_lost:
        lost = "what was trained after it is lost" if saved else "no step was made"
    if not saved:
        return EndedAtOnceError(
            f"Training was interrupted twice and ended at once. {run_dir} holds no checkpoint yet: "
            f"{lost}. Run the same command again to start anew."
        )
    return EndedAtOnceError(
        f"Training was interrupted twice and ended at once. {saved[-1].path} is saved; {lost}. "
        "Run the same command with --resume to continue from there."
    )


def _last_logged_step(run_dir: Path) -> int:
    """Return the step of the last complete line of metrics.jsonl; 0 if there is none."""
    try:
        with (run_dir / METRICS).open("rb") as stream:
            stream.seek(max(0, stream.seek(0, os.SEEK_END) - LAST_BYTES_OF_LOG))
            last_line = stream.read().rpartition(b"\n")[0].rpartition(b"\n")[2]
        return int(json.loads(last_line)["step"])
    except (OSError, ValueError, KeyError, TypeError):
        return 0


def describe_session(run_dir: Path, recipe: Recipe, session: dict[str, Any]) -> None:
    """Write the resolved recipe, and a line about this session: versions and machine."""
    atomic_files.make_folders(run_dir)  # a lock made it, except where there are none
    atomic_files.append_whole(run_dir / SESSIONS, f"{json.dumps(session)}\n".encode())
    _record_recipe(run_dir, recipe)


def last_session(run_dir: Path) -> dict[str, Any]:
    """Return what ``describe_session`` wrote last; nothing if that is missing or damaged."""
    try:
        session = json.loads((run_dir / SESSIONS).read_bytes().splitlines()[-1])
    except (OSError, ValueError, IndexError, RecursionError):
        return {}
    return session if isinstance(session, dict) else {}


def changes_since(run_dir: Path, recipe: Recipe) -> list[Change]:
    """Return every key that differs from the recipe that was trained in ``run_dir``."""
    return changed_keys(read_recipe(str(run_dir / RECIPE)).recipe, recipe)


def is_trained_by(recipe: Recipe, run_dir: Path) -> bool:
    """Return whether the training in ``run_dir`` came to an end that is that of ``recipe``."""
    return is_finished(run_dir) and not needs_training(changes_since(run_dir, recipe))


def refuse_changes(
    run_dir: Path, recipe: Recipe, kinds: Collection[ChangeKind], remedy: str
) -> None:
    """Raise UserError if a key of one of these ``kinds`` differs from what was trained."""
    changes = [str(each) for each in changes_since(run_dir, recipe) if each.kind in kinds]
    if changes:
        what = f"{run_dir} was trained with another recipe: {', '.join(changes)}."
        raise UserError(f"{what} Choose another {remedy}.")


def record_changes(run_dir: Path, recipe: Recipe) -> None:
    """Write the resolved recipe of a finished run, if a key of it has changed."""
    if changes_since(run_dir, recipe):
        _record_recipe(run_dir, recipe)


def _record_recipe(run_dir: Path, recipe: Recipe) -> None:
    with atomic_files.file_appearing_whole(run_dir / RECIPE, replace=True) as stream:
        stream.write(dump_recipe(recipe, run=name_of_run(run_dir)).encode())


def name_of_run(run_dir: Path) -> str:
    """Return the name whose default run directory is ``run_dir``, such as table3/c-2-layers.

    For a directory elsewhere, it is the last part of its path.
    """
    absolute, runs = run_dir.absolute(), Path(RUNS).absolute()
    inside = absolute.relative_to(runs) if absolute.is_relative_to(runs) else Path()
    return inside.as_posix() if inside.parts and ".." not in inside.parts else absolute.name
