"""Losses and gradients of logits in one kernel, against torch in fp64."""

import pytest
import torch
from torch.nn import functional as F

from nmt_cli.training.gradient.loss import label_smoothed_cross_entropy
from tests.kernels_in_triton import DEVICE, MARKS
from tests.units_in_the_last_place import errors

from nmt_cli.model.triton_kernels.cross_entropy import COLUMNS, losses_in_place  # isort: skip

pytestmark = MARKS
UNITS = {torch.bfloat16: 2.0, torch.float32: 1e-5 * 2**23}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("size", [1, 37, 1000, COLUMNS + 1])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_a_chunk_becomes_its_gradient(size, smoothing, dtype):
    torch.manual_seed(4)
    logits = (4 * torch.randn(5, size)).to(DEVICE, dtype)
    targets = torch.randint(size, (5,), device=DEVICE)
    exact = logits.double()
    nll, chosen = losses_in_place(logits, targets, smoothing)
    expected = exact.softmax(1)
    expected[torch.arange(5), targets] -= 1.0 - smoothing
    assert errors(logits, expected) <= UNITS[dtype]
    of_torch = F.cross_entropy(exact, targets, reduction="none")
    assert torch.allclose(nll.double(), of_torch, rtol=1e-5, atol=1e-6)
    assert torch.equal(chosen.double(), exact[torch.arange(5), targets])


def test_large_logits_do_not_overflow_and_nan_is_seen():
    logits = torch.tensor([[1e4, 0.0, -1e4], [torch.nan, 0.0, 1.0], [torch.inf, 0.0, 0.0]])
    logits = logits.to(DEVICE)
    nll, _ = losses_in_place(logits, torch.tensor([1, 1, 1], device=DEVICE), 0.0)
    assert nll[0] == 1e4
    assert nll[1].isnan()
    assert not nll[2].isfinite()


def test_a_batch_has_the_loss_and_the_gradients_of_torch():
    torch.manual_seed(5)
    rows, weight = torch.randn(50, 8, device=DEVICE), torch.randn(31, 8, device=DEVICE)
    bias, targets = torch.randn(31, device=DEVICE), torch.randint(31, (50,), device=DEVICE)
    tensors = [each.requires_grad_() for each in (rows, weight, bias)]
    found, expected = (
        label_smoothed_cross_entropy(rows, weight, targets, 0.1, bias, is_by_kernel=by_kernel)
        for by_kernel in (True, False)
    )
    assert found.nll.item() == pytest.approx(expected.nll.item(), rel=1e-6)
    assert found.loss.item() == pytest.approx(expected.loss.item(), rel=1e-6)
    pairs = (torch.autograd.grad(each.loss, tensors) for each in (found, expected))
    for ours, theirs in zip(*pairs, strict=True):
        assert torch.allclose(ours, theirs, rtol=1e-5, atol=1e-5)
