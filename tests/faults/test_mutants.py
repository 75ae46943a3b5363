"""The gate: each bug in ``mutants.py`` is found by a check of this folder."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.conftest import ToyExperiment
from tests.faults import mutants
from tests.faults.faults import fault, jump_clock
from tests.faults.run_directories import End, check_same_end, end_of, records
from tests.faults.test_changed_recipes import check_forbidden
from tests.faults.test_damaged_files import (
    check_all_damaged,
    check_damage_is_found,
    check_flipped_tokens_are_found,
    one_bit_flipped,
    truncated,
)
from tests.faults.test_finished_runs import check_finished, check_seeds
from tests.faults.test_full_disk import check_full_disk, check_third_failure
from tests.faults.test_kill_points import check_kill, kill
from tests.faults.test_killed_training import check_sentences
from tests.faults.test_non_finite_gradients import check_skipped, check_ten_in_a_row
from tests.faults.test_power_loss import check_states, record
from tests.faults.test_stopped_training import check_stopped
from tests.faults.trainings import Trainings


class World(NamedTuple):
    """What the checks need; ``trainings`` are those of a mutant."""

    trainings: Trainings
    toy: ToyExperiment
    folder: Path
    undisturbed_dir: Path
    expected: End


Check = Callable[[World], object]


def power_loss(world: World) -> None:
    recorded = record(world.trainings, world.toy.prepared, world.folder)
    check_states(recorded, 3, seed=1)


def kill_and_resume(world: World) -> None:
    check_kill(
        world.trainings, world.toy.prepared, world.folder / "run", world.expected,
        "before update", 8,
    )  # fmt: skip


def kill_past_the_best(world: World) -> None:
    """Validation gets worse after step 6, so that the best has to be remembered."""
    worse = world.trainings.with_overrides(
        "training.peak_learning_rate=3", "training.warmup_steps=14"
    )
    whole = world.folder / "whole"
    assert worse.run(whole).status == 0
    expected = end_of(whole)
    assert expected.validations[0]["loss"] < expected.validations[1]["loss"]
    check_kill(worse, world.toy.prepared, world.folder / "run", expected, "before update", 8)


def sentences_once(world: World) -> None:
    run_dir = world.folder / "run"
    short = world.trainings.with_overrides("training.max_steps=9999", "training.max_epochs=2")
    assert kill(short, world.toy.prepared, run_dir, "before update", 7)
    short.finish(run_dir)
    indices = [record["batch_index"] for record in end_of(run_dir).steps]
    assert check_sentences(world.toy, 120, indices) == 2


def damaged(world: World) -> None:
    finished = world.folder / "finished"
    assert world.trainings.run(finished).status == 0
    for damage in (truncated, one_bit_flipped):
        for seed in range(3):
            check_damage_is_found(
                world.trainings, finished, world.folder, world.expected, damage, seed
            )


def all_damaged(world: World) -> None:
    check_all_damaged(world.trainings, world.undisturbed_dir, world.folder)


def tokens_flipped(world: World) -> None:
    for seed in range(4):
        check_flipped_tokens_are_found(
            world.trainings, world.folder, world.undisturbed_dir, world.toy.prepared, seed
        )


def disk_full(world: World) -> None:
    check_full_disk(world.trainings, world.folder, world.expected, 20_000, 0.5)


def disk_stays_full(world: World) -> None:
    check_third_failure(world.trainings, world.folder, world.expected)


def not_finite(world: World) -> None:
    check_skipped(world.trainings, world.folder, world.expected, [5], "nan")


def never_finite(world: World) -> None:
    check_ten_in_a_row(world.trainings, world.folder)


def stopped(world: World) -> None:
    check_stopped(world.trainings, world.toy.prepared, world.folder / "run", world.expected, "step")


def seeds(world: World) -> None:
    check_seeds(world.trainings, world.folder)


def finished(world: World) -> None:
    run_dir = world.folder / "run"
    shutil.copytree(world.undisturbed_dir, run_dir)
    check_finished(world.trainings, run_dir)


def clock(world: World) -> None:
    run_dir = world.folder / "run"
    assert world.trainings.run(run_dir, faults=[fault(jump_clock)]).status == 0
    check_same_end(run_dir, world.expected)
    for line in records(run_dir):
        assert all(0 <= value < 60 for name, value in line.items() if "seconds" in name)


def forbidden(world: World) -> None:
    run_dir = world.folder / "run"
    shutil.copytree(world.undisturbed_dir, run_dir)
    check_forbidden(world.trainings, run_dir, "model.d_ff", 28, 30)


GATE: list[tuple[Callable[[], None], Check]] = [
    (mutants.save_without_renaming, power_loss),
    (mutants.rename_before_writing_is_done, power_loss),
    (mutants.no_fsync, power_loss),
    (mutants.no_fsync_of_the_folder, power_loss),
    (mutants.prune_the_last_but_one, damaged),
    (mutants.seed_ignores_the_batch, seeds),
    (mutants.seed_ignores_the_micro_batch, seeds),
    (mutants.randomness_goes_on, kill_and_resume),
    (mutants.resume_a_step_further, kill_and_resume),
    (mutants.resume_at_the_prefetched_batch, sentences_once),
    (mutants.resume_a_batch_back, sentences_once),
    (mutants.forget_the_moments, kill_and_resume),
    (mutants.forget_the_best, kill_past_the_best),
    (mutants.no_finite_guard, not_finite),
    (mutants.never_give_up, never_finite),
    (mutants.no_verification, damaged),
    (mutants.no_verification_of_tokens, tokens_flipped),
    (mutants.start_anew_beside_damage, all_damaged),
    (mutants.keep_old_records, kill_and_resume),
    (mutants.first_full_disk_ends, disk_full),
    (mutants.full_disks_never_end, disk_stays_full),
    (mutants.make_room_by_deleting, disk_full),
    (mutants.leave_without_saving, stopped),
    (mutants.never_complete, finished),
    (mutants.everything_may_change, forbidden),
    (mutants.wall_clock, clock),
]
CHECKS = sorted({check.__name__: check for _, check in GATE}.items())


@pytest.fixture
def world(trainings, toy, tmp_path, undisturbed_dir, undisturbed):
    return World(trainings, toy, tmp_path, undisturbed_dir, undisturbed)


@pytest.mark.slow
@pytest.mark.parametrize(("mutant", "check"), GATE, ids=lambda function: function.__name__)
def test_a_known_bug_is_found(world, mutant, check):
    seeded = world._replace(trainings=world.trainings.with_faults(fault(mutant)))
    with pytest.raises(AssertionError):
        check(seeded)


@pytest.mark.slow
@pytest.mark.parametrize("check", [check for _, check in CHECKS], ids=[name for name, _ in CHECKS])
def test_the_checks_find_nothing_in_the_product(world, check):
    check(world)


def test_every_mutant_is_in_the_gate():
    seeded = {mutant.__name__ for mutant, _ in GATE}
    public = {
        name
        for name, value in vars(mutants).items()
        if callable(value) and value.__module__ == mutants.__name__ and not name.startswith("_")
    }
    assert public - {"attribute", "replace"} == seeded


@pytest.mark.parametrize("mutant", [mutant for mutant, _ in GATE], ids=lambda m: m.__name__)
def test_a_mutant_replaces_what_the_product_has(mutant, monkeypatch):
    monkeypatch.setattr(mutants, "replace", lambda where, _: mutants.attribute(where))
    mutant()
