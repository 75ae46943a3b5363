"""A tiny training with dropout, and how it ends when nothing disturbs it."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.run_directories import End, end_of
from tests.faults.trainings import Trainings, Zygote
from tests.folders_in_memory import folder_in_memory
from tests.folders_in_memory import tmp_path as tmp_path

MAX_STEPS, SAVE_EVERY = 14, 4
OVERRIDES = (
    f"training.max_steps={MAX_STEPS}",
    "validation.every_steps=6",
    f"checkpoints.every_steps={SAVE_EVERY}",
    "decoding.max_extra_length=2",
)


@pytest.fixture(scope="session")
def session_folder() -> Iterator[Path]:
    with folder_in_memory() as folder:
        yield folder


@pytest.fixture(scope="session")
def zygote() -> Iterator[Zygote]:
    process = Zygote()
    yield process
    process.close()


@pytest.fixture(scope="session")
def trainings(zygote, toy) -> Trainings:
    """The toy's training: 14 steps, saved every 4, measured every 6 and at the end."""
    return Trainings(zygote, toy.recipe_path, toy.prepared, OVERRIDES)


@pytest.fixture(scope="session")
def undisturbed_dir(trainings: Trainings, session_folder: Path) -> Path:
    """The run directory of a training that nothing disturbed; tests may read it."""
    run_dir = session_folder / "undisturbed"
    ended = trainings.run(run_dir)
    assert ended.status == 0, ended.stderr
    return run_dir


@pytest.fixture(scope="session")
def lifetime(trainings: Trainings, session_folder: Path) -> float:
    """Seconds that an undisturbed training takes here and now."""
    started = time.monotonic()
    assert trainings.run(session_folder / "timed").status == 0
    return time.monotonic() - started


@pytest.fixture(scope="session")
def undisturbed(undisturbed_dir: Path) -> End:
    """How the training ends when nothing disturbs it."""
    return end_of(undisturbed_dir)
