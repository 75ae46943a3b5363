"""Batches that are cut, packed and sent ahead of their use; the CPU stands in for the GPU."""

from itertools import count
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from nmt_cli.corpus.loader import Batch, SentencePairs, load_batches
from nmt_cli.hardware.machine import Machine
from nmt_cli.hardware.ranks import Ranks
from nmt_cli.model.transformer import Transformer
from nmt_cli.training.batch_cut import BatchCut, ready_ahead
from nmt_cli.training.gradient.engine import GradientEngine


class Sender:
    """Keeps what is sent, as a GPU would."""

    def __init__(self):
        self.num_copies = self.num_received = 0

    def send(self, parts):
        def received():
            self.num_received += 1
            return parts

        self.num_copies += 1
        return SimpleNamespace(received=received)


class FullSender:
    def send(self, parts):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 1 GiB")


def engine_of(toy, ranks=None):
    torch.manual_seed(1)
    machine = Machine(torch.device("cpu"), "fp32")
    if ranks is not None:
        machine = machine._replace(ranks=ranks)
    model = Transformer(toy.recipe.model, toy.corpus.tokenizer.size)
    return GradientEngine.of(model, 1, 0.1, 1, machine)


def uncut_batch(toy):
    first = np.arange(20)
    pairs = SentencePairs(toy.corpus.source.gather(first), toy.corpus.target.gather(first))
    return Batch(3, (pairs,))


def gradient_of(engine, batch):
    figures = engine.compute(batch).read()
    return figures, torch.cat([each.grad.flatten() for each in engine.model.parameters()])


def test_what_was_sent_ahead_gives_the_same_gradient_to_the_last_bit(toy):
    cut = BatchCut(60)
    sender: Any = Sender()
    figures, expected = gradient_of(engine_of(toy), cut.of(uncut_batch(toy)))
    engine = engine_of(toy)
    batch = cut.of(ready_ahead(uncut_batch(toy), cut, engine, sender))
    assert len(batch.micro_batches) > 2
    assert (sender.num_copies, sender.num_received) == (1, 0)
    found_figures, found = gradient_of(engine, batch)
    assert sender.num_received == 1
    assert found_figures == figures
    assert torch.equal(found, expected)


def test_another_cut_does_not_use_what_was_sent(toy):
    engine = engine_of(toy)
    sender: Any = Sender()
    batch = ready_ahead(uncut_batch(toy), BatchCut(60), engine, sender)
    expected = BatchCut(40).of(uncut_batch(toy))
    smaller = BatchCut(40).of(batch)
    assert [len(pairs.target.tokens) for pairs in smaller.micro_batches] == [
        len(pairs.target.tokens) for pairs in expected.micro_batches
    ]
    assert torch.equal(gradient_of(engine, smaller)[1], gradient_of(engine, expected)[1])
    assert sender.num_received == 0


def test_a_batch_that_finds_no_memory_ahead_is_left_to_the_trainer(toy):
    engine = engine_of(toy)
    sender: Any = FullSender()
    batch = BatchCut(60).of(ready_ahead(uncut_batch(toy), BatchCut(60), engine, sender))
    expected = gradient_of(engine, BatchCut(60).of(uncut_batch(toy)))[1]
    assert torch.equal(gradient_of(engine, batch)[1], expected)


@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_sends_its_own_pairs(toy, rank):
    engine = engine_of(toy, ranks=Ranks(rank, 2))
    cut = BatchCut(60, 2)
    sender: Any = Sender()
    batch = cut.of(ready_ahead(uncut_batch(toy), cut, engine, sender))
    found = [each.target_output.tolist() for each in batch.sent.received()]
    assert found == [pairs.target.tokens.tolist() for pairs in batch.micro_batches[rank::2]]


def test_batches_are_prepared_ahead_in_their_order(toy):
    def prepare(batch):
        prepared.append(batch.number)
        return batch

    prepared: list[int] = []
    plan: Any = SimpleNamespace(
        listed=lambda index: (np.arange(index, index + 3), np.zeros(3, dtype=np.int64)),
        locate=lambda index: (0, index),
    )
    texts = [toy.corpus.source, toy.corpus.target]
    batches: Any = load_batches(plan, texts, count(5), prepare=prepare)
    assert [next(batches).number for _ in range(3)] == [5, 6, 7]
    batches.close()  # waits for the thread
    assert prepared == [5, 6, 7, 8, 9]  # two ahead
    assert [batch.number for batch in load_batches(plan, texts, [3, 4])] == [3, 4]
