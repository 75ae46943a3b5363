"""Dropout, sum and norm in one kernel, against torch in fp64."""

import pytest
import torch
from torch.nn import functional as F

from nmt_cli.model.dropout import KernelDropout
from tests.kernels_in_triton import DEVICE, MARKS
from tests.units_in_the_last_place import errors

from nmt_cli.model.triton_kernels.residual import Norm, add_dropout_norm  # isort: skip

pytestmark = MARKS
UNITS = {torch.bfloat16: 2.0, torch.float32: 1e-5 * 2**23}


def drawn(rate, number=3):
    return KernelDropout(rate, torch.tensor([7 << 35], device=DEVICE) if rate else None, number)


def kept_of(shape, dropout):
    """What dropout keeps, seen in its result."""
    zeros, ones = torch.zeros(shape, device=DEVICE), torch.ones(shape, device=DEVICE)
    return add_dropout_norm(zeros, ones, dropout, None) > 0


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("rate", [0.0, 0.3])
@pytest.mark.parametrize("has_norm", [True, False])
@pytest.mark.parametrize("shape", [(1, 3), (9, 300), (33, 512)])
def test_rows_and_gradients_are_those_of_the_formula(shape, has_norm, rate, dtype):
    torch.manual_seed(2)
    numbers = [torch.randn(shape), torch.randn(shape)]
    numbers += [torch.randn(shape[1]) for _ in range(3)] if has_norm else []
    tensors = [each.to(DEVICE, dtype).requires_grad_() for each in numbers]
    rows, branch, *others = tensors
    norm = Norm(others[0], others[1], 1e-5) if has_norm else None
    found = add_dropout_norm(rows, branch, drawn(rate), norm, *others[2:])
    wide = [each.detach().double().requires_grad_() for each in tensors]
    kept = kept_of(shape, drawn(rate))
    of_branch = wide[4] - wide[4].detach() if has_norm else 0.0
    total = wide[0] + (wide[1] + of_branch) * kept / (1 - rate)
    exact = F.layer_norm(total, shape[1:], wide[2], wide[3], 1e-5) if has_norm else total
    direction = torch.randn(shape).to(DEVICE, dtype)
    gradients = torch.autograd.grad(found, tensors, direction)
    expected = torch.autograd.grad(exact, wide, direction.double())
    assert found.dtype is dtype
    for ours, theirs in zip([found, *gradients], [exact, *expected], strict=True):
        assert errors(ours, theirs) <= UNITS[dtype]


def test_the_sums_of_pre_norm_stay_wide():
    rows, branch = torch.randn(5, 8, device=DEVICE), torch.randn(5, 8).to(DEVICE, torch.bfloat16)
    assert torch.equal(add_dropout_norm(rows, branch, drawn(0.0), None), rows + branch.float())
    norm = Norm(torch.ones(8, device=DEVICE), torch.zeros(8, device=DEVICE), 1e-5)
    assert add_dropout_norm(rows, branch, drawn(0.0), norm).dtype is torch.bfloat16


def test_draws_have_their_share_and_differ_between_rows_columns_and_places():
    shape = 64, 128
    found, other = kept_of(shape, drawn(0.3)), kept_of(shape, drawn(0.3, number=4))
    assert torch.equal(found, kept_of(shape, drawn(0.3)))
    assert found.double().mean().item() == pytest.approx(0.7, abs=0.02)
    for moved in (other, found.roll(1, 0), found.roll(1, 1)):
        pair = torch.stack([found.flatten(), moved.flatten()]).double()
        assert abs(torch.corrcoef(pair)[0, 1]) < 0.06  # five deviations


def test_the_gradient_of_a_norm_is_the_same_bits_each_time():
    rows = torch.randn(3000, 8, device=DEVICE)  # several programs share the sum
    norm = Norm(torch.ones(8, device=DEVICE).requires_grad_(), torch.zeros(8, device=DEVICE), 1e-5)
    first, again = (
        torch.autograd.grad(add_dropout_norm(rows, rows, drawn(0.3), norm).square().sum(), norm[0])
        for _ in range(2)
    )
    assert torch.equal(first[0], again[0])
