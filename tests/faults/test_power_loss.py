"""Power loss at any moment: what a disk may then hold has the new or the previous checkpoint."""

import hashlib
import json
import pickle
import random
import re
import signal
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.faults.faults import fault, record_operations, signal_at
from tests.faults.file_operations import Operation
from tests.faults.power_loss import Content, Disk
from tests.faults.run_directories import End, are_equal, check_whole, end_of, newest
from tests.faults.trainings import Trainings

NAMED = re.compile(r"(\.replaced-)?step-(?P<step>\d+)(-\w+-[0-9a-f]{8}-[0-9a-f]{8})?")


class Recorded(NamedTuple):
    """A training that was stopped in its validation at step 12, then went on to its end."""

    run_dir: Path
    operations: list[Operation]


class State(NamedTuple):
    """What a power loss may leave, and the step of the last checkpoint known to be safe."""

    content: Content
    safe_step: int


def record(trainings: Trainings, prepared: Path, folder: Path) -> Recorded:
    run_dir, output = folder / "run", folder / "operations"
    recording = fault(record_operations, run_dir=str(run_dir), output=str(output))
    stop = fault(
        signal_at,
        run_dir=str(run_dir), prepared=str(prepared), point="start of validation", nth=2,
        numbers=[int(signal.SIGTERM)],
    )  # fmt: skip
    assert trainings.run(run_dir, faults=[recording, stop]).status == 75
    assert trainings.run(run_dir, "--resume", faults=[recording]).status == 0
    return Recorded(run_dir, list(read_pickles(output)))


def read_pickles(path: Path) -> Iterator[Operation]:
    with path.open("rb") as stream:
        while True:
            try:
                yield pickle.load(stream)
            except EOFError:
                return


def states(recorded: Recorded, num_for_each: int, seed: int) -> Iterator[State]:
    """Yield what power losses may leave after each operation."""
    disk, chance = Disk(recorded.run_dir.parent), random.Random(seed)
    renamed = safe = 0
    for operation in recorded.operations:
        disk.apply(operation)
        target = operation.target
        if target is not None and target.name.startswith("step-"):
            renamed = int(target.name.removeprefix("step-"))
        if operation.kind == "fsync" and operation.path.name == "checkpoints":
            safe = renamed
        for _ in range(num_for_each):
            yield State(disk.after_loss(chance), safe)


def resumable_steps(state: State) -> Iterator[int]:
    """Yield the steps of whole checkpoints; assert that others are older ones being removed."""
    folder = "run/checkpoints/"
    for name in sorted({path.split("/")[2] for path in state.content if path.startswith(folder)}):
        match = NAMED.fullmatch(name)
        if match is None:
            continue
        step, damage = int(match["step"]), damage_of(state.content, folder + name)
        is_aside = name.startswith(".")  # it gets its name back, or goes
        assert not damage or is_aside or step < state.safe_step, damage
        if not damage and f"{folder}{name}/training_state.pt" in state.content:
            yield step


def damage_of(content: Content, directory: str) -> str:
    """Return what is wrong with the files of a checkpoint."""
    if f"{directory}/manifest.json" not in content:
        return f"{directory} has no manifest"
    try:
        files = json.loads(content[f"{directory}/manifest.json"])["files"]
    except ValueError:
        return f"{directory}/manifest.json is torn"
    for name, entry in files.items():
        found = content.get(f"{directory}/{name}")
        if found is None or hashlib.sha256(found).hexdigest() != entry["sha256"]:
            return f"{directory}/{name} is missing or torn"
    return ""


def check_states(recorded: Recorded, num_for_each: int, seed: int) -> int:
    """Assert that every state has a checkpoint to go on from; return how many were seen."""
    num_states = 0
    for state in states(recorded, num_for_each, seed):
        last = max(resumable_steps(state), default=0)
        assert last >= state.safe_step, f"step {state.safe_step} is lost"
        num_states += 1
    return num_states


def check_resumed(
    trainings: Trainings, folder: Path, recorded: Recorded, some: Sequence[State], expected: End
) -> None:
    """Assert that trainings go on from ``some`` states to the undisturbed end."""
    for number, state in enumerate(some):
        (folder / str(number)).mkdir()
        for path, content in state.content.items():
            file = folder / str(number) / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content)
        run_dir = folder / str(number) / "run"
        ended = trainings.finish(run_dir)
        if state.safe_step:
            assert "Resuming from" in ended.stderr
        check_whole(newest(run_dir))
        end = end_of(run_dir)
        assert end.weights == expected.weights
        assert are_equal(end.state, expected.state)


def test_power_losses_leave_a_checkpoint(trainings, toy, tmp_path, undisturbed):
    recorded = record(trainings, toy.prepared, tmp_path)
    assert check_states(recorded, 1, seed=1) >= 500
    some = random.Random(1).sample(list(states(recorded, 1, seed=2)), 6)
    check_resumed(trainings, tmp_path, recorded, some, undisturbed)


@pytest.mark.slow
def test_many_power_losses_leave_a_checkpoint(trainings, toy, tmp_path, undisturbed):
    recorded = record(trainings, toy.prepared, tmp_path)
    assert check_states(recorded, 10, seed=3) >= 5000
    some = random.Random(2).sample(list(states(recorded, 1, seed=4)), 100)
    check_resumed(trainings, tmp_path, recorded, some, undisturbed)
