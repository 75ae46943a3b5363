"""Steps whose figures are read one step later, against steps that are read at once."""

import json
import time

import pytest
import torch

from nmt_cli.launch.stop_signals import StopRequest
from nmt_cli.messages.errors import InterruptedTrainingError, UserError
from nmt_cli.saved.checkpoints import list_checkpoints
from nmt_cli.training.batch_cut import BatchCut
from nmt_cli.training.gradient.engine import GradientEngine
from tests import trainers
from tests.trainers import changed, read_at_once, spoil_gradient, weights_of

TIMES = ("seconds", "data_wait_seconds", "flop_utilization")


@pytest.fixture
def new_trainer(toy, tmp_path):
    recipe = changed(
        toy.recipe,
        training={"clip_norm": 0.5, "ema_decay": 0.99},
        checkpoints={"every_steps": 5},
        validation={"every_steps": 6, "bleu": "off"},
    )

    def make(name, *, is_late=True, resume=False):
        run_dir = tmp_path / name
        trainer = trainers.new_trainer(toy, run_dir, recipe, BatchCut(60), resume=resume)
        if not is_late:
            read_at_once(trainer)
        return trainer

    return make


@pytest.fixture
def spoil(monkeypatch):
    """Return a function that lets these batches have a gradient that is not finite."""

    def of_batches(*numbers):
        accumulate = GradientEngine._accumulate

        def spoiled(engine, batch):
            accumulate(engine, batch)
            if batch.number in numbers:
                spoil_gradient(engine)

        monkeypatch.setattr(GradientEngine, "_accumulate", spoiled)

    return of_batches


def outcome(trainer):
    """Return all that a training leaves behind, without times."""
    run_dir = trainer.training.run_dir
    records = [json.loads(line) for line in (run_dir / "metrics.jsonl").read_text().splitlines()]
    for record in records:
        for name in TIMES:
            record.pop(name, None)
    kept = [(c.step, c.manifest["kind"]) for c in list_checkpoints(run_dir)]
    averages = trainer.state.average.weights().values()
    num_steps = {state["step"].item() for state in trainer.state.optimizer.state.values()}
    return (
        weights_of(trainer).tolist(),
        torch.cat([average.flatten() for average in averages]).tolist(),
        *(records, kept, num_steps, trainer.state.progress),
    )


@pytest.mark.parametrize("bad", [(), (0, 4, 5, 7)], ids=["all finite", "some not"])
def test_both_leave_the_same_behind(bad, new_trainer, spoil):
    spoil(*bad)
    found = []
    for is_late in (False, True):
        trainer = new_trainer(f"late {is_late}", is_late=is_late)
        trainer.train(StopRequest())
        found.append(outcome(trainer))
    assert found[0] == found[1]
    assert trainer.state.progress.num_skipped == len(bad)


def test_a_step_that_was_launched_is_saved_when_training_stops(new_trainer):
    class StopAt(StopRequest):
        def __bool__(self):
            self.reason = "SIGTERM" if late.state.progress.step >= 4 else None
            return super().__bool__()

    whole = new_trainer("whole", is_late=False)
    whole.train(StopRequest())
    late = new_trainer("late")
    with pytest.raises(InterruptedTrainingError, match="stopped training at step 4;"):
        late.train(StopAt())
    assert list_checkpoints(late.training.run_dir)[-1].step == 4
    late = new_trainer("late", resume=True)
    late.train(StopRequest())
    assert outcome(late)[:2] == outcome(whole)[:2]


def test_the_step_before_a_full_memory_is_saved(new_trainer, monkeypatch):
    accumulate = GradientEngine._accumulate

    def full(engine, batch):
        if batch.number == 3:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 1 GiB")
        return accumulate(engine, batch)

    monkeypatch.setattr(GradientEngine, "_accumulate", full)
    late = new_trainer("late")
    with pytest.raises(UserError, match="step 3 is saved in"):
        late.train(StopRequest())
    whole = new_trainer("whole", is_late=False)
    with pytest.raises(UserError, match="step 3 is saved in"):
        whole.train(StopRequest())
    assert outcome(late)[:4] == outcome(whole)[:4]


def test_a_step_lasts_until_its_figures_are_known_not_until_they_are_read(new_trainer, monkeypatch):
    accumulate = GradientEngine._accumulate

    def slow(engine, batch):
        time.sleep(0.05)
        return accumulate(engine, batch)

    monkeypatch.setattr(GradientEngine, "_accumulate", slow)
    trainer = new_trainer("run")
    trainer.train(StopRequest())
    lines = (trainer.training.run_dir / "metrics.jsonl").read_text().splitlines()
    seconds = [record["seconds"] for record in map(json.loads, lines) if "seconds" in record]
    assert len(seconds) == 12
    assert min(seconds) >= 0.05  # also of step 5, which is read at once


def test_the_last_step_before_an_error_is_recorded(new_trainer, monkeypatch):
    accumulate = GradientEngine._accumulate

    def interrupted(engine, batch):
        if batch.number == 4:
            raise KeyboardInterrupt
        return accumulate(engine, batch)

    monkeypatch.setattr(GradientEngine, "_accumulate", interrupted)
    trainer = new_trainer("run")
    with pytest.raises(KeyboardInterrupt):
        trainer.train(StopRequest())
    lines = (trainer.training.run_dir / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in lines] == [1, 2, 3, 4]
