from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from nmt_cli.corpus.loader import Batch, SentencePairs
from nmt_cli.corpus.tokenizers.sentence_marks import start_id
from nmt_cli.hardware.machine import Machine
from nmt_cli.model.transformer import Transformer
from nmt_cli.training.gradient.engine import GradientEngine, micro_batch_seed
from nmt_cli.training.gradient.loss import LossSums
from tests.architectures import OPTION_SETS, Formula, random_model
from tests.forked_ranks import run_ranks

MACHINE = Machine(torch.device("cpu"), "fp32")


def model_of(toy, **changes):
    torch.manual_seed(1)
    config = toy.recipe.model.model_copy(update={"dropout": 0.0, **changes})
    return Transformer(config, toy.corpus.tokenizer.size)


def batch_of(toy, max_tokens):
    first = np.arange(20)
    pairs = SentencePairs(toy.corpus.source.gather(first), toy.corpus.target.gather(first))
    return Batch(3, (pairs,)).into_micro_batches(max_tokens)


def gradient_of(model, batch, seed=1):
    report = GradientEngine.of(model, 1, 0.1, seed, MACHINE).compute(batch).read()
    return report, torch.cat([p.grad.flatten() for p in model.parameters()])


def test_target_input_is_the_output_moved_by_one(toy):
    batch = batch_of(toy, 1_000)
    engine = GradientEngine.of(model_of(toy), 1, 0.1, 1, MACHINE)
    _, target_input, target_output, *_ = engine.on_cpu(batch.micro_batches[0])
    lengths = list(target_input.lengths)
    for given, wanted in zip(
        target_input.tokens.split(lengths), target_output.split(lengths), strict=True
    ):
        assert given.tolist() == [1, *wanted[:-1].tolist()]
        assert wanted[-1] == toy.corpus.tokenizer.eos_id


@pytest.mark.parametrize("options", OPTION_SETS)
def test_the_loss_is_that_of_the_formula_with_the_marks_of_the_options(toy, options):
    tokenizer = toy.corpus.tokenizer
    model = random_model(options, tokenizer.size).double()
    pairs = batch_of(toy, 40).micro_batches[0]
    found = GradientEngine.of(model, start_id(model.config, tokenizer), 0.0, 1, MACHINE).loss_sums(
        pairs
    )
    formula, expected = Formula(model), 0.0
    sides = [np.split(side, np.cumsum(lengths)[:-1]) for side, lengths in pairs.sides]
    for source, target in zip(*sides, strict=True):
        expected += formula.nll(source[:-1].tolist(), target[:-1].tolist(), tokenizer)
    assert found.nll.item() == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize(
    ("device", "precision", "fp32_products", "is_rounded"),
    [
        ("cpu", "bf16", "mkl", True),
        ("cpu", "fp32", "onednn", True),
        ("cpu", "fp32", "mkl", False),
        ("meta", "bf16", "mkl", False),
    ],
)
def test_where_onednn_multiplies_there_are_spare_rows(
    toy, device, precision, fp32_products, is_rounded
):
    pairs = batch_of(toy, 1_000).micro_batches[0]
    # meta stands for a GPU
    machine = Machine(torch.device(device), precision, fp32_products=fp32_products)
    sides = GradientEngine.of(model_of(toy), 1, 0.1, 1, machine).on_cpu(pairs)[:2]
    assert any(len(side.tokens) > side.num_tokens for side in sides) == is_rounded


@pytest.mark.parametrize("changes", [{}, {"decoder": "ssru"}, {"attention_window": 1}])
def test_one_micro_batch_equals_four(toy, changes):
    model = model_of(toy, **changes).double()
    whole, quarters = batch_of(toy, 1_000), batch_of(toy, 40)
    assert len(whole.micro_batches) == 1
    assert len(quarters.micro_batches) >= 4
    first, expected = gradient_of(model, whole)
    second, found = gradient_of(model, quarters)
    assert (found - expected).norm() < 1e-10 * expected.norm()
    assert second.loss == pytest.approx(first.loss, rel=1e-12)
    assert second.num_tokens == first.num_tokens


def test_the_gradient_is_that_of_the_mean_token_loss(toy):
    model = model_of(toy).double()
    batch = batch_of(toy, 1_000)
    report, found = gradient_of(model, batch)
    engine = GradientEngine.of(model, 1, 0.1, 1, MACHINE)
    source, target_input, target_output, *_ = engine.on_cpu(batch.micro_batches[0])
    logits = model.project(model(source, target_input))
    loss = F.cross_entropy(logits, target_output, label_smoothing=0.1)
    expected = torch.cat([g.flatten() for g in torch.autograd.grad(loss, model.parameters())])
    assert (found - expected).norm() < 1e-10 * expected.norm()
    assert report.loss == pytest.approx(loss.item(), rel=1e-12)
    assert report.norm == pytest.approx(expected.norm().item())


def test_dropout_follows_seed_batch_and_micro_batch_alone(toy):
    model = model_of(toy, dropout=0.3)
    batch = batch_of(toy, 40)
    _, first = gradient_of(model, batch)
    torch.manual_seed(99)  # what was drawn before does not matter
    _, again = gradient_of(model, batch)
    assert torch.equal(first, again)
    _, other_seed = gradient_of(model, batch, seed=2)
    assert not torch.equal(first, other_seed)
    _, other_batch = gradient_of(model, batch._replace(number=4))
    assert not torch.equal(first, other_batch)


@pytest.mark.parametrize("num_ranks", [1, 2])
@pytest.mark.parametrize("wrong", [None, "loss", "alignment"])
def test_the_loss_of_a_guided_head_decides_as_the_others_do(toy, tmp_path, num_ranks, wrong):
    of_rank = {"loss": 3.0, "nll": 2.0, "alignment": 1.0}
    if wrong is not None:
        of_rank[wrong] = float("inf")

    def on_rank(ranks):
        guidance: Any = "a head is guided"
        machine = MACHINE._replace(ranks=ranks)
        engine = GradientEngine.of(model_of(toy), 1, 0.1, 1, machine, guidance)
        zero = 0.0 * engine.model.output_weight.sum()
        loss, nll, alignment = of_rank.values()
        losses = LossSums(zero + loss, torch.tensor(nll), zero + alignment, 1.0)
        engine.total.begin(10 * ranks.size)
        engine.total.add(losses, is_first=True)
        gradient = engine.sum_over_ranks()
        return gradient.is_infinite.item(), gradient.read()

    for is_infinite, found in run_ranks(num_ranks, tmp_path, on_rank):
        assert is_infinite == (wrong is not None)
        assert found.is_finite == (wrong is None)
        assert found[:2] == (of_rank["loss"] / 10, 0.2)
        assert (found.norm, found.alignment) == (0.0, of_rank["alignment"] / 10)


def test_seeds_of_micro_batches_are_distinct_and_fit_torch():
    seeds = {
        micro_batch_seed(seed, batch, micro)
        for seed in (0, 1, 2**62)
        for batch in (0, 1, 11)
        for micro in (0, 1, 11)
    }
    assert len(seeds) == 27
    assert all(0 <= seed < 2**63 for seed in seeds)


def test_bf16_gradient_points_the_same_way(toy):
    model = model_of(toy)
    _, exact = gradient_of(model, batch_of(toy, 1_000))
    machine = MACHINE._replace(precision="bf16")
    report = GradientEngine.of(model, 1, 0.1, 1, machine).compute(batch_of(toy, 1_000)).read()
    rounded = torch.cat([p.grad.flatten() for p in model.parameters()])
    assert report.is_finite
    assert F.cosine_similarity(exact, rounded, dim=0) > 0.99
