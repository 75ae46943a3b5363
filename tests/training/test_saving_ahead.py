"""Checkpoints that a thread writes while training goes on, as on a GPU; here on a CPU."""

import re
import signal
import threading
import time
from collections import defaultdict

import pytest

from nmt_cli.files.file_names import TRAINING_STATE, WEIGHTS
from nmt_cli.launch.stop_signals import StopRequest
from nmt_cli.messages.errors import (
    InterruptedTrainingError,
    OutputError,
    UserError,
)
from nmt_cli.saved.checkpoints import list_checkpoints
from nmt_cli.saved.training_state import save_checkpoint
from nmt_cli.training import saving
from nmt_cli.training.gradient.engine import GradientEngine
from nmt_cli.training.trainer import Trainer
from tests.trainers import changed, new_trainer

LAST, EVERY = 12, 3  # steps
SECONDS = 20  # until a test that waits in vain fails


class SlowDisk:
    """In place of ``save_checkpoint``: writes a step once training is some steps further."""

    def __init__(self, monkeypatch, steps_later):
        self.began, self.ended, self.threads = list[int](), list[int](), set[str]()
        self.failures: dict[int, Exception] = {}
        self.reached = defaultdict[int, threading.Event](threading.Event)
        self._steps_later, is_late = steps_later, steps_later == EVERY  # for the next save
        monkeypatch.setattr(saving, "save_checkpoint", self._save)
        note_saved = Trainer._note_saved

        def reach(trainer, stop):
            step, writing = trainer.state.progress.step, trainer._saver._writing
            self.reached[step].set()
            if writing is not None and step == writing.saved.step + steps_later and not is_late:
                while not writing.is_done():
                    time.sleep(0.001)
            note_saved(trainer, stop)

        monkeypatch.setattr(Trainer, "_note_saved", reach)

    def _save(self, run_dir, contents, *arguments):
        step = contents.progress.step
        self.began.append(step)
        self.threads.add(threading.current_thread().name)
        if step % EVERY == 0 and step < LAST:
            assert self.reached[step + self._steps_later].wait(SECONDS)
        if step in self.failures:
            raise self.failures[step]
        time.sleep(0.02)
        save_checkpoint(run_dir, contents, *arguments)
        self.ended.append(step)


@pytest.fixture
def recipe(toy):
    return changed(
        toy.recipe,
        training={"ema_decay": 0.9, "max_steps": LAST},
        validation={"every_steps": 6, "bleu": "off"},
        checkpoints={"every_steps": EVERY, "keep_for_average": 4},
    )


@pytest.fixture
def trainer(toy, recipe, tmp_path, monkeypatch):
    """A trainer that saves as on a GPU."""
    monkeypatch.setattr(saving, "writes_in_thread", lambda machine: True)
    return new_trainer(toy, tmp_path / "run", recipe)


def no_space(step):
    return OutputError(f"no space for step {step}", "free some")


def files_of(trainer):
    return {
        (checkpoint.step, name): (checkpoint.path / name).read_bytes()
        for checkpoint in list_checkpoints(trainer.training.run_dir)
        for name in (WEIGHTS, TRAINING_STATE)
        if (checkpoint.path / name).exists()
    }


def stop_at(monkeypatch, step):
    """Send a signal after the step; return the request that notes it."""
    stop, leave_if_asked = StopRequest(), Trainer._leave_if_asked

    def signalled(trainer, request):
        if trainer.state.progress.step == step:
            request.handle(signal.SIGTERM, None)
        leave_if_asked(trainer, request)

    monkeypatch.setattr(Trainer, "_leave_if_asked", signalled)
    return stop


def test_the_step_that_was_saved_is_written_though_training_goes_on(
    toy, recipe, tmp_path, trainer, monkeypatch
):
    disk = SlowDisk(monkeypatch, steps_later=2)
    trainer.train(StopRequest())
    assert disk.ended == [3, 6, 9, 12]
    assert disk.threads == {"saver_0"}
    monkeypatch.undo()
    expected = new_trainer(toy, tmp_path / "expected", recipe)
    in_turn = SlowDisk(monkeypatch, steps_later=0)
    expected.train(StopRequest())
    assert in_turn.threads == {threading.main_thread().name}  # on a CPU
    assert len(files_of(trainer)) == 6  # two of them can be resumed from
    assert files_of(trainer) == files_of(expected)


def test_the_next_save_waits_for_the_one_before(trainer, monkeypatch, capsys):
    disk = SlowDisk(monkeypatch, steps_later=EVERY)
    disk.failures = {3: OutputError("no space", "free some")}
    trainer.train(StopRequest())
    assert disk.began == [3, 6, 9, 12]
    assert disk.ended == [6, 9, 12]
    assert "no space; free some. Training goes on" in capsys.readouterr().err


def test_the_last_step_has_to_be_written(trainer, monkeypatch):
    disk = SlowDisk(monkeypatch, steps_later=1)
    disk.failures = {LAST: OutputError("no space", "free some")}
    saved = (
        f"no space. Step 9 is the last that is saved in {trainer.training.run_dir}, and training "
        "ends 3 steps later: free some, then run the same command with --resume."
    )
    with pytest.raises(OutputError, match=f"^{re.escape(saved)}$"):
        trainer.train(StopRequest())


def test_a_full_disk_is_reported_at_a_later_step_and_ends_training_the_third_time(
    trainer, monkeypatch, capsys
):
    disk = SlowDisk(monkeypatch, steps_later=2)
    disk.failures = {step: no_space(step) for step in (3, 6, 9, 11)}
    nothing = (
        rf"no space for step 11\. No step is saved in {trainer.training.run_dir}, and training"
    )
    with pytest.raises(
        OutputError, match=f"{nothing} ends 11 steps later: free some, then run the"
    ):
        trainer.train(StopRequest())
    assert trainer.state.progress.step == 11
    assert trainer.state.saved.step == 0
    warnings = capsys.readouterr().err
    for step in (3, 6):
        assert f"no space for step {step}; free some. Training goes on; the next" in warnings


def test_the_present_step_is_tried_before_training_ends(trainer, monkeypatch, capsys):
    disk = SlowDisk(monkeypatch, steps_later=2)
    disk.failures = {step: no_space(step) for step in (3, 6, 9)}
    trainer.train(StopRequest())
    assert disk.ended == [11, 12]
    assert "no space for step 9. Step 11 was saved in its place." in capsys.readouterr().err


def test_two_failures_with_a_success_between_them_do_not_count_as_a_row(trainer, monkeypatch):
    disk = SlowDisk(monkeypatch, steps_later=1)
    disk.failures = {step: no_space(step) for step in (3, 9)}
    monkeypatch.setattr(saving, "MAX_FAILED_SAVES", 2)
    trainer.train(StopRequest())
    assert disk.ended == [6, 12]


def test_a_full_memory_of_the_thread_is_one_of_training(trainer, monkeypatch):
    disk = SlowDisk(monkeypatch, steps_later=1)
    disk.failures = {3: MemoryError()}
    with pytest.raises(UserError, match=r"out of memory while .*; step 4 is saved in "):
        trainer.train(StopRequest())
    assert disk.ended == [4]


@pytest.mark.parametrize(("signalled", "written"), [(3, [3]), (4, [3, 4])])
def test_a_signal_waits_for_what_is_being_written(trainer, monkeypatch, signalled, written):
    disk = SlowDisk(monkeypatch, steps_later=signalled - EVERY)
    stop = stop_at(monkeypatch, signalled)
    with pytest.raises(InterruptedTrainingError, match=f"step {signalled}; it was saved in"):
        trainer.train(stop)
    assert disk.ended == disk.began == written


def test_an_error_of_training_waits_for_what_is_being_written(trainer, monkeypatch):
    disk = SlowDisk(monkeypatch, steps_later=1)
    launch = GradientEngine.launch

    def failing(engine, batch):
        if batch.number == 4:
            raise UserError("it does not go on.")
        launch(engine, batch)

    monkeypatch.setattr(GradientEngine, "launch", failing)
    with pytest.raises(UserError, match="it does not go on"):
        trainer.train(StopRequest())
    assert disk.ended == [3]
    assert trainer.state.saved.step == 3


def test_an_error_of_the_thread_does_not_hide_that_of_training(trainer, monkeypatch, capsys):
    disk = SlowDisk(monkeypatch, steps_later=1)
    disk.failures = {3: RuntimeError("a fault of the disk")}

    def failing(engine, batch):
        if batch.number == 3:
            disk.reached[4].set()
            raise UserError("it does not go on.")
        launch(engine, batch)

    launch = GradientEngine.launch
    monkeypatch.setattr(GradientEngine, "launch", failing)
    with pytest.raises(UserError, match="it does not go on"):
        trainer.train(StopRequest())
    assert "a checkpoint was not saved: a fault of the disk" in capsys.readouterr().err
