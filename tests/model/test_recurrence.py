"""Recurrent units compute the published formula, and its gradient, for each sentence alone."""

import pytest
import torch

from nmt_cli.model import recurrence
from nmt_cli.model.packing import pack
from nmt_cli.model.recurrence import Recurrence, RecurrentUnit

LENGTHS = [[1], [5, 1, 7, 3, 16], [2, 2, 2], [33]]


def one_row_after_the_other(decays, inputs, lengths):
    """Return the states by the formula; torch derives its gradient."""
    states, rows = [], iter(zip(decays, inputs, strict=False))
    for length in lengths:
        state = torch.zeros_like(inputs[0])
        for _ in range(length):
            decay, new = next(rows)
            state = decay * state + new
            states.append(state)
    return torch.stack(states)


@pytest.mark.parametrize("scan", [recurrence._scan_by_position, recurrence._scan_by_doubling])
@pytest.mark.parametrize("has_spare_rows", [False, True])
@pytest.mark.parametrize("lengths", LENGTHS)
def test_states_and_gradients_are_those_of_the_formula(monkeypatch, scan, has_spare_rows, lengths):
    monkeypatch.setattr(
        recurrence,
        "_scan",
        lambda *arguments, is_reversed=False: scan(*arguments, is_reversed),
    )
    torch.manual_seed(1)
    count = sum(lengths)
    sentences = pack(torch.arange(count), lengths, round_up=has_spare_rows)
    shape = len(sentences.tokens), 3
    decays = torch.rand(shape, dtype=torch.float64, requires_grad=True)
    inputs = torch.randn(shape, dtype=torch.float64, requires_grad=True)
    weights = torch.randn(count, 3, dtype=torch.float64)
    found = Recurrence.apply(decays, inputs, sentences)[:count]
    expected = one_row_after_the_other(decays, inputs, lengths)
    assert torch.allclose(found, expected)
    gradients = torch.autograd.grad((found * weights).sum(), (decays, inputs))
    witnesses = torch.autograd.grad((expected * weights).sum(), (decays, inputs))
    for own, other in zip(gradients, witnesses, strict=True):
        assert torch.allclose(own, other)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_states_are_kept_in_fp32(dtype):
    """Rounded to bf16, 1 + 1/512 is 1: a state that grows by so little would not grow."""
    unit = RecurrentUnit(2).to(dtype)
    with torch.no_grad():
        unit.candidates.weight.copy_(torch.eye(2))
        unit.forget_gates.weight.zero_()
        unit.forget_gates.bias.fill_(6.25)  # its sigmoid is about 1 - 1/512
    rows = torch.ones(400, 2, dtype=dtype)
    output = unit(rows, pack(torch.zeros(400), [400]))
    assert output.dtype is dtype
    gate = torch.sigmoid(torch.tensor(6.25)).item()
    assert output[-1].tolist() == pytest.approx([1 - gate**400] * 2, rel=0.01)


def test_a_sentence_has_the_same_states_in_any_company():
    torch.manual_seed(2)
    unit, lengths = RecurrentUnit(4), [3, 8, 1, 5]
    rows = torch.randn(sum(lengths), 4)
    together = unit(rows, pack(torch.zeros(len(rows)), lengths)).split(lengths)
    for own, found in zip(rows.split(lengths), together, strict=True):
        alone = unit(own, pack(torch.zeros(len(own)), [len(own)]))
        assert torch.allclose(alone, found, atol=1e-6)
