"""SIGTERM, SIGINT and SIGHUP to a single process: saved, exit status 75, and the same end."""

import json
import signal
from pathlib import Path

import pytest

from tests.faults.faults import fault, signal_at
from tests.faults.run_directories import (
    End,
    check_same_end,
    checkpoints,
    is_resumable,
    step_records,
)
from tests.faults.trainings import Ended, Trainings

PHASES = {
    "step": ("after backward", 7),
    "update": ("before update", 7),
    "saving": ("before fsync run/checkpoints/.partial-step/model.safetensors", 2),
    "pruning": ("before rename run/checkpoints/step to run/checkpoints/.delete-step", 1),
    "validation": ("start of validation", 1),
    "bleu": ("before bleu", 2),
    "logging": ("middle write run/metrics.jsonl", 5),
}
SIGNALS = [signal.SIGTERM, signal.SIGINT, signal.SIGHUP]


def stop_at(
    trainings: Trainings, prepared: Path, run_dir: Path, point: str, nth: int, numbers: list[int]
) -> Ended:
    """Train until the point, where signals come."""
    stop = fault(
        signal_at,
        run_dir=str(run_dir), prepared=str(prepared), point=point, nth=nth, numbers=numbers,
    )  # fmt: skip
    return trainings.run(run_dir, "--resume", faults=[stop])


def check_stopped(
    trainings: Trainings,
    prepared: Path,
    run_dir: Path,
    expected: End,
    phase: str,
    number: signal.Signals = signal.SIGTERM,
) -> None:
    """Stop in a phase; assert that it is saved at once and goes on to the undisturbed end."""
    ended = stop_at(trainings, prepared, run_dir, *PHASES[phase], [number])
    assert ended.status == 75, ended.stderr
    assert ended.stderr.splitlines()[-1].startswith(f"{number.name} stopped training at step ")
    assert "Error" not in ended.stderr
    assert "Traceback" not in ended.stderr
    last = max(checkpoints(run_dir))
    assert last == step_records(run_dir)[-1]["step"], "a step was made and not saved"
    assert is_resumable(checkpoints(run_dir)[last])
    trainings.finish(run_dir)
    check_same_end(run_dir, expected)


@pytest.fixture
def stop(trainings, toy, tmp_path):
    """Train into tmp_path/run until the point, where signals come; return how it ended."""

    def call(point, nth, *numbers):
        return stop_at(trainings, toy.prepared, tmp_path / "run", point, nth, list(numbers))

    return call


CASES = [
    (phase, number)
    for phase in PHASES
    for number in SIGNALS
    if number == signal.SIGTERM or phase in {"step", "saving", "validation"}
]


@pytest.mark.parametrize(("phase", "number"), CASES)
def test_a_stopped_training_is_saved_and_goes_on(
    trainings, toy, tmp_path, undisturbed, phase, number
):
    check_stopped(trainings, toy.prepared, tmp_path / "run", undisturbed, phase, number)


@pytest.mark.parametrize("number", SIGNALS)
def test_before_training_a_signal_ends_the_command(trainings, stop, tmp_path, undisturbed, number):
    """The command ends with its usual status, and the next one starts from the beginning."""
    ended = stop("before read prepared/file", 1, number)
    assert ended.status in {130, 128 + number, -number}, ended.stderr
    assert "Traceback" not in ended.stderr
    trainings.finish(tmp_path / "run")
    check_same_end(tmp_path / "run", undisturbed)


def test_a_second_interrupt_ends_at_once(trainings, stop, tmp_path, undisturbed):
    """The second ends training at once, without the save that the first asked for."""
    ended = stop("start of validation", 1, signal.SIGINT, signal.SIGINT)
    assert ended.status == 130
    run_dir = tmp_path / "run"
    assert ended.stderr.splitlines()[-1] == (
        "Training was interrupted twice and ended at once. "
        f"{run_dir}/checkpoints/step-00000004 is saved; steps 5 to 6 are lost. "
        "Run the same command with --resume to continue from there."
    )
    status = json.loads((run_dir / "status.json").read_text())
    assert (status["state"], status["exit_status"]) == ("interrupted", 130)
    assert status["message"] == ended.stderr.splitlines()[-1]
    assert max(checkpoints(run_dir)) == 4
    trainings.finish(tmp_path / "run")
    check_same_end(tmp_path / "run", undisturbed)


def test_a_second_interrupt_before_the_first_checkpoint_loses_what_was_trained(stop, tmp_path):
    ended = stop("after backward", 3, signal.SIGINT, signal.SIGINT)
    assert ended.status == 130
    assert ended.stderr.splitlines()[-1] == (
        f"Training was interrupted twice and ended at once. {tmp_path}/run holds no checkpoint "
        "yet: steps 1 to 2 are lost. Run the same command again to start anew."
    )


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_other_signals_may_come_twice(trainings, stop, tmp_path, undisturbed, number):
    ended = stop("start of validation", 1, number, number)
    assert ended.status == 75
    assert max(checkpoints(tmp_path / "run")) == 6
    trainings.finish(tmp_path / "run")
    check_same_end(tmp_path / "run", undisturbed)
