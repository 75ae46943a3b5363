"""A memory that is full, by injected failures: what fits is trained, and nothing is lost."""

import weakref
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from nmt_cli.corpus.batching import BatchPlan
from nmt_cli.corpus.binarized import Sentences
from nmt_cli.corpus.loader import cut_into_micro_batches
from nmt_cli.hardware.ranks import ALONE, PeerLostError
from nmt_cli.launch.stop_signals import StopRequest
from nmt_cli.messages import logs
from nmt_cli.messages.errors import UserError
from nmt_cli.saved.checkpoints import list_checkpoints
from nmt_cli.saved.training_state import save_checkpoint
from nmt_cli.training import batch_cut, saving
from nmt_cli.training.batch_cut import (
    BatchCut,
    fit_to_memory,
    largest_micro_batches,
    memory_to_reserve,
    try_micro_batch,
)
from nmt_cli.training.gradient.engine import GradientEngine
from nmt_cli.training.gradient.gradient_sum import GradientSum
from nmt_cli.training.trainer import Trainer
from tests.forked_ranks import run_ranks
from tests.trainers import CPU, ONE_PIECE, changed, new_trainer, weights_of

FULL = "[enforce fail at alloc_cpu.cpp] DefaultCPUAllocator: can't allocate memory"


class Cuda:
    """What the probe asks of a device."""

    type = "cuda"


def recipe_of(toy, dropout=0.0, **training):
    return changed(toy.recipe, model={"dropout": dropout}, training=training)


def train(toy, run_dir, recipe=None, *, cut=None, ranks=ALONE, resume=False, before=None):
    """Train; return the trainer, and the error that ended it."""
    recipe = recipe or recipe_of(toy)
    trainer = new_trainer(toy, run_dir, recipe, cut, ranks, resume=resume)
    if before is not None:
        before(trainer)
    try:
        trainer.train(StopRequest())
    except UserError as error:
        return trainer, str(error)
    return trainer, None


def steps_saved(run_dir):
    return [(c.step, c.manifest["kind"]) for c in list_checkpoints(run_dir)]


def limit_memory(monkeypatch, what, limit, rank=None):
    """Let the loss of more than ``limit`` target tokens fail; return the sizes that were tried.

    It fails in the "gradient" of a batch, or in the "validation".
    """
    losses, tried = GradientEngine.losses, []

    def limited(engine, tensors):
        if torch.is_grad_enabled() != (what == "gradient"):
            return losses(engine, tensors)
        tried.append(len(tensors.target_output))
        if tried[-1] > limit and (rank is None or rank == torch.distributed.get_rank()):
            raise RuntimeError(FULL)
        return losses(engine, tensors)

    monkeypatch.setattr(GradientEngine, "losses", limited)
    return tried


@pytest.mark.parametrize("is_limit_chosen", [False, True])
def test_a_batch_that_meets_a_full_memory_is_cut_and_computed_again(
    toy, tmp_path, monkeypatch, capsys, is_limit_chosen
):
    expected, _ = train(toy, tmp_path / "expected")
    tried = limit_memory(monkeypatch, "gradient", 70)
    cut = ONE_PIECE._replace(limited_by="option" if is_limit_chosen else "estimate")
    found, error = train(toy, tmp_path / "found", cut=cut)
    assert error is None
    assert torch.allclose(weights_of(found), weights_of(expected), atol=1e-5)
    too_large = [size for size in tried if size > 70]
    stderr = capsys.readouterr().err
    if is_limit_chosen:  # each batch is tried at the limit that the user chose
        assert found.training.cut.max_tokens == 120
        assert len(too_large) > 6
        assert "; --max-tokens-per-device stays 120." in stderr
    else:
        assert found.training.cut.max_tokens == 59  # half of the largest micro-batch
        assert len(too_large) == 1
        assert stderr.count("later batches are computed with at most 59.") == 1
    assert "batch 0 ran out of memory with micro-batches of " in stderr


def test_later_batches_are_cut_no_smaller_than_the_longest_sentence(toy, tmp_path, monkeypatch):
    def limited(engine, batch):
        if batch.largest_side > batch.longest and not cut:
            raise RuntimeError(FULL)
        if batch.longest < toy.corpus.longest:
            cut.append(batch.longest)  # a batch of short sentences, in its smallest pieces
        return accumulate(engine, batch)

    cut: list[int] = []
    accumulate = GradientEngine._accumulate
    monkeypatch.setattr(GradientEngine, "_accumulate", limited)
    found, error = train(toy, tmp_path / "run")
    assert error is None
    assert found.training.cut.max_tokens == toy.corpus.longest > cut[0]
    assert train(toy, tmp_path / "run", cut=found.training.cut, resume=True)[1] is None


def test_the_hosts_memory_counts_too(toy, tmp_path, monkeypatch):
    accumulate = GradientEngine._accumulate

    def limited(engine, batch):
        if batch.number == 2:
            np.empty(1 << 58)  # numpy's own kind of MemoryError
        return accumulate(engine, batch)

    monkeypatch.setattr(GradientEngine, "_accumulate", limited)
    _, text = train(toy, tmp_path / "run")
    assert text is not None
    assert text.startswith("out of memory in batch 2 (")
    assert steps_saved(tmp_path / "run") == [(2, "safety")]


@pytest.mark.parametrize("num_failures", [1, 2])
def test_a_save_without_memory_is_tried_again_without_the_gradients(
    toy, tmp_path, monkeypatch, capsys, num_failures
):
    failures: list[bool] = []

    def limited(*arguments):
        if arguments[1].progress.step == 6 and len(failures) < num_failures:
            (trainer,) = trainers
            failures.append(any(p.grad is not None for p in trainer.state.model.parameters()))
            raise RuntimeError(FULL)
        return save_checkpoint(*arguments)

    trainers: list[Trainer] = []
    monkeypatch.setattr(saving, "save_checkpoint", limited)
    _, error = train(toy, tmp_path / "run", before=trainers.append)
    assert error is not None
    saved = 6 if num_failures == 1 else 3
    where = "out of memory while step 6 was saved"
    assert error.startswith(f"{where}; step {saved} is saved in {tmp_path / 'run'}. ")
    assert steps_saved(tmp_path / "run")[-1][0] == saved
    assert failures == [True, False][:num_failures]
    assert ("too full to save step 6" in capsys.readouterr().err) == (num_failures == 2)


def test_a_rank_that_is_lost_while_weights_are_compared_leaves_the_step_saved(
    toy, tmp_path, monkeypatch
):
    def work(ranks):
        if ranks.rank == 1:
            monkeypatch.setattr(saving, "refuse_different_weights", FailsOnce(lambda *_: None, 1))
        return train(toy, tmp_path / "run", ranks=ranks)[1]

    run_ranks(2, tmp_path, work)
    assert steps_saved(tmp_path / "run") == [(3, "safety")]


def test_a_lowered_limit_is_recorded_and_the_larger_one_tried_again_when_resumed(
    toy, tmp_path, monkeypatch
):
    recipe = recipe_of(toy, dropout=0.3)
    with monkeypatch.context() as patch:
        limit_memory(patch, "gradient", 70)
        whole, _ = train(toy, tmp_path / "run", recipe)
    facts = list_checkpoints(tmp_path / "run")[-1].manifest
    assert facts["max_tokens_per_device"] == whole.training.cut.max_tokens < 120
    assert new_trainer(toy, tmp_path / "run", recipe, resume=True).training.cut == ONE_PIECE
    again, _ = train(toy, tmp_path / "again", recipe, cut=whole.training.cut)
    assert torch.equal(weights_of(again), weights_of(whole))


def test_a_full_memory_of_one_rank_cuts_the_batch_on_all(toy, tmp_path, monkeypatch):
    recipe = recipe_of(toy, dropout=0.3)
    limit_memory(monkeypatch, "gradient", 30, rank=1)

    def work(ranks):
        trainer, error = train(toy, tmp_path / "run", recipe, ranks=ranks)
        return weights_of(trainer), trainer.training.cut.max_tokens, error

    (first, limit, error), (second, other_limit, _) = run_ranks(2, tmp_path, work)
    assert error is None
    assert limit == other_limit <= 30
    assert torch.equal(first, second)
    monkeypatch.undo()
    expected, _ = train(toy, tmp_path / "alone", recipe, cut=BatchCut(limit, multiple_of=2))
    assert torch.allclose(first, weights_of(expected), atol=1e-5)


def test_a_rank_without_memory_for_its_gradient_leaves_none_waiting(toy, tmp_path, monkeypatch):
    collect = GradientSum._collect
    failures = list[bool]()

    def limited(total, *, is_first):
        failures.append(total._ranks.rank == 1 and len(failures) == 2)
        if failures[-1]:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return collect(total, is_first=is_first)

    monkeypatch.setattr(GradientSum, "_collect", limited)

    def work(ranks):
        trainer, error = train(toy, tmp_path / "run", ranks=ranks)
        return weights_of(trainer), error, sum(failures)

    (first, error, _), (second, _, num_failures) = run_ranks(2, tmp_path, work)
    assert (error, num_failures) == (None, 1)
    assert torch.equal(first, second)


def test_pairs_that_do_not_fit_alone_end_training_saved(toy, tmp_path, monkeypatch):
    accumulate = GradientEngine._accumulate

    def limited(engine, batch):
        if batch.number == 2:
            raise RuntimeError(FULL)
        return accumulate(engine, batch)

    monkeypatch.setattr(GradientEngine, "_accumulate", limited)
    _, error = train(toy, tmp_path / "run")
    assert error is not None
    assert error.startswith("out of memory in batch 2 (")
    assert f"step 2 is saved in {tmp_path / 'run'}. Free memory" in error
    assert steps_saved(tmp_path / "run") == [(2, "safety")]


def test_out_of_memory_before_the_first_step_saves_nothing(toy, tmp_path, monkeypatch):
    limit_memory(monkeypatch, "gradient", 0)
    _, error = train(toy, tmp_path / "run")
    assert error is not None
    assert "; nothing is saved yet. " in error
    assert steps_saved(tmp_path / "run") == []


def test_what_ran_out_of_memory_is_freed_before_saving(toy, tmp_path, monkeypatch):
    class Activations:
        pass

    def limited(engine, batch):
        if batch.number == 2:
            activations = Activations()
            held.append(weakref.ref(activations))
            raise RuntimeError("CUDA error: out of memory")
        return accumulate(engine, batch)

    def save(*arguments):
        held_while_saving.extend(activations() for activations in held)
        return save_checkpoint(*arguments)

    held: list[weakref.ref[Activations]] = []
    held_while_saving: list[Activations | None] = []
    accumulate = GradientEngine._accumulate
    monkeypatch.setattr(GradientEngine, "_accumulate", limited)
    monkeypatch.setattr(saving, "save_checkpoint", save)
    train(toy, tmp_path / "run")
    assert len(held) > 1  # of each cut
    assert held_while_saving == [None] * len(held)


class FailsOnce:
    """Runs out of memory at one call, before it has changed anything."""

    def __init__(self, act, call):
        self.act, self.calls_left = act, call

    def __call__(self, *arguments):
        self.calls_left -= 1
        if self.calls_left == 0:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return self.act(*arguments)


def test_an_optimizer_without_memory_leaves_the_step_before_it(toy, tmp_path):
    recipe = recipe_of(toy, dropout=0.3)
    expected, _ = train(toy, tmp_path / "expected", recipe)

    def sabotage(trainer):
        trainer.state.optimizer.step = FailsOnce(trainer.state.optimizer.step, 5)

    _, error = train(toy, tmp_path / "run", recipe, before=sabotage)
    assert error is not None
    assert error.startswith("out of memory while the gradient of batch 4 was applied; ")
    assert steps_saved(tmp_path / "run")[-1] == (4, "safety")
    resumed, error = train(toy, tmp_path / "run", recipe, resume=True)
    assert error is None
    assert torch.equal(weights_of(resumed), weights_of(expected))


def test_weights_that_moved_in_part_are_not_saved(toy, tmp_path):
    def sabotage(trainer):
        def half_a_step():
            if trainer.state.progress.step == 4:
                trainer.state.optimizer.param_groups[0]["params"][1:] = []
                step()
                raise torch.OutOfMemoryError("CUDA out of memory")
            step()

        step = trainer.state.optimizer.step
        trainer.state.optimizer.step = half_a_step

    _, error = train(toy, tmp_path / "run", before=sabotage)
    assert error is not None
    assert f"step 3 is saved in {tmp_path / 'run'}. " in error
    assert steps_saved(tmp_path / "run") == [(3, "regular")]


def test_a_lost_rank_leaves_the_last_step_saved(toy, tmp_path):
    def work(ranks):
        def sabotage(trainer):
            if ranks.rank == 1:
                trainer.state.optimizer.step = FailsOnce(trainer.state.optimizer.step, 5)

        try:
            return train(toy, tmp_path / "run", ranks=ranks, before=sabotage)[1]
        except PeerLostError as error:
            return str(error)

    first, second = run_ranks(2, tmp_path, work)
    assert "rank 0 lost another rank" in first
    assert f"of batch 4 was applied; {tmp_path / 'run'} keeps its checkpoints. " in second
    assert steps_saved(tmp_path / "run")[-1] == (5, "safety")


def test_the_validation_loss_is_measured_in_smaller_micro_batches(
    toy, tmp_path, monkeypatch, capsys
):
    figures = []
    for name, limit in (("expected", 10_000), ("found", 20)):
        limit_memory(monkeypatch, "validation", limit)
        trainer, error = train(toy, tmp_path / name)
        assert error is None
        figures.append(list_checkpoints(trainer.training.run_dir)[-1].manifest["validation"])
        monkeypatch.undo()
    assert figures[1]["loss"] == pytest.approx(figures[0]["loss"], rel=1e-5)
    assert figures[1]["bleu"] == figures[0]["bleu"]
    assert "was measured in smaller micro-batches" in capsys.readouterr().err


def test_a_validation_without_memory_leaves_its_step_saved(toy, tmp_path, monkeypatch):
    expected, _ = train(toy, tmp_path / "expected")
    with monkeypatch.context() as patch:
        limit_memory(patch, "validation", 0)
        _, error = train(toy, tmp_path / "run")
    assert error is not None
    assert error.startswith("out of memory while step 6 was validated; ")
    assert steps_saved(tmp_path / "run")[-1] == (6, "safety")
    resumed, error = train(toy, tmp_path / "run", resume=True)
    assert error is None
    assert torch.equal(weights_of(resumed), weights_of(expected))
    kinds = dict(steps_saved(tmp_path / "run"))
    assert kinds[12] == "regular"


def test_the_probe_takes_the_longest_pairs_and_those_long_on_both_sides(toy):
    source, target = toy.corpus.source, toy.corpus.target
    lengths = np.stack([source.lengths, target.lengths]).astype(np.int64)
    longest, both = largest_micro_batches(source, target, 60)
    assert longest.source.lengths.max() == lengths.max()
    shorter = np.minimum(both.source.lengths, both.target.lengths)
    assert shorter.min() >= np.sort(lengths.min(axis=0))[-len(shorter)]
    for pairs in (longest, both):
        assert 60 - lengths.max() < len(pairs.target.tokens) <= 60


@pytest.mark.parametrize("number", [1, 7, 90, 400, 5_000])
def test_the_largest_pairs_are_found_in_parts_as_in_a_sorted_corpus(number, monkeypatch):
    monkeypatch.setattr(batch_cut, "PAIRS_AT_ONCE", 50)
    rng = np.random.default_rng(number)
    source, target = (rng.integers(1, 12, 990).astype(np.uint16) for _ in range(2))  # many equal
    for key in (np.maximum, np.minimum):
        expected = np.argsort(key(source, target), kind="stable")[::-1][:number]
        found = batch_cut.largest_pairs((source, target), key, number)
        assert found.tolist() == expected.tolist()


def of_pairs(*pairs):
    """Return source and target of these lengths, as the probe reads them."""

    class Text:
        def __init__(self, lengths):
            self.lengths = np.array(lengths)

        def gather(self, indices):
            lengths = self.lengths[indices]
            return Sentences(np.ones(lengths.sum(), dtype=np.int64), lengths)

    return tuple(Text(lengths) for lengths in zip(*pairs, strict=True))


def test_the_probe_fills_both_sides():
    source, target = of_pairs(*[(50, 2)] * 10, *[(40, 40)] * 10, *[(2, 50)] * 10)
    fullest = max(
        len(pairs.source.tokens) + len(pairs.target.tokens)
        for pairs in largest_micro_batches(source, target, 100)
    )
    assert fullest == 160


@pytest.fixture
def not_quiet():
    logs.configure(quiet=False)
    yield
    logs.configure(quiet=True)


def probe(cut, limit, tried, monkeypatch, before=None):
    """Fit ``cut`` to a GPU that holds ``limit`` target tokens; return its largest size."""

    def attempt(pairs, *_):
        tried.append(len(pairs.target.tokens))
        if tried[-1] > limit:
            raise torch.OutOfMemoryError("no")

    monkeypatch.setattr(batch_cut, "try_micro_batch", attempt)
    source, target = of_pairs(*[(10, 10)] * 20, (10, 12))
    corpus: Any = SimpleNamespace(source=source, target=target, longest=12)
    state: Any = None
    on_gpu: Any = Cuda()
    engine: Any = SimpleNamespace(machine=CPU._replace(device=on_gpu))
    return fit_to_memory(cut, state, engine, corpus, 120, before).max_tokens


def test_the_probe_tries_no_more_than_a_rank_gets(monkeypatch):
    tried: list[int] = []
    four = ONE_PIECE._replace(multiple_of=4)
    assert probe(four, 45, tried, monkeypatch) == 120  # a rank gets a quarter of it
    assert 30 < max(tried) <= 30 + 12
    assert probe(four, 21, [], monkeypatch) == 15
    rng = np.random.default_rng(1)
    lengths = [rng.integers(2, 12, 800).astype(np.uint16) for _ in "st"]
    plan = BatchPlan(lengths[0], lengths[1], 120, seed=1)
    for index in plan.batches_of(0):
        sides = [side[plan.batch(index)].astype(np.int64) for side in lengths]
        for part in cut_into_micro_batches(sides[0], sides[1], 120, 4):
            assert sum(side[part].sum() for side in sides) <= 2 * (30 + 12)


def test_on_a_gpu_the_micro_batches_are_made_to_fit(monkeypatch):
    tried: list[int] = []
    assert probe(ONE_PIECE, 40, tried, monkeypatch) == 30
    assert max(tried) > 110
    assert probe(BatchCut(5), 40, [], monkeypatch) == 12  # the estimate was too low
    with pytest.raises(UserError, match=r"longest sentence pair does not fit the GPU's memory"):
        probe(ONE_PIECE, 8, [], monkeypatch)


@pytest.mark.parametrize(
    ("before", "expected"),
    [
        (30, 30),  # the same GPU: nothing to report
        (29, 29),  # it had a little less free memory: the same draws of dropout
        (15, 30),  # a smaller GPU
        (60, 30),  # a larger one
    ],
)
def test_a_resumed_run_reports_the_limit_that_the_probe_found(
    monkeypatch, capsys, not_quiet, before, expected
):
    facts = BatchCut(before).as_manifest()
    assert probe(ONE_PIECE, 40, [], monkeypatch, facts) == expected
    lines = capsys.readouterr().err.splitlines()
    reported = [line for line in lines if line.startswith("Micro-batches have at most")]
    assert reported == lines
    assert len(reported) == (before != expected)
    assert all(
        f"at most 30 tokens a side (what fits the memory), before {before} (" in line
        for line in reported
    )


def test_a_limit_that_the_user_chose_is_never_changed(monkeypatch):
    chosen = ONE_PIECE._replace(limited_by="option")
    assert probe(chosen, 200, [], monkeypatch) == 120
    with pytest.raises(UserError, match=r"--max-tokens-per-device 120 does not fit .* 30, which"):
        probe(chosen, 40, [], monkeypatch)
    tried: list[int] = []
    too_low = chosen._replace(max_tokens=5)
    assert probe(too_low, 40, tried, monkeypatch) == 5  # refused where sentences are read
    assert tried == []


def test_a_probe_leaves_headroom_and_room_for_what_steps_allocate(toy, tmp_path, monkeypatch):
    state = new_trainer(toy, tmp_path / "run", recipe_of(toy, ema_decay=0.9)).state
    size = sum(parameter.numel() for parameter in state.model.parameters())

    def room(machine):
        return sum(t.numel() for t in memory_to_reserve(state, machine))

    assert room(CPU) == 3 * size  # two moments, and the trained weights beside the average
    of_muon = new_trainer(toy, tmp_path / "muon", recipe_of(toy, optimizer="muon")).state
    assert size < sum(t.numel() for t in memory_to_reserve(of_muon, CPU)) < 2 * size
    state.optimizer.make_moments()
    assert room(CPU) == size
    empty = torch.empty
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _: (50_000, 80_000))
    monkeypatch.setattr(torch, "empty", lambda size, dtype, device: empty(size, dtype=dtype))
    on_gpu: Any = Cuda()
    assert room(CPU._replace(device=on_gpu)) == size + 8_000


def test_a_probe_changes_no_weights_and_leaves_no_gradient(toy, tmp_path):
    trainer = new_trainer(toy, tmp_path / "run")
    before = weights_of(trainer)
    for pairs in largest_micro_batches(toy.corpus.source, toy.corpus.target, 60):
        try_micro_batch(pairs, trainer.state, trainer.training.engine)
    assert torch.equal(weights_of(trainer), before)
    assert all(parameter.grad is None for parameter in trainer.state.model.parameters())
