"""A finished run started again, and clocks that jump: nothing happens."""

import shutil

from tests.faults.conftest import MAX_STEPS
from tests.faults.faults import fault, jump_clock, log_seeds
from tests.faults.run_directories import check_same_end, hashes, records


def check_finished(trainings, run_dir):
    """Resume a finished run twice; assert that no file was written, but for the lock."""
    before = hashes(run_dir)
    paths = [path for path in run_dir.rglob("*") if path.name != "run.lock"]
    modified = [path.stat().st_mtime_ns for path in paths]
    for _ in range(2):
        trainings.finish(run_dir)
        assert hashes(run_dir) == before
        assert [path.stat().st_mtime_ns for path in paths] == modified


def test_a_finished_run_started_again_writes_nothing(trainings, undisturbed_dir, tmp_path):
    run_dir = tmp_path / "run"
    shutil.copytree(undisturbed_dir, run_dir)
    check_finished(trainings, run_dir)


def test_jumps_of_the_clock_have_no_effect(trainings, tmp_path, undisturbed):
    run_dir = tmp_path / "run"
    ended = trainings.run(run_dir, faults=[fault(jump_clock)])
    assert ended.status == 0, ended.stderr
    check_same_end(run_dir, undisturbed)
    for record in records(run_dir):
        assert all(0 <= value < 60 for name, value in record.items() if "seconds" in name)


def check_seeds(trainings, folder):
    """Assert that no two micro-batches draw the same dropout, also in a resumed run."""
    log, run_dir = folder / "seeds", folder / "run"
    logged = fault(log_seeds, output=str(log))
    cut = trainings.with_overrides("validation.bleu=off", "training.max_steps=8")
    small = ("--max-tokens-per-device=60",)  # two micro-batches a step
    assert cut.run(run_dir, *small, faults=[logged]).status == 0
    longer = trainings.with_overrides("validation.bleu=off")
    assert longer.run(run_dir, "--resume", *small, faults=[logged]).status == 0
    seeds = log.read_text().split()
    initial = seeds.pop(0)
    seeds = [seed for seed in seeds if seed != initial]  # of the weights, once for each process
    assert len(seeds) >= 2 * MAX_STEPS
    assert len(set(seeds)) == len(seeds)


def test_every_micro_batch_draws_other_dropout(trainings, tmp_path):
    check_seeds(trainings, tmp_path)
