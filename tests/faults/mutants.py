"""Known bugs, seeded into the product in the process that runs it; each must be found by a test.

A name that the product no longer has ends the child with an error of its own, so that a mutant
that was not seeded never counts as found.
"""

import importlib
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any


def attribute(where: str) -> tuple[Any, str]:
    """Return the owner and the name of the attribute ``module:name`` or ``module:Class.name``.

    Raises AttributeError if the product does not have it.
    """
    module, name = where.split(":")
    owner: Any = importlib.import_module(module)
    *classes, name = name.split(".")
    for part in classes:
        owner = getattr(owner, part)
    getattr(owner, name)
    return owner, name


def replace(where: str, new: Callable[[Any], Any]) -> None:
    """Replace the attribute ``module:name`` or ``module:Class.name`` by ``new`` of what it was."""
    owner, name = attribute(where)
    setattr(owner, name, new(getattr(owner, name)))


def save_without_renaming() -> None:
    """Checkpoints are written under their final names."""

    def direct(_: Any) -> Any:
        from nmt_cli.files.atomic_files import Partial, write_manifest

        @contextmanager
        def appearing(directory: Path, *, replace: bool = False) -> Iterator[Partial]:
            shutil.rmtree(directory, ignore_errors=replace)
            directory.mkdir(parents=True)
            partial = Partial(directory, {})
            yield partial
            write_manifest(directory, partial.manifest)

        return appearing

    replace("nmt_cli.saved.training_state:directory_appearing_whole", direct)


def rename_before_writing_is_done() -> None:
    """The weights are written after the directory has its final name."""

    def early(original: Any) -> Any:
        def write_manifest(directory: Path, *arguments: Any) -> None:
            last = directory / "model.safetensors"
            content = last.read_bytes() if last.exists() else None
            original(directory, *arguments)
            if content is not None:
                last.write_bytes(content)

        return write_manifest

    def not_of_partial(original: Any) -> Any:
        return lambda path: None if ".partial-" in str(path) else original(path)

    replace("nmt_cli.files.atomic_files:write_manifest", early)
    replace("nmt_cli.files.atomic_files:_sync", not_of_partial)


def no_fsync() -> None:
    """No fsync of any file or folder."""
    replace("nmt_cli.files.atomic_files:_sync", lambda _: lambda path: None)


def no_fsync_of_the_folder() -> None:
    """The rename itself may be lost."""

    def not_of_folders(original: Any) -> Any:
        return lambda path: None if path.name == "checkpoints" else original(path)

    replace("nmt_cli.files.atomic_files:_sync", not_of_folders)


def prune_the_last_but_one() -> None:
    """Only one checkpoint can be resumed from."""
    replace("nmt_cli.saved.training_state:RESUMABLE_KEPT", lambda _: 1)


def seed_ignores_the_batch() -> None:
    """Every batch draws the same dropout."""
    replace(
        "nmt_cli.training.gradient.engine:micro_batch_seed",
        lambda original: lambda seed, batch_index, micro_batch: original(seed, 0, micro_batch),
    )


def seed_ignores_the_micro_batch() -> None:
    """Every micro-batch of a step draws the same dropout."""
    replace(
        "nmt_cli.training.gradient.engine:micro_batch_seed",
        lambda original: lambda seed, batch_index, micro_batch: original(seed, batch_index, 0),
    )


def randomness_goes_on() -> None:
    """Dropout depends on what the process drew before."""
    replace(
        "nmt_cli.training.gradient.engine:micro_batch_seed",
        lambda _: lambda *_: int.from_bytes(os.urandom(7), "big"),
    )


def _after_restoring(change: Callable[[Any], None]) -> None:
    def restoring(original: Any) -> Any:
        def restore(checkpoint: Any, state: Any, *others: Any) -> Any:
            result = original(checkpoint, state, *others)
            change(state)
            return result

        return restore

    replace("nmt_cli.saved.training_state:_restore", restoring)


def resume_a_step_further() -> None:
    """The step is off by one after a resume."""

    def further(state: Any) -> None:
        state.progress.step += 1

    _after_restoring(further)


def resume_at_the_prefetched_batch() -> None:
    """The cursor counted what was read ahead: a batch is lost."""

    def further(state: Any) -> None:
        state.progress.batch_index += 1

    _after_restoring(further)


def resume_a_batch_back() -> None:
    """A batch is used twice."""

    def back(state: Any) -> None:
        state.progress.batch_index -= 1

    _after_restoring(back)


def forget_the_moments() -> None:
    """The optimizer starts anew."""
    _after_restoring(lambda state: state.optimizer.state.clear())


def forget_the_best() -> None:
    """A resume forgets the best validation."""

    def forget(state: Any) -> None:
        state.progress.best_quality = None

    _after_restoring(forget)


def no_finite_guard() -> None:
    """Gradients that are not finite update the weights too."""
    replace(
        "nmt_cli.training.gradient.gradient_sum:GradientFigures.is_finite",
        lambda _: property(lambda figures: True),
    )

    def not_found(step: Any) -> Any:
        def stepping(optimizer: Any) -> None:
            optimizer.found_inf = None
            step(optimizer)

        return stepping

    replace("nmt_cli.optimization:Adam.step", not_found)


def never_give_up() -> None:
    """Batches are skipped without end."""
    replace("nmt_cli.training.training:Training.count_skipped", lambda _: lambda *_: None)


def no_verification() -> None:
    """Checkpoints are read without comparing them with their manifest."""
    from nmt_cli.files.atomic_files import read_manifest

    replace("nmt_cli.saved.training_state:verify", lambda _: read_manifest)


def no_verification_of_tokens() -> None:
    """Token files are read without comparing them with their manifest."""
    from nmt_cli.files.atomic_files import read_manifest

    replace("nmt_cli.corpus.prepared:verify", lambda _: read_manifest)


def start_anew_beside_damage() -> None:
    """If no checkpoint can be read, training starts from random weights."""
    from nmt_cli.messages.errors import UserError

    def forgiving(original: Any) -> Any:
        def resume(*arguments: Any) -> Any:
            try:
                return original(*arguments)
            except UserError:
                return None

        return resume

    replace("nmt_cli.training.starting:_resume", forgiving)


def keep_old_records() -> None:
    """The log keeps the records of steps that are repeated after a resume."""

    def keeping(_: Any) -> Any:
        return lambda path, _: iter([path.read_bytes()] if path.exists() else [])

    replace("nmt_cli.saved.metrics_log:_lines_of", keeping)


def first_full_disk_ends() -> None:
    """One failed save ends training."""
    replace("nmt_cli.training.saving:MAX_FAILED_SAVES", lambda _: 1)


def full_disks_never_end() -> None:
    """Training goes on without ever saving."""
    replace("nmt_cli.training.saving:MAX_FAILED_SAVES", lambda _: 1_000)


def make_room_by_deleting() -> None:
    """All checkpoints are deleted before the next is written."""

    def deleting(original: Any) -> Any:
        def save(run_dir: Path, *arguments: Any, **settings: Any) -> Any:
            for path in (run_dir / "checkpoints").glob("step-*"):
                shutil.rmtree(path)
            return original(run_dir, *arguments, **settings)

        return save

    replace("nmt_cli.training.saving:save_checkpoint", deleting)


def leave_without_saving() -> None:
    """A signal ends training, and the steps since the last checkpoint are lost."""

    def except_when_leaving(original: Any) -> Any:
        def save(saver: Any, kind: str, *, forgiving: bool = True) -> Any:
            is_leaving = kind == "safety" and not forgiving
            return 0.0 if is_leaving else original(saver, kind, forgiving=forgiving)

        return save

    replace("nmt_cli.training.saving:Saver.save", except_when_leaving)


def never_complete() -> None:
    """A finished run starts another session."""

    def unfinished(original: Any) -> Any:
        return type("Unfinished", (original,), {"is_complete": lambda *_: False})

    replace("nmt_cli.training.starting:Training", unfinished)


def everything_may_change() -> None:
    """A resume accepts any change of the recipe."""
    from nmt_cli.recipe.keys import ChangeKind

    replace("nmt_cli.recipe.keys:change_kind", lambda _: lambda *_: ChangeKind.FREE)


def wall_clock() -> None:
    """The seconds of steps and saves are differences of the wall clock.

    Elsewhere the monotonic clock stays: a sleep until a time of the jumping clock takes a day.
    """

    def of_the_wall(time: Any) -> Any:
        return SimpleNamespace(monotonic=lambda: time.time())

    for module in ("training.trainer", "training.saving"):
        replace(f"nmt_cli.{module}:time", of_the_wall)
