"""The best entries of rows against a sort, and the normalizers against torch in fp64."""

import pytest
import torch

from tests.kernels_in_triton import DEVICE, MARKS

from nmt_cli.model.triton_kernels.best_entries import COLUMNS, best_entries  # isort: skip

pytestmark = MARKS


def sorted_entries(logits, number, banned):
    wide = logits.float()
    if banned >= 0:
        wide[:, banned] = -torch.inf
    best = wide.sort(dim=1, descending=True, stable=True)
    return best.values[:, :number], best.indices[:, :number]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    ("size", "number", "banned"),
    [(1, 2, -1), (5, 8, 1), (37, 3, 4), (COLUMNS, 8, -1), (2 * COLUMNS + 1, 9, 2 * COLUMNS)],
)
def test_the_best_entries_are_those_of_a_sort(size, number, banned, dtype):
    torch.manual_seed(size)
    logits = (4 * torch.randn(6, size)).to(DEVICE, dtype)
    logits[1] = logits[1].round() + 0.0  # many are equal
    logits[2] = -torch.arange(size, device=DEVICE).flip(0).to(dtype)  # the best come last
    logits[3, size // 2 :] = -torch.inf
    if banned >= 0:
        logits[:, banned] = 99.0
    exact = logits.double().logsumexp(1)
    values, places, normalizers = best_entries(logits, number, banned)
    expected = sorted_entries(logits, number, banned)
    assert torch.equal(values, expected[0])
    assert torch.equal(places, expected[1])
    assert torch.allclose(normalizers.double(), exact, rtol=1e-6, atol=1e-5)


def test_nan_reaches_the_normalizer_of_its_row_only():
    logits = torch.randn(3, COLUMNS + 5, device=DEVICE)
    logits[1, 7], logits[2, COLUMNS + 1] = torch.nan, torch.inf
    _, places, normalizers = best_entries(logits, 4, 0)
    assert normalizers.isfinite().tolist() == [True, False, False]
    assert ((places >= 0) & (places < logits.shape[1])).all()


def test_rows_may_be_parts_of_wider_ones():
    logits = torch.randn(4, 50, device=DEVICE)
    found = best_entries(logits[:, :37], 5, -1)
    for one, other in zip(found, best_entries(logits[:, :37].contiguous(), 5, -1), strict=True):
        assert torch.equal(one, other)
