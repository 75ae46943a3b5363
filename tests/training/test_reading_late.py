"""Steps whose figures are read one step later, as on a GPU, against steps that are read at once."""

import json

import pytest
import torch

from nmt_cli.checkpoints import list_checkpoints
from nmt_cli.launch.stop_signals import StopRequest
from nmt_cli.messages.errors import InterruptedTrainingError, UserError
from nmt_cli.training.batch_cut import BatchCut
from nmt_cli.training.gradient import Objective
from tests import trainers
from tests.trainers import changed, weights_of

TIMES = ("seconds", "data_wait_seconds", "flop_utilization")


@pytest.fixture
def new_trainer(toy, tmp_path):
    recipe = changed(
        toy.recipe,
        training={"clip_norm": 0.5, "ema_decay": 0.99},
        checkpoints={"every_steps": 5},
        validation={"every_steps": 6, "bleu": "off"},
    )

    def make(name, *, reads_late, resume=False):
        run_dir = tmp_path / name
        trainer = trainers.new_trainer(toy, run_dir, recipe, BatchCut(60), resume=resume)
        trainer.reads_late = reads_late
        return trainer

    return make


@pytest.fixture
def spoil(monkeypatch):
    """Return a function that lets these batches have a gradient that is not finite."""

    def of_batches(*numbers):
        accumulate = Objective._accumulate

        def spoiled(objective, batch):
            sums = accumulate(objective, batch)
            if batch.number in numbers:
                objective.model.output_weight.grad[0, 0] = torch.inf
            return sums

        monkeypatch.setattr(Objective, "_accumulate", spoiled)

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
    for reads_late in (False, True):
        trainer = new_trainer(f"late {reads_late}", reads_late=reads_late)
        trainer.train(StopRequest())
        found.append(outcome(trainer))
    assert found[0] == found[1]
    assert trainer.state.progress.num_skipped == len(bad)


def test_a_step_that_was_launched_is_saved_when_training_stops(new_trainer):
    class StopAt(StopRequest):
        def __bool__(self):
            self.reason = "SIGTERM" if late.state.progress.step >= 4 else None
            return super().__bool__()

    whole = new_trainer("whole", reads_late=False)
    whole.train(StopRequest())
    late = new_trainer("late", reads_late=True)
    with pytest.raises(InterruptedTrainingError, match="stopped training at step 4;"):
        late.train(StopAt())
    assert list_checkpoints(late.training.run_dir)[-1].step == 4
    late = new_trainer("late", reads_late=True, resume=True)
    late.train(StopRequest())
    assert outcome(late)[:2] == outcome(whole)[:2]


def test_the_step_before_a_full_memory_is_saved(new_trainer, monkeypatch):
    accumulate = Objective._accumulate

    def full(objective, batch):
        if batch.number == 3:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 1 GiB")
        return accumulate(objective, batch)

    monkeypatch.setattr(Objective, "_accumulate", full)
    late = new_trainer("late", reads_late=True)
    with pytest.raises(UserError, match="step 3 is saved in"):
        late.train(StopRequest())
    whole = new_trainer("whole", reads_late=False)
    with pytest.raises(UserError, match="step 3 is saved in"):
        whole.train(StopRequest())
    assert outcome(late)[:4] == outcome(whole)[:4]
