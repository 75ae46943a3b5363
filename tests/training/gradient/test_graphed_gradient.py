"""Micro-batches padded to shapes, computed as CUDA graphs compute them, on a CPU.

A graph computes again on the same tensors. So attention reads the bounds of the sentences from
tensors here, as the kernels of a GPU do; what follows from lengths that Python knows would be that
of the first micro-batch of a shape.
"""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from nmt_cli.corpus.batching import BatchPlan
from nmt_cli.corpus.loader import Batch, SentencePairs
from nmt_cli.model import attention, recurrence
from nmt_cli.model.attention import MultiHeadAttention
from nmt_cli.model.packing import PaddedShape, pack_to_shape
from nmt_cli.training.gradient.engine import GradientEngine
from tests.benchmarks.data import CAPTIONS, NEWS, random_lengths
from tests.benchmarks.padding import measure_shapes
from tests.training.gradient.test_gradient import MACHINE, batch_of, model_of

KINDS = [
    {},
    {"norm": "pre", "tied_embeddings": "none", "output_bias": True},
    {"positions": "learned", "max_positions": 40},
    {"decoder": "ssru"},
    {"attention_window": 1},
]


def attend_by_bounds(layout, window, queries, keys, values):
    """Compute what varlen attention does, from all pairs of rows."""

    def places(side, number):
        rows = torch.arange(number)
        sentence = torch.bucketize(rows, side.bounds[1:].long(), right=True)
        return sentence, rows - side.bounds.long()[sentence]

    (of_query, place), (of_key, key_place) = (
        places(layout.query_sentences, len(queries)),
        places(layout.key_sentences, len(keys)),
    )
    scores = torch.einsum("thk,shk->hts", queries, keys) * queries.shape[2] ** -0.5
    hidden = (of_query[:, None] != of_key) | ~window.reaches(key_place - place[:, None])
    weights = scores.masked_fill(hidden, -torch.inf).softmax(2)
    return torch.einsum("hts,shk->thk", weights, values).flatten(1)


@pytest.fixture
def as_on_a_gpu(monkeypatch):
    monkeypatch.setattr(MultiHeadAttention, "_suits_batched_products", lambda *_: False)
    monkeypatch.setattr(MultiHeadAttention, "supports_varlen", lambda *_: True)
    monkeypatch.setattr(attention, "attend_varlen", attend_by_bounds)
    monkeypatch.setattr(recurrence, "_scan_by_position", recurrence._scan_by_doubling)


def graphed(model, seed=1):
    engine = GradientEngine.of(model, 1, 0.1, seed, MACHINE)
    return engine.with_kernels("torch")


def gradient_of(engine, batch):
    figures = engine.compute(batch).read()
    return figures, torch.cat([p.grad.flatten() for p in engine.model.parameters()])


@pytest.mark.parametrize("changes", KINDS)
@pytest.mark.parametrize("max_tokens", [40, 1_000])
def test_padding_changes_neither_losses_nor_gradient(toy, changes, max_tokens, as_on_a_gpu):
    batch, model = batch_of(toy, max_tokens), model_of(toy, **changes).double()
    expected, plain = gradient_of(GradientEngine.of(model, 1, 0.1, 1, MACHINE), batch)
    plain = plain.clone()
    engine = graphed(model)
    for _ in range(2):  # the first micro-batch of a shape is computed in another place
        found, gradient = gradient_of(engine, batch)
        assert (gradient - plain).norm() < 1e-12 * plain.norm()
        assert found.loss == pytest.approx(expected.loss, rel=1e-12)
        assert found.nll == pytest.approx(expected.nll, rel=1e-12)


def test_in_fp32_they_are_equal_within_rounding(toy, as_on_a_gpu):
    batch, model = batch_of(toy, 100), model_of(toy)
    expected, plain = gradient_of(GradientEngine.of(model, 1, 0.1, 1, MACHINE), batch)
    plain = plain.clone()
    found, gradient = gradient_of(graphed(model), batch)
    assert (gradient - plain).norm() < 1e-6 * plain.norm()
    assert found.loss == pytest.approx(expected.loss, rel=1e-6)


@pytest.mark.parametrize("changes", KINDS)
def test_what_the_padding_holds_does_not_matter_in_a_single_bit(
    toy, changes, as_on_a_gpu, monkeypatch
):
    batch, model = batch_of(toy, 100), model_of(toy, **changes)
    _, first = gradient_of(graphed(model), batch)
    first = first.clone()
    on_cpu = GradientEngine.on_cpu

    def with_other_padding(engine, pairs):
        found = on_cpu(engine, pairs)
        for side, real in ((found.source, pairs.source), (found.target_input, pairs.target)):
            side.tokens[real.lengths.sum() :] = 7
        found.target_output[pairs.target.lengths.sum() :] = 9
        return found

    monkeypatch.setattr(GradientEngine, "on_cpu", with_other_padding)
    _, second = gradient_of(graphed(model), batch)
    assert torch.equal(first, second)


def test_draws_follow_seed_batch_and_micro_batch_alone(toy, as_on_a_gpu):
    batch, model = batch_of(toy, 40), model_of(toy, dropout=0.3)
    engine = graphed(model)
    first, gradient = gradient_of(engine, batch)
    gradient = gradient.clone()
    torch.manual_seed(99)
    again, same = gradient_of(engine, batch)
    assert torch.equal(gradient, same)
    assert again == first
    others = gradient_of(engine, batch._replace(number=4)), gradient_of(graphed(model, 2), batch)
    assert all(figures != first for figures, _ in others)


def test_micro_batches_of_similar_lengths_share_a_graph(toy, as_on_a_gpu, monkeypatch):
    engine, recorded = graphed(model_of(toy)), list[object]()

    def record(step):
        recorded.append(step)
        return step

    monkeypatch.setattr(engine.graphed._recorder, "recorded", record)
    numbers = np.arange(10)
    for first in range(0, 100, 10):
        sides = (side.gather(first + numbers) for side in (toy.corpus.source, toy.corpus.target))
        engine.compute(Batch(first, (SentencePairs(*sides),)))
    assert 1 <= len(recorded) < 7


def test_without_graphs_a_micro_batch_is_not_padded(toy, as_on_a_gpu):
    batch, model = batch_of(toy, 40), model_of(toy)
    machine = MACHINE._replace(has_graphs=False)
    engine = GradientEngine.of(model, 1, 0.1, 1, machine).with_kernels("torch")
    assert engine.graphed is None
    assert engine.on_cpu(batch.micro_batches[0]).shape is None
    assert not engine.arithmetic()["cuda_graphs"]
    assert graphed(model).arithmetic()["cuda_graphs"]


LENGTHS = st.lists(st.tuples(st.integers(1, 200), st.integers(1, 200)), min_size=1, max_size=60)


@given(LENGTHS, st.sampled_from([200, 10_000]))
def test_a_room_holds_its_sentences_and_fillers_of_allowed_lengths(pairs, most_positions):
    source, target = (list(side) for side in zip(*pairs, strict=True))
    shape, num_fillers = PaddedShape.of(source, target, most_positions)
    assert max(*source, *target) <= shape.longest <= most_positions
    for lengths, num_rows in ((source, shape.source_rows), (target, shape.target_rows)):
        packed = pack_to_shape(torch.ones(sum(lengths)), lengths, num_rows, num_fillers, shape)
        assert len(packed.tokens) == packed.num_tokens == num_rows
        assert len(packed.bounds) == shape.num_sentences + 1
        ends = packed.bounds.tolist()
        assert ends[len(pairs) + num_fillers :] == [num_rows] * (
            len(ends) - len(pairs) - num_fillers
        )
        sizes = packed.bounds.diff()[: len(pairs) + num_fillers].tolist()
        assert sizes[: len(pairs)] == lengths
        assert min(sizes[len(pairs) :]) >= 1
        assert max(sizes) <= shape.longest == packed.longest
        places = torch.cat([torch.arange(size) for size in sizes])
        assert torch.equal(packed.positions, places)


@pytest.mark.parametrize("lengths", [CAPTIONS, NEWS])
@pytest.mark.parametrize("num_ranks", [1, 8])
def test_padded_shapes_of_the_papers_batches_have_little_padding(lengths, num_ranks):
    drawn = random_lengths(np.random.default_rng(1), 60_000, lengths)
    source, target = (side.astype(np.uint16) for side in drawn)
    plan = BatchPlan(source, target, 25_000, 1, [(len(source), 1.0)])
    number = len(plan.batches_of(0))
    assert number > 30
    padding, num_shapes = measure_shapes(plan, source, target, num_ranks, number)
    assert padding < 0.04
    assert num_shapes < number / 2
