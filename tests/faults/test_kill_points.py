"""kill -9 at every named moment of a training, which then goes on to the undisturbed end.

A moment is a file operation (before and after it; in the middle of a write), a part of a step, or
of a validation. Two scenarios reach all of them: a new training, and one that was stopped in a
validation, whose checkpoint the resumed training replaces.
"""

import re
import shutil
import signal
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.faults.faults import fault, kill_at, list_points, signal_at
from tests.faults.kill_points import NEW, RESUMED
from tests.faults.run_directories import End, check_same_end, check_whole, checkpoints
from tests.faults.trainings import Trainings

CHAINS = 6
# A kill at fsync leaves the same files as a kill at the next point; only a power loss differs.
SAME_AS_NEXT = re.compile(r"after (close|fsync) .*|before read run/checkpoints/.partial-step/.*")
QUICK = [point for point in NEW if not SAME_AS_NEXT.fullmatch(point)]
MOST_OFTEN = 3  # kills at one point that is reached again and again


def stopped_in_validation(trainings: Trainings, prepared: Path, run_dir: Path) -> Path:
    """Train until SIGTERM comes in the validation of step 12, which is saved unmeasured."""
    stop = fault(
        signal_at,
        run_dir=str(run_dir), prepared=str(prepared), point="start of validation", nth=2,
        numbers=[int(signal.SIGTERM)],
    )  # fmt: skip
    assert trainings.run(run_dir, faults=[stop]).status == 75
    return run_dir


def points_of(trainings: Trainings, prepared: Path, run_dir: Path) -> Counter[str]:
    """Return how often each point is reached by a training, in the order of the first times."""
    output = run_dir.with_name("points")
    listing = fault(list_points, run_dir=str(run_dir), prepared=str(prepared), output=str(output))
    assert trainings.run(run_dir, "--resume", faults=[listing]).status == 0
    return Counter(output.read_text().splitlines())


def kill(trainings: Trainings, prepared: Path, run_dir: Path, point: str, nth: int = 1) -> bool:
    """Train until the point, where SIGKILL comes; return False if it was not reached."""
    killing = fault(kill_at, run_dir=str(run_dir), prepared=str(prepared), point=point, nth=nth)
    ended = trainings.run(run_dir, "--resume", faults=[killing])
    assert ended.status in {0, -signal.SIGKILL}, f"after {point}: {ended.stderr}"
    return ended.status != 0


def check_kill(
    trainings: Trainings, prepared: Path, run_dir: Path, expected: End, point: str, nth: int = 1
) -> None:
    """Kill at the point, resume, and assert the undisturbed end."""
    assert kill(trainings, prepared, run_dir, point, nth), f"{point} was not reached"
    trainings.finish(run_dir)
    check_same_end(run_dir, expected)


def check_kills(
    trainings: Trainings, prepared: Path, folder: Path, expected: End, points: Sequence[str]
) -> None:
    """Like ``check_kill`` at each point in turn, in one training, or a new one if it has ended."""
    number = 0
    run_dir = folder / "0" / "run"
    for point in points:
        run_dir.parent.mkdir(exist_ok=True)
        if not kill(trainings, prepared, run_dir, point):
            check_same_end(run_dir, expected)
            number += 1
            run_dir = folder / str(number) / "run"
            run_dir.parent.mkdir()
            assert kill(trainings, prepared, run_dir, point), f"{point} was not reached"
        for checkpoint in checkpoints(run_dir).values():
            check_whole(checkpoint)
    trainings.finish(run_dir)
    check_same_end(run_dir, expected)


@pytest.fixture(scope="session")
def stopped(trainings, toy, session_folder):
    return stopped_in_validation(trainings, toy.prepared, session_folder / "stopped")


@pytest.fixture
def run_dir(request, tmp_path, stopped):
    """The run directory of the scenario: a new one, or that of a stopped training."""
    if request.node.callspec.params.get("is_resumed", True):
        shutil.copytree(stopped, tmp_path / "run")
    return tmp_path / "run"


@pytest.mark.parametrize("is_resumed", [False, True])
def test_every_point_is_listed_and_reached(trainings, toy, run_dir, is_resumed):
    """A new file operation of training must be listed, so that trainings are killed there too."""
    reached = list(points_of(trainings, toy.prepared, run_dir))
    not_reached = [point for point in (RESUMED if is_resumed else NEW) if point not in reached]
    assert not not_reached, "not reached:\n" + "\n".join(not_reached)
    not_listed = [point for point in reached if point not in {*NEW, *RESUMED}]
    assert not not_listed, "not listed:\n" + "\n".join(not_listed)


@pytest.mark.parametrize("part", range(CHAINS))
def test_kills_at_every_point_change_nothing(trainings, toy, tmp_path, undisturbed, part):
    check_kills(trainings, toy.prepared, tmp_path, undisturbed, QUICK[part::CHAINS])


@pytest.mark.parametrize(
    "point",
    [
        "middle write run/sessions.jsonl",
        "before rename run/.partial-recipe.yaml to run/recipe.yaml",
        "after rename run/.partial-recipe.yaml to run/recipe.yaml",
        "after rename run/.partial-metrics.jsonl to run/metrics.jsonl",
    ],
)
def test_a_run_killed_between_its_first_files_starts_again(
    trainings, toy, tmp_path, undisturbed, point
):
    """One by one: in a chain of kills, files that the first makes would not be made again."""
    check_kill(trainings, toy.prepared, tmp_path / "run", undisturbed, point)


@pytest.mark.parametrize("point", RESUMED)
def test_kills_while_a_checkpoint_is_replaced_change_nothing(
    trainings, toy, run_dir, undisturbed, point
):
    check_kill(trainings, toy.prepared, run_dir, undisturbed, point)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("is_resumed", [False, True])
@pytest.mark.parametrize("part", range(4))
def test_kills_at_each_pass_of_a_point_change_nothing(
    trainings, toy, run_dir, undisturbed, is_resumed, part, tmp_path
):
    counting = tmp_path / "counting" / "run"
    counting.parent.mkdir()
    if is_resumed:
        shutil.copytree(run_dir, counting)
    counts = points_of(trainings, toy.prepared, counting)
    for number, point in enumerate(list(counts)[part::4]):
        for nth in range(1, 1 + min(counts[point], MOST_OFTEN)):
            copy = tmp_path / f"{number}-{nth}" / "run"
            copy.parent.mkdir()
            if is_resumed:
                shutil.copytree(run_dir, copy)
            check_kill(trainings, toy.prepared, copy, undisturbed, point, nth)
