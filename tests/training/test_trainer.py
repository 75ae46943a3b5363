import json
import math
import os
import signal
import time

import pytest
import torch

from nmt_cli.launch.stop_signals import StopRequest
from nmt_cli.messages import logs
from nmt_cli.messages.errors import InterruptedTrainingError, OutputError, UserError
from nmt_cli.saved.checkpoints import list_checkpoints
from nmt_cli.saved.training_state import save_checkpoint
from nmt_cli.training import saving
from nmt_cli.training import trainer as trainer_module
from nmt_cli.training.batch_cut import BatchCut
from nmt_cli.training.gradient.engine import GradientEngine
from nmt_cli.training.trainer import update_weights
from nmt_cli.training.validation import Validator
from tests import trainers
from tests.saved_weights import read_weights
from tests.trainers import StopAfter, changed, spoil_gradient, weights_of

TWO_PIECES = BatchCut(60)  # micro-batches a step


@pytest.fixture
def new_trainer(toy, tmp_path):
    def make(recipe=toy.recipe, run_dir=None, *, corpus=toy.corpus, resume=False):
        experiment = toy._replace(corpus=corpus)
        run_dir = run_dir or tmp_path / "run"
        return trainers.new_trainer(experiment, run_dir, recipe, TWO_PIECES, resume=resume)

    return make


def records(trainer):
    text = (trainer.training.run_dir / "metrics.jsonl").read_text()
    return [json.loads(line) for line in text.splitlines()]


def steps(trainer):
    return [record["step"] for record in records(trainer) if "loss" in record]


def checkpoints(trainer):
    return {c.step: c.manifest["kind"] for c in list_checkpoints(trainer.training.run_dir)}


def test_a_resumed_run_equals_an_uninterrupted_one_bit_for_bit(new_trainer, tmp_path):
    whole = new_trainer(run_dir=tmp_path / "whole")
    whole.train(StopRequest())
    assert whole.state.progress.step == 12

    for stop_at in (4, 6, 11):
        interrupted = new_trainer(resume=stop_at > 4)
        with pytest.raises(InterruptedTrainingError, match=f"stopped training at step {stop_at};"):
            interrupted.train(StopAfter(interrupted, stop_at))
        torch.manual_seed(stop_at)  # other programs draw other numbers
    resumed = new_trainer(resume=True)
    resumed.train(StopRequest())

    assert torch.equal(weights_of(resumed), weights_of(whole))
    assert steps(resumed) == steps(whole) == list(range(1, 13))
    timeless = [
        [{k: v for k, v in r.items() if "seconds" not in k} for r in records(trainer)]
        for trainer in (resumed, whole)
    ]
    assert timeless[0] == timeless[1]


def test_checkpoints_are_kept_by_kind(new_trainer):
    trainer = new_trainer()
    trainer.train(StopRequest())
    kinds = checkpoints(trainer)
    assert kinds[9] == "regular"
    assert kinds[12] == "regular"
    best = min(
        (r for r in records(trainer) if "validation" in r), key=lambda r: r["validation"]["loss"]
    )
    assert set(kinds) == {9, 12, best["step"]}


def test_the_end_is_saved_and_measured_even_off_the_intervals(new_trainer, toy):
    trainer = new_trainer(changed(toy.recipe, training={"max_steps": 7}))
    trainer.train(StopRequest())
    assert checkpoints(trainer)[7] == "final"
    assert records(trainer)[-1]["validation"]["bleu"] is not None
    assert list_checkpoints(trainer.training.run_dir)[-1].quality is not None


def test_an_improvement_between_the_intervals_is_saved_for_safety(new_trainer, toy):
    recipe = changed(
        toy.recipe,
        training={"max_steps": 7},
        validation={"every_steps": 6},
        checkpoints={"every_steps": 100},
    )
    trainer = new_trainer(recipe)
    trainer.train(StopRequest())
    assert checkpoints(trainer) == {6: "safety", 7: "final"}


def test_a_safety_checkpoint_saved_again_as_a_regular_one_keeps_its_figures(
    new_trainer, toy, monkeypatch
):
    def save_and_stop(*arguments):
        save_checkpoint(*arguments)
        stop.handle(signal.SIGTERM, None)

    def first_checkpoint(trainer):
        with pytest.raises(InterruptedTrainingError):
            trainer.train(stop)
        return list_checkpoints(trainer.training.run_dir)[0].manifest

    monkeypatch.setattr(saving, "save_checkpoint", save_and_stop)
    recipe = changed(
        toy.recipe,
        validation={"every_steps": 6, "bleu": "off"},
        checkpoints={"every_steps": 100},
    )
    stop = StopRequest()
    safety = first_checkpoint(new_trainer(recipe))
    resumed = new_trainer(changed(recipe, checkpoints={"every_steps": 6}), resume=True)
    stop = StopRequest()
    regular = first_checkpoint(resumed)
    assert (safety["step"], safety["kind"]) == (6, "safety")
    assert (regular["step"], regular["kind"]) == (6, "regular")
    assert regular["validation"] == safety["validation"] is not None


@pytest.mark.parametrize("validation_every", [1, 2])
@pytest.mark.parametrize("saved_every", [1, 2, 3])
def test_the_last_step_enters_the_average_with_its_figures(
    new_trainer, toy, validation_every, saved_every
):
    recipe = changed(
        toy.recipe,
        training={"max_steps": 9},
        validation={"every_steps": validation_every, "bleu": "off"},
        checkpoints={"every_steps": saved_every},
    )
    trainer = new_trainer(recipe)
    trainer.train(StopRequest())
    last = list_checkpoints(trainer.training.run_dir)[-1]
    assert last.step == 9
    assert last.enters_average
    assert last.quality is not None
    assert new_trainer(recipe, resume=True).training.is_complete()


def test_an_interrupted_last_validation_is_measured_after_a_resume(new_trainer, toy, monkeypatch):
    trainer = new_trainer()
    stop = StopRequest()
    validate = Validator.validate

    def stopped_at_the_end(*arguments):
        if trainer.state.progress.step == 12:
            stop.handle(signal.SIGTERM, None)
        return validate(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(Validator, "validate", stopped_at_the_end)
        with pytest.raises(InterruptedTrainingError, match="step 12"):
            trainer.train(stop)
    resumed = new_trainer(resume=True)
    assert not resumed.training.is_complete()
    resumed.train(StopRequest())
    assert list_checkpoints(resumed.training.run_dir)[-1].quality is not None


def test_a_run_goes_on_with_its_own_text_only(new_trainer, toy):
    new_trainer().train(StopRequest())
    files = toy.corpus.manifest["files"] | {"train.source.tokens": {"bytes": 1, "sha256": "00"}}
    other = toy.corpus._replace(manifest={"files": files})
    with pytest.raises(UserError, match=r"was trained on another train.source.tokens than"):
        new_trainer(corpus=other, resume=True)


@pytest.mark.parametrize("max_steps", [999, None])
def test_epochs_decide_where_the_recipe_gives_them(new_trainer, toy, max_steps):
    epochs = {"every_steps": None, "every_epochs": 2}
    recipe = changed(
        toy.recipe,
        training={"max_epochs": 4, "max_steps": max_steps},
        validation={**epochs, "bleu": "off"},
        checkpoints=epochs,
    )
    trainer = new_trainer(recipe)
    trainer.train(StopRequest())
    ends = [step for step in steps(trainer) if trainer.training.plan.locate(step)[1] == 0]
    assert len(ends) == 4
    assert trainer.state.progress.step == ends[-1]
    measured = [r["step"] for r in records(trainer) if "validation" in r]
    assert measured == [ends[1], ends[3]]


def test_patience_ends_training(new_trainer, toy, monkeypatch):
    recipe = changed(
        toy.recipe,
        validation={"every_steps": 1, "patience": 3, "bleu": "off"},
        training={"max_steps": 99},
    )
    trainer = new_trainer(recipe)
    losses = iter([5.0, 4.0, 4.5, math.nan, 4.0, 1.0])
    validate = Validator.validate

    def pretended(*arguments):
        measured, loss = validate(*arguments), next(losses)
        assert measured is not None
        return measured._replace(loss=loss, quality=-loss)

    monkeypatch.setattr(Validator, "validate", pretended)
    trainer.train(StopRequest())
    assert trainer.state.progress.step == 5


@pytest.fixture
def spoil(monkeypatch):
    """Return a function that lets the gradient of some batches be infinite.

    It returns a list, which gets the number of each batch that is used, and the weights before it.
    """

    def of_batches(is_bad):
        used = []
        accumulate = GradientEngine._accumulate

        def spoiled(engine, batch):
            weights = [parameter.flatten() for parameter in engine.model.parameters()]
            used.append((batch.number, torch.cat(weights).detach()))
            accumulate(engine, batch)
            if is_bad(batch.number):
                spoil_gradient(engine)

        monkeypatch.setattr(GradientEngine, "_accumulate", spoiled)
        return used

    return of_batches


def test_a_batch_without_a_finite_gradient_is_skipped(new_trainer, spoil, capsys):
    trainer = new_trainer()
    seen = spoil(lambda number: number in (3, 4))
    trainer.train(StopRequest())
    assert [index for index, _ in seen] == list(range(14))
    assert torch.equal(seen[3][1], seen[4][1])
    assert torch.equal(seen[4][1], seen[5][1])
    assert not torch.equal(seen[5][1], seen[6][1])
    assert trainer.state.progress.step == 12
    assert trainer.state.progress.num_skipped == 2
    assert "batch 3 gave loss" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("is_bad", "skipped"), [(lambda i: i >= 2, 10), (lambda i: i % 2, 11)], ids=["row", "share"]
)
def test_too_many_skipped_batches_end_training(new_trainer, toy, spoil, is_bad, skipped):
    trainer = new_trainer(changed(toy.recipe, training={"max_steps": 99}))
    spoil(is_bad)
    with pytest.raises(UserError, match=f"training diverged: {skipped} of the last 1,000"):
        trainer.train(StopRequest())


def test_a_full_disk_stops_training_only_the_third_time(new_trainer, monkeypatch, capsys):
    trainer = new_trainer()
    failing_steps = {3, 6}
    save = save_checkpoint

    def save_or_fail(run_dir, state, *arguments):
        if state.progress.step in failing_steps:
            raise OutputError("disk full.")
        save(run_dir, state, *arguments)

    monkeypatch.setattr(saving, "save_checkpoint", save_or_fail)
    trainer.train(StopRequest())
    assert set(checkpoints(trainer)) == {9, 12}
    assert capsys.readouterr().err.count("Training goes on") == 2

    failing_steps |= {9}
    again = new_trainer(run_dir=trainer.training.run_dir.with_name("again"))
    with pytest.raises(OutputError):
        again.train(StopRequest())
    assert again.state.progress.step == 9


def test_a_stop_during_validation_leaves_it_for_the_resumed_run(new_trainer, monkeypatch):
    trainer = new_trainer()
    stop = StopRequest()

    def stopped(*_):
        stop.handle(signal.SIGTERM, None)
        stop.agree(stop.flags())

    with monkeypatch.context() as patch:
        patch.setattr(Validator, "validate", stopped)
        with pytest.raises(InterruptedTrainingError, match="step 6"):
            trainer.train(stop)
    resumed = new_trainer(resume=True)
    resumed.train(StopRequest())
    assert [r["step"] for r in records(resumed) if "validation" in r] == [6, 12]


@pytest.mark.parametrize(("max_time", "saved_before"), [(None, [3]), (1e6, [3, 6])])
def test_the_step_is_saved_before_a_validation_of_unknown_length(
    new_trainer, monkeypatch, max_time, saved_before
):
    trainer = new_trainer()
    saved = []
    validate = Validator.validate

    def recorded(*arguments):
        saved.append([*checkpoints(trainer)])
        return validate(*arguments)

    monkeypatch.setattr(Validator, "validate", recorded)
    deadline = None if max_time is None else time.monotonic() + max_time
    trainer.train(StopRequest(deadline, max_time=max_time))
    assert saved[0] == saved_before
    assert trainer.training.is_complete()


def test_the_first_save_is_estimated_so_that_it_ends_before_the_deadline(new_trainer, monkeypatch):
    trainer = new_trainer()
    clock, fsync = [1_000.0], os.fsync

    def monotonic():
        clock[0] += 1e-3
        return clock[0]

    def slow(file):  # a disk that takes ten seconds
        clock[0] += 10.0
        fsync(file)

    monkeypatch.setattr(time, "monotonic", monotonic)
    monkeypatch.setattr(os, "fsync", slow)
    stop = StopRequest(clock[0] + 10.0 + 1.5 * 10.0, max_time=25.0)
    with pytest.raises(InterruptedTrainingError, match=r"--max-time 25s stopped .* at step 1; it"):
        trainer.train(stop)
    assert [*checkpoints(trainer)] == [1]


def test_a_sample_of_a_large_save_stands_for_all_of_it(new_trainer, monkeypatch):
    trainer = new_trainer()
    num_bytes = 3 * sum(p.nbytes for p in trainer.state.model.parameters())
    clock, fsync = [0.0], os.fsync

    def slow(file):
        clock[0] += 1.0
        fsync(file)

    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(os, "fsync", slow)
    monkeypatch.setattr(saving, "SAMPLE_BYTES", num_bytes // 6)
    assert trainer._saver.estimated_seconds() == pytest.approx(6.0, rel=0.01)
    before = [*trainer.training.run_dir.iterdir()]
    assert [*trainer.training.run_dir.iterdir()] == before == []


def test_the_moving_average_is_what_is_saved_and_the_weights_are_what_is_trained(
    new_trainer, toy, tmp_path, monkeypatch
):
    recipe = changed(toy.recipe, training={"ema_decay": 0.9})
    averaged = new_trainer(recipe, run_dir=tmp_path / "averaged")
    average = weights_of(averaged).double()

    def recorded(*arguments):
        nonlocal average
        rate = update_weights(*arguments)
        step = averaged.state.progress.step
        decay = min(0.9, (1 + step) / (10 + step))
        average = decay * average + (1 - decay) * weights_of(averaged).double()
        return rate

    with monkeypatch.context() as patch:
        patch.setattr(trainer_module, "update_weights", recorded)
        averaged.train(StopRequest())
    plain = new_trainer()
    plain.train(StopRequest())
    assert torch.equal(weights_of(averaged), weights_of(plain))
    last = list_checkpoints(averaged.training.run_dir)[-1].path
    saved = read_weights(last)
    names = [name for name, _ in averaged.state.model.named_parameters()]
    found = torch.cat([saved[name].flatten() for name in names])
    assert torch.allclose(found.double(), average, atol=1e-6)
    losses = [r["validation"]["loss"] for r in records(averaged) if "validation" in r]
    assert losses != [r["validation"]["loss"] for r in records(plain) if "validation" in r]

    parts = new_trainer(recipe, run_dir=tmp_path / "parts")
    with pytest.raises(InterruptedTrainingError):
        parts.train(StopAfter(parts, 5))
    resumed = new_trainer(recipe, run_dir=tmp_path / "parts", resume=True)
    resumed.train(StopRequest())
    again = read_weights(list_checkpoints(resumed.training.run_dir)[-1].path)
    assert all(torch.equal(again[name], saved[name]) for name in names)


@pytest.mark.parametrize(
    ("before", "here", "expected"),
    [
        ("mkl", "onednn", "mkl"),  # kept
        ("onednn", "onednn", "onednn"),
        ("onednn", "mkl", "mkl"),  # no CPU of the table
    ],
)
def test_a_resumed_run_keeps_its_library_of_fp32_products(
    toy, tmp_path, monkeypatch, capsys, before, here, expected
):
    # Whatever this CPU can do: its check would refuse oneDNN on some.
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: False)
    short = changed(toy.recipe, training={"max_steps": 3})
    monkeypatch.setattr(trainers, "CPU", trainers.CPU._replace(fp32_products=before))
    trainers.new_trainer(toy, tmp_path, short).train(StopRequest())
    monkeypatch.setattr(trainers, "CPU", trainers.CPU._replace(fp32_products=here))
    logs.configure(quiet=False)
    resumed = trainers.new_trainer(toy, tmp_path, resume=True)
    log = capsys.readouterr().err
    assert ("fp32_products (was onednn, is mkl)" in log) == (before != expected)
    resumed.train(StopRequest())
    assert list_checkpoints(tmp_path)[-1].manifest["fp32_products"] == expected
