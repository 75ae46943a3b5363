"""Gradients in one tensor, against those that autograd leaves in the parameters."""

import json

import pytest
import torch
from safetensors.torch import load_file

from nmt_cli.hardware.machine import Machine
from nmt_cli.hardware.ranks import ALONE
from nmt_cli.launch.stop_signals import StopRequest
from nmt_cli.saved.checkpoints import list_checkpoints
from nmt_cli.training.batch_cut import BatchCut
from nmt_cli.training.gradient.engine import Bf16Weights, GradientEngine, micro_batch_seed
from nmt_cli.training.gradient.gradient_sum import GradientSum
from tests.forked_ranks import run_ranks
from tests.trainers import CPU, changed, new_trainer, read_at_once, weights_of


@pytest.fixture
def trainer(toy, tmp_path):
    return new_trainer(toy, tmp_path / "run")


def gradients(engine, batch):
    engine.compute(batch)
    return [parameter.grad.clone() for parameter in engine.model.parameters()]


def by_autograd(engine, batch):
    """Return the gradients that autograd adds up in the parameters."""
    engine.model.zero_grad()
    for number, pairs in enumerate(batch.micro_batches):
        torch.manual_seed(micro_batch_seed(engine.seed, batch.number, number))
        (engine.loss_sums(pairs).loss / batch.num_target_tokens).backward()
    return [parameter.grad.clone() for parameter in engine.model.parameters()]


def test_it_is_what_autograd_adds_up(trainer):
    engine, batches = trainer.training.engine, trainer._batches()
    batch = next(batches).into_micro_batches(40, 1)
    assert len(batch.micro_batches) > 2
    expected = by_autograd(engine, batch)
    total = GradientSum(engine.model.parameters(), ALONE)
    for _ in range(2):  # the second batch finds what the first left
        found = gradients(engine._replace(total=total), batch)
        assert all(map(torch.equal, found, expected))


def test_without_a_micro_batch_the_gradient_is_zero(trainer):
    engine, batch = trainer.training.engine, next(trainer._batches()).into_micro_batches(40, 1)
    assert any(each.any() for each in gradients(engine, batch))
    engine.total.begin(1)
    figures = engine.sum_over_ranks().read()
    assert not any(each.grad.any() for each in engine.model.parameters())
    assert figures == (0.0, 0.0, 0.0, 1, None)


def test_weights_in_bf16_give_the_gradient_of_autocast(trainer):
    engine, batch = trainer.training.engine, next(trainer._batches()).into_micro_batches(40, 1)
    engine = engine._replace(machine=Machine(torch.device("cpu"), "bf16"))
    expected = by_autograd(engine, batch)
    in_bf16 = Bf16Weights(engine.model)
    total = GradientSum(engine.model.parameters(), ALONE, copies=in_bf16.copies)
    with torch.no_grad():
        for leaf in in_bf16.copies.values():
            leaf.zero_()  # what an earlier step left
    found = gradients(engine._replace(total=total, bf16_weights=in_bf16), batch)
    for one, other in zip(found, expected, strict=True):
        assert one.dtype == torch.float32
        assert torch.nn.functional.cosine_similarity(one.flatten(), other.flatten(), 0) > 0.99
    assert all(parameter.dtype == torch.float32 for parameter in engine.model.parameters())


def test_a_backward_pass_that_failed_adds_nothing_to_the_next_gradient(trainer):
    engine, batch = trainer.training.engine, next(trainer._batches()).into_micro_batches(400, 1)
    in_bf16 = Bf16Weights(engine.model)
    total = GradientSum(engine.model.parameters(), ALONE, copies=in_bf16.copies)
    machine = Machine(torch.device("cpu"), "bf16")
    engine = engine._replace(machine=machine, total=total, bf16_weights=in_bf16)
    expected = gradients(engine, batch)
    first = next(iter(in_bf16.copies.values()))  # it gets its gradient late

    def fail(_):
        raise RuntimeError("in the middle of a backward pass")

    hook = first.register_hook(fail)
    with pytest.raises(RuntimeError, match="in the middle"):
        engine.compute(batch)
    hook.remove()
    assert any(leaf.grad is not None for leaf in in_bf16.copies.values())
    assert all(map(torch.equal, gradients(engine, batch), expected))


def train(toy, run_dir, ranks, *, cut=None, precision="fp32", exchange="fp32", is_late=True):
    recipe = changed(
        toy.recipe,
        model={"dropout": 0.0},
        training={"max_steps": 6, "ema_decay": 0.9, "clip_norm": 0.5},
        validation={"every_steps": 3, "bleu": "off"},
    )
    machine = CPU._replace(precision=precision, exchange=exchange)
    trainer = new_trainer(
        toy, run_dir, recipe, cut or BatchCut(60, ranks.size), ranks, machine=machine
    )
    if not is_late:
        read_at_once(trainer)
    trainer.train(StopRequest())
    return weights_of(trainer), losses(run_dir), trainer.training.cut.max_tokens


def losses(run_dir):
    records = map(json.loads, (run_dir / "metrics.jsonl").read_text().splitlines())
    return [record["loss"] for record in records if "loss" in record]


def averages_and_norms(run_dir):
    """Return the moving averages of the last checkpoint, and the norms before clipping."""
    last = list_checkpoints(run_dir)[-1].path
    records = map(json.loads, (run_dir / "metrics.jsonl").read_text().splitlines())
    norms = [record["gradient_norm"] for record in records if "gradient_norm" in record]
    return load_file(last / "model.safetensors"), norms


@pytest.mark.parametrize(
    ("precision", "sizes"),
    [
        ("fp32", (2, 4)),
        ("bf16", (4,)),
        pytest.param("fp32", (8,), marks=pytest.mark.slow),
        pytest.param("bf16", (2, 8), marks=pytest.mark.slow),
    ],
)
def test_ranks_train_as_one(toy, tmp_path, precision, sizes):
    """With clipping, a moving average and, for the fewer ranks, several micro-batches on each."""
    cut = BatchCut(60, max(sizes))
    alone, expected, _ = train(toy, tmp_path / "1", ALONE, cut=cut, precision=precision)
    averages, norms = averages_and_norms(tmp_path / "1")
    assert min(norms) > 0.5
    for size in sizes:
        run_dir = tmp_path / str(size)

        def work(ranks, run_dir=run_dir):
            return train(toy, run_dir, ranks, cut=cut, precision=precision)

        found = run_ranks(size, tmp_path, work)
        assert all(torch.equal(weights, found[0][0]) for weights, *_ in found)
        assert torch.allclose(found[0][0], alone, atol=1e-5)
        assert found[0][1] == pytest.approx(expected, abs=1e-5)
        of_ranks, of_norms = averages_and_norms(run_dir)
        assert of_norms == pytest.approx(norms, rel=1e-4)
        for name, average in averages.items():
            assert torch.allclose(of_ranks[name], average, atol=1e-5)


def test_an_exchange_in_bf16_changes_the_loss_little(toy, tmp_path):
    def work(ranks):
        exact, expected, _ = train(toy, tmp_path / "fp32", ranks)
        rounded, found, _ = train(toy, tmp_path / "bf16", ranks, exchange="bf16")
        return exact, expected, rounded, found

    (exact, expected, rounded, found), (*_, other, _) = run_ranks(2, tmp_path, work)
    assert torch.equal(rounded, other)  # the ranks do not drift apart
    assert not torch.equal(rounded, exact)
    assert found[0] == expected[0]  # figures are not rounded
    assert found == pytest.approx(expected, rel=0.005)


@pytest.mark.parametrize("is_full", [False, True], ids=["enough memory", "full memory"])
def test_ranks_that_read_late_train_as_those_that_do_not(toy, tmp_path, monkeypatch, is_full):
    losses = GradientEngine.losses

    def limited(engine, tensors):
        is_large = torch.is_grad_enabled() and len(tensors.target_output) > 30
        if is_full and is_large and torch.distributed.get_rank() == 1:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return losses(engine, tensors)

    monkeypatch.setattr(GradientEngine, "losses", limited)

    def work(ranks):
        at_once = train(toy, tmp_path / "at once", ranks, is_late=False)
        return at_once, train(toy, tmp_path / "late", ranks)

    for (weights, expected, limit), (late_weights, found, late_limit) in run_ranks(
        2, tmp_path, work
    ):
        assert found == expected
        assert torch.equal(late_weights, weights)
        assert len(found) == 6
        assert (limit < 60) == is_full
        assert late_limit == limit
