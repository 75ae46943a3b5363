"""ReLU with its bias and the sums of its gradient, against torch in fp64."""

import pytest
import torch
from torch.nn import functional as F

from tests.kernels_in_triton import DEVICE, MARKS
from tests.units_in_the_last_place import errors

from nmt_cli.model.triton_kernels.relu import linear_relu  # isort: skip

pytestmark = MARKS
UNITS = {torch.bfloat16: 2.0, torch.float32: 1e-5 * 2**23}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("shape", [(1, 7, 5), (200, 16, 130)])
def test_rows_and_gradients_are_those_of_the_formula(shape, dtype):
    torch.manual_seed(3)
    num_rows, d_model, d_ff = shape
    sizes = (num_rows, d_model), (d_ff, d_model), (d_ff,)
    tensors = [torch.randn(size).to(DEVICE, dtype).requires_grad_() for size in sizes]
    found, _ = linear_relu(*tensors)
    wide = [each.detach().double().requires_grad_() for each in tensors]
    exact = F.relu(F.linear(*wide))
    direction = torch.randn(num_rows, d_ff).to(DEVICE, dtype)
    gradients = torch.autograd.grad(found, tensors, direction)
    # Where the rounded result is 0 or not decides which numbers have a gradient.
    inner = (direction.double() * (found > 0)).detach()
    expected = inner @ wide[1], inner.T @ wide[0], inner.sum(0)
    for ours, theirs in zip([found, *gradients], [exact, *expected], strict=True):
        assert errors(ours, theirs) <= UNITS[dtype]
    assert torch.equal(found > 0, exact > 0)
