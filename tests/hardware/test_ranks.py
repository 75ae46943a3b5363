"""One, two and four ranks train alike, and end alike."""

import json
import math

import pytest
import torch
import torch.distributed as dist
from torch._C._distributed_c10d import FileStore

from nmt_cli.hardware.ranks import (
    ALONE,
    PeerLostError,
    Ranks,
    RanksDifferError,
    connected_ranks,
)
from nmt_cli.launch.stop_signals import StopRequest
from nmt_cli.launch.worker import Worker
from nmt_cli.messages.errors import InterruptedTrainingError, UserError
from nmt_cli.saved.checkpoints import list_checkpoints
from nmt_cli.training import trainer as trainer_module
from nmt_cli.training.batch_cut import BatchCut
from nmt_cli.training.gradient.engine import GradientEngine
from nmt_cli.training.trainer import update_weights
from tests.forked_ranks import free_port, run_ranks
from tests.trainers import changed, new_trainer, weights_of

STEPS = 12


def recipe_of(toy, dropout=0.0, **training):
    return changed(
        toy.recipe,
        model={"dropout": dropout},
        training={"max_steps": STEPS, **training},
        validation={"every_steps": 6, "bleu": "off"},
        checkpoints={"every_steps": 6},
    )


def train(
    toy, run_dir, ranks, recipe, *, resume=False, stop=None, max_tokens=120, multiple_of=None
):
    cut = BatchCut(max_tokens, multiple_of or ranks.size)
    trainer = new_trainer(toy, run_dir, recipe, cut, ranks, resume=resume)
    trainer.train(StopRequest() if stop is None else stop)
    return weights_of(trainer)


def records(run_dir):
    lines = (run_dir / "metrics.jsonl").read_text().splitlines()
    return [r for r in map(json.loads, lines) if "loss" in r]


def losses(run_dir):
    return [record["loss"] for record in records(run_dir)]


def curve(toy, folder, num_ranks, dropout=0.0, **cut):
    """Return the losses of a training on so many ranks, whose weights must be the same."""
    recipe = recipe_of(toy, dropout)
    if num_ranks == 1:
        train(toy, folder / "run", ALONE, recipe, **cut)
    else:
        found = run_ranks(
            num_ranks, folder, lambda ranks: train(toy, folder / "run", ranks, recipe, **cut)
        )
        assert all(torch.equal(weights, found[0]) for weights in found)
    return losses(folder / "run")


@pytest.fixture
def folder(tmp_path):
    def make(name):
        path = tmp_path / name
        path.mkdir()
        return path

    return make


def test_ranks_and_accumulation_compute_the_same_losses(toy, folder):
    alone = curve(toy, folder("alone"), 1)
    assert len(alone) == STEPS
    assert curve(toy, folder("cut"), 1, max_tokens=35) == pytest.approx(alone, abs=1e-5)
    for num_ranks in (2, 4):
        found = curve(toy, folder(f"{num_ranks}"), num_ranks)
        assert found == pytest.approx(alone, abs=1e-5)


def test_the_same_micro_batches_have_the_same_dropout_on_any_ranks(toy, folder):
    alone = curve(toy, folder("alone"), 1, dropout=0.3, multiple_of=4)
    for num_ranks in (2, 4):
        found = curve(toy, folder(f"{num_ranks}"), num_ranks, dropout=0.3, multiple_of=4)
        assert found == pytest.approx(alone, abs=1e-5)
    otherwise = curve(toy, folder("otherwise"), 1, dropout=0.3)
    assert otherwise != pytest.approx(alone, abs=1e-3)


@pytest.mark.parametrize(
    "num_ranks", [3, *(pytest.param(number, marks=pytest.mark.slow) for number in (2, 4))]
)
def test_a_resumed_run_of_several_ranks_is_bit_equal(toy, folder, num_ranks):
    recipe = recipe_of(toy, dropout=0.2)
    whole, parts = folder("whole"), folder("parts")
    expected = run_ranks(num_ranks, whole, lambda ranks: train(toy, whole / "run", ranks, recipe))
    until = recipe_of(toy, dropout=0.2, max_steps=5)
    run_ranks(num_ranks, parts, lambda ranks: train(toy, parts / "run", ranks, until))
    found = run_ranks(
        num_ranks, parts, lambda ranks: train(toy, parts / "run", ranks, recipe, resume=True)
    )
    assert torch.equal(found[0], expected[0])
    assert losses(parts / "run") == losses(whole / "run")


def test_other_ranks_continue_the_same_order(toy, folder):
    alone = curve(toy, folder("alone"), 1)
    parts = folder("parts")
    for num_ranks, until in ((1, 3), (2, 6), (4, 9), (1, STEPS)):
        recipe = recipe_of(toy, max_steps=until)
        resume = until > 3

        def work(ranks, recipe=recipe, resume=resume):
            return train(toy, parts / "run", ranks, recipe, resume=resume)

        work(ALONE) if num_ranks == 1 else run_ranks(num_ranks, parts, work)
    assert [r["batch_index"] for r in records(parts / "run")] == list(range(STEPS))
    assert losses(parts / "run") == pytest.approx(alone, abs=1e-5)


@pytest.mark.parametrize("bad_rank", [0, 1])
@pytest.mark.parametrize("what", ["loss", "gradient"])
def test_all_ranks_skip_a_batch_that_is_not_finite_on_one(toy, folder, monkeypatch, bad_rank, what):
    seen = []

    launch = GradientEngine.launch

    def sabotaged(engine, batch):
        model = engine.model
        weights = torch.cat([p.detach().flatten() for p in model.parameters()])
        seen.append((batch.number, weights))
        if batch.number != 3 or engine.machine.ranks.rank != bad_rank:
            launch(engine, batch)
            return
        weight = next(model.parameters())
        if what == "loss":  # of this rank's share alone
            with torch.no_grad():
                weight[0, 0] = math.nan
            launch(engine, batch)
            with torch.no_grad():
                weight[0, 0] = weights[0]
            return
        handle = weight.register_hook(lambda gradient: gradient * math.inf)
        launch(engine, batch)
        handle.remove()

    monkeypatch.setattr(GradientEngine, "launch", sabotaged)
    path = folder("run")

    def work(ranks):
        train(toy, path / "run", ranks, recipe_of(toy, max_steps=5))
        return [number for number, _ in seen], torch.equal(seen[3][1], seen[4][1])

    for numbers, is_unchanged in run_ranks(2, path, work):
        assert numbers == [0, 1, 2, 3, 4, 5]
        assert is_unchanged
    assert [r["batch_index"] for r in records(path / "run")] == [0, 1, 2, 4, 5]


def test_out_of_memory_on_one_rank_ends_all_at_the_same_batch(toy, folder, monkeypatch):
    accumulate = GradientEngine._accumulate

    def limited(engine, batch):
        if batch.number == 2 and engine.machine.ranks.rank == 1:
            raise torch.OutOfMemoryError("no")
        return accumulate(engine, batch)

    monkeypatch.setattr(GradientEngine, "_accumulate", limited)
    path = folder("run")

    def work(ranks):
        with pytest.raises(UserError, match="out of memory in batch 2 "):
            train(toy, path / "run", ranks, recipe_of(toy))

    run_ranks(2, path, work)
    assert [c.step for c in list_checkpoints(path / "run")] == [2]


def test_a_stop_of_one_rank_stops_all_at_the_same_step(toy, folder):
    class Stop(StopRequest):
        def __init__(self, rank):
            super().__init__()
            self.polls, self.rank = 0, rank

        def __bool__(self):
            self.polls += 1
            if self.rank == 1 and self.polls == 4:  # one poll a step
                self.reason = "SIGTERM"
            return super().__bool__()

    path = folder("run")

    def work(ranks):
        with pytest.raises(InterruptedTrainingError) as raised:
            train(toy, path / "run", ranks, recipe_of(toy), stop=Stop(ranks.rank))
        return str(raised.value)

    first, second = run_ranks(2, path, work)
    assert first == second
    assert first.startswith("SIGTERM stopped training at step 4;")
    assert [c.step for c in list_checkpoints(path / "run")] == [4]


@pytest.mark.parametrize(
    ("num_ranks", "drifts_at", "ranks_named", "kept", "advice"),
    [
        (2, 3, "1 rank (0) and of 1 rank (1)", [], "Nothing is saved yet: run the same command "),
        (3, 7, "2 ranks (0, 2) and of 1 rank (1)", [6], "Step 6 in {run} was the same on all "),
    ],
)
def test_weights_that_drifted_apart_are_never_saved(
    toy, folder, monkeypatch, num_ranks, drifts_at, ranks_named, kept, advice
):
    path = folder("run")

    def work(ranks):
        def drifting(state, *arguments):
            rate = update_weights(state, *arguments)
            if ranks.rank == 1 and state.progress.step == drifts_at:
                with torch.no_grad():
                    next(state.model.parameters())[0, 0] += 1e-6
            return rate

        monkeypatch.setattr(trainer_module, "update_weights", drifting)
        with pytest.raises(UserError) as raised:
            train(toy, path / "run", ranks, changed(recipe_of(toy), validation={"every_steps": 4}))
        return str(raised.value)

    (text, *others) = run_ranks(num_ranks, path, work)
    assert others == [text] * (num_ranks - 1)
    assert f"the weights of {ranks_named} differ at step " in text
    assert advice.format(run=path / "run") in text
    assert [c.step for c in list_checkpoints(path / "run")] == kept


def test_a_lost_rank_is_an_error_of_the_others(folder):
    path = folder("lost")

    def work(ranks):
        ranks.sum([1.0])  # both have connected
        if ranks.rank == 1:
            return
        with pytest.raises(PeerLostError, match="rank 0 lost another rank"):
            ranks.sum([1.0])

    run_ranks(2, path, work)


@pytest.mark.parametrize("types", [("cpu", "cuda"), ("cuda", "cpu")])
def test_ranks_with_and_without_a_gpu_end_before_they_connect(folder, monkeypatch, types):
    """NCCL would wait for the rank without a GPU."""
    path = folder("devices")
    for name, value in (("MASTER_ADDR", "localhost"), ("MASTER_PORT", free_port())):
        monkeypatch.setenv(name, str(value))

    def work(ranks):
        dist.destroy_process_group()
        worker = Worker(ranks.rank, ranks.size, ranks.rank, ranks.size, "launch", 0, None)
        with (
            pytest.raises(RanksDifferError) as raised,
            connected_ranks(worker, torch.device(types[ranks.rank]), 30),
        ):
            pass
        store = FileStore(str(path / f"of-rank-{ranks.rank}"), 1)  # run_ranks expects a group
        dist.init_process_group("gloo", store=store, rank=0, world_size=1)
        return str(raised.value)

    text = f"rank 0 and rank 1 differ in --device ({types[0]} and {types[1]}); make "
    assert [each.startswith(text) for each in run_ranks(2, path, work)] == [True, True]


def test_an_exchange_is_waited_for_until_its_time_is_over():
    polls = iter([False, False, True])
    Ranks(0, 2).wait_for(lambda: next(polls), lambda: 60.0)
    with pytest.raises(PeerLostError, match="were not exchanged within 0 seconds"):
        Ranks(0, 2).wait_for(lambda: False, iter([60.0, 0.0, 0.0]).__next__)
    ALONE.wait_for(lambda: False, lambda: 0.0)  # there is nobody to lose
