"""kill -9 while an average replaces another: one of them is found afterwards, and nothing stays."""

import hashlib
import shutil
import signal
from collections.abc import Sequence
from pathlib import Path

import pytest

from nmt_cli.saved.model_directory import load_model
from tests.faults.faults import fault, kill_at, list_points
from tests.faults.run_directories import leftovers
from tests.faults.trainings import Command, Ended, Fault

MOMENTS = [
    "after create run/.partial-average/model.safetensors",
    "before rename run/average to run/.replaced-average",
    "after rename run/average to run/.replaced-average",
    "before rename run/.partial-average to run/average",
    "after rename run/.partial-average to run/average",
    "before rename run/.replaced-average to run/.delete-average",
    "after rename run/.replaced-average to run/.delete-average",
    "after unlink run/.delete-average/model.safetensors",
    "before unlink run/.lock-average",
]


@pytest.fixture(scope="session")
def average(zygote, session_folder):
    def run(run_dir: Path, last: int, faults: Sequence[Fault] = ()) -> Ended:
        arguments = ["average-checkpoints", str(run_dir), f"--last={last}", "--force"]
        stderr = run_dir.with_name(f"{run_dir.name}.stderr")
        return Command(zygote, arguments, stderr, faults).wait()

    return run


@pytest.fixture(scope="session")
def averaged(average, undisturbed_dir, session_folder):
    """A run with the average of its last checkpoint."""
    run_dir = session_folder / "averaged" / "run"
    shutil.copytree(undisturbed_dir, run_dir)
    assert average(run_dir, 1).status == 0
    return run_dir


def sha256_of_model(run_dir):
    """Return what ``translate RUN`` would use, which must be the average."""
    path = load_model(run_dir).path
    assert path == run_dir / "average"
    return hashlib.sha256((path / "model.safetensors").read_bytes()).hexdigest()


@pytest.fixture(scope="session")
def old_and_new(average, averaged, session_folder):
    old = sha256_of_model(averaged)
    run_dir = session_folder / "renewed" / "run"
    shutil.copytree(averaged, run_dir)
    points = session_folder / "points-of-averaging"
    listing = fault(list_points, run_dir=str(run_dir), prepared="/nowhere", output=str(points))
    assert average(run_dir, 2, [listing]).status == 0
    reached = points.read_text().splitlines()
    renames = [point for point in reached if " rename " in point]
    assert set(renames) <= set(MOMENTS), f"kill at {renames} too"
    return [old, sha256_of_model(run_dir)]


@pytest.mark.parametrize("point", MOMENTS)
def test_an_average_is_never_hidden_by_a_kill(average, averaged, old_and_new, tmp_path, point):
    run_dir = tmp_path / "run"
    shutil.copytree(averaged, run_dir)
    killing = fault(kill_at, run_dir=str(run_dir), prepared="/nowhere", point=point, nth=1)
    assert average(run_dir, 2, [killing]).status == -signal.SIGKILL, "it was not reached"
    is_hidden = not (run_dir / "average").exists()
    assert is_hidden == (point in {MOMENTS[2], MOMENTS[3]})
    killed_late = point in MOMENTS[4:]
    assert sha256_of_model(run_dir) == old_and_new[killed_late]


@pytest.mark.parametrize("point", MOMENTS)
def test_the_next_averaging_leaves_nothing_of_a_killed_one(
    average, averaged, old_and_new, tmp_path, point
):
    run_dir = tmp_path / "run"
    shutil.copytree(averaged, run_dir)
    killing = fault(kill_at, run_dir=str(run_dir), prepared="/nowhere", point=point, nth=1)
    assert average(run_dir, 2, [killing]).status == -signal.SIGKILL, "it was not reached"
    ended = average(run_dir, 2)
    assert ended.status == 0, ended.stderr
    assert leftovers(run_dir) == []
    assert sha256_of_model(run_dir) == old_and_new[1]
