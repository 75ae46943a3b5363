"""Options of the architecture, in sets in which each two of them meet."""

import itertools

import pytest
import torch
from torch.nn import functional as F

from nmt_cli.model.packing import pack
from nmt_cli.training.gradient.loss import label_smoothed_cross_entropy
from tests.architectures import CHOICES, OPTION_SETS, VALUES, Formula, random_model

SIZE = 37
SOURCE_LENGTHS, TARGET_LENGTHS = [7, 3, 11, 1], [4, 9, 2, 6]


def batch(lengths, seed):
    tokens = torch.randint(3, SIZE, (sum(lengths),), generator=torch.Generator().manual_seed(seed))
    return tokens, pack(tokens, lengths)


def test_each_two_values_meet_in_a_set():
    for one, other in itertools.combinations(VALUES, 2):
        met = {(choice[one], choice[other]) for choice in CHOICES}
        assert len(met) == len(VALUES[one]) * len(VALUES[other])


@pytest.mark.parametrize("options", OPTION_SETS)
def test_loss_and_gradients_of_a_packed_batch_are_those_of_the_formula(options):
    model = random_model(options, SIZE).double()
    source_tokens, source = batch(SOURCE_LENGTHS, 1)
    target_tokens, target = batch(TARGET_LENGTHS, 2)
    wanted = torch.roll(target_tokens, 1)
    rows = model(source, target)
    found = label_smoothed_cross_entropy(rows, model.output_weight, wanted, 0.1, model.output_bias)

    formula = Formula(model)
    logits = torch.cat(
        [
            formula.logits(s.tolist(), t.tolist())
            for s, t in zip(
                source_tokens.split(SOURCE_LENGTHS),
                target_tokens.split(TARGET_LENGTHS),
                strict=True,
            )
        ]
    )
    assert torch.allclose(model.project(rows), logits, atol=1e-6)
    loss = F.cross_entropy(logits, wanted, label_smoothing=0.1, reduction="sum")
    assert found.loss.item() == pytest.approx(loss.item(), rel=1e-8)
    parameters = list(model.parameters())
    of_ours = torch.autograd.grad(found.loss, parameters, retain_graph=True)
    of_formula = torch.autograd.grad(loss, parameters)
    for ours, theirs in zip(of_ours, of_formula, strict=True):
        assert torch.allclose(ours, theirs, rtol=1e-5, atol=1e-6)
