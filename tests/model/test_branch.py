"""Products that add their gradient to that of a residual sum, against torch's linear layer."""

import pytest
import torch
from torch.nn import functional as F

from nmt_cli.model.branch import linear_and_rows


@pytest.mark.parametrize("has_bias", [True, False])
@pytest.mark.parametrize("uses_rows", [True, False])
def test_gradients_are_those_of_a_linear_layer_and_of_the_sum(has_bias, uses_rows):
    torch.manual_seed(4)
    sizes = [(7, 5), (3, 5), (3,)][: 2 + has_bias]
    tensors = [torch.randn(size, dtype=torch.float64, requires_grad=True) for size in sizes]
    rows, weight, *bias = tensors

    def gradients(output, after):
        total = output.square().sum() + (after.sin().sum() if uses_rows else 0.0)
        return torch.autograd.grad(total, tensors)

    output, after = linear_and_rows(rows, weight, bias[0] if bias else None)
    assert torch.equal(after, rows)
    expected = gradients(F.linear(rows, weight, *bias), rows)
    for ours, theirs in zip(gradients(output, after), expected, strict=True):
        assert torch.allclose(ours, theirs, rtol=1e-12)


def test_under_autocast_the_rows_have_the_type_of_products():
    rows, weight = torch.randn(4, 6, requires_grad=True), torch.randn(2, 6, requires_grad=True)
    with torch.autocast("cpu", torch.bfloat16):
        output, after = linear_and_rows(rows, weight, None)
    assert (output.dtype, after.dtype) == (torch.bfloat16, torch.bfloat16)
    (output.sum() + after.sin().sum()).backward()
    gradients = [each.grad.dtype for each in (rows, weight) if each.grad is not None]
    assert gradients == [torch.float32] * 2
