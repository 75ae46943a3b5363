import pytest
import torch
from torch.nn import functional as F

from nmt_cli.training.gradient import loss as loss_module
from nmt_cli.training.gradient.loss import label_smoothed_cross_entropy

ROWS, D_MODEL, VOCABULARY = 53, 7, 31


@pytest.fixture
def example():
    torch.manual_seed(1)
    rows = torch.randn(ROWS, D_MODEL, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(VOCABULARY, D_MODEL, dtype=torch.float64, requires_grad=True)
    return rows, weight, torch.randint(VOCABULARY, (ROWS,))


@pytest.mark.parametrize("chunk_rows", [1, 10, 53, 1_000])
@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.9])
def test_loss_and_gradients_are_those_of_the_unfused_loss(
    example, smoothing, chunk_rows, monkeypatch
):
    monkeypatch.setattr(loss_module, "CHUNK_ROWS", {"cpu": chunk_rows})
    rows, weight, targets = example
    ours = label_smoothed_cross_entropy(rows, weight, targets, smoothing)
    logits = rows @ weight.T
    theirs = F.cross_entropy(logits, targets, label_smoothing=smoothing, reduction="sum")
    assert ours.loss.item() == pytest.approx(theirs.item(), rel=1e-13)
    nll = F.cross_entropy(logits, targets, reduction="sum")
    assert ours.nll.item() == pytest.approx(nll.item(), rel=1e-13)
    found = torch.autograd.grad(ours.loss / 3, (rows, weight))
    wanted = torch.autograd.grad(theirs / 3, (rows, weight))
    for gradient, expected in zip(found, wanted, strict=True):
        assert (gradient - expected).abs().max() < 1e-13


def test_large_logits_do_not_overflow():
    rows, weight = torch.full((2, 1), 100.0), torch.tensor([[100.0], [0.0], [-100.0]])
    sums = label_smoothed_cross_entropy(rows, weight, torch.tensor([0, 1]), 0.0)
    assert sums.loss.item() == pytest.approx(10_000.0)


def test_nothing_is_computed_for_gradients_nobody_wants(example):
    rows, weight, targets = example
    with torch.no_grad():
        sums = label_smoothed_cross_entropy(rows, weight, targets, 0.1)
    assert not sums.loss.requires_grad
    with_gradient = label_smoothed_cross_entropy(rows, weight, targets, 0.1)
    assert torch.equal(sums.loss, with_gradient.loss.detach())


def test_bf16_stays_close_to_fp32(example):
    rows, weight, targets = (
        tensor.float() if tensor.is_floating_point() else tensor for tensor in example
    )
    exact = label_smoothed_cross_entropy(rows, weight, targets, 0.1)
    rounded = label_smoothed_cross_entropy(rows.bfloat16(), weight, targets, 0.1)
    assert rounded.loss.dtype is torch.float32
    assert rounded.loss.item() == pytest.approx(exact.loss.item(), rel=0.01)


def test_targets_whose_probability_underflows_are_exact_too(example):
    rows, weight, targets = example
    rows, weight = 60 * rows.float(), weight.float()
    logits = rows @ weight.T
    assert 0 < (logits.softmax(1).gather(1, targets[:, None]) == 0).sum() < ROWS
    sums = label_smoothed_cross_entropy(rows, weight, targets, 0.0)
    expected = F.cross_entropy(logits.double(), targets, reduction="sum")
    assert sums.nll.item() == pytest.approx(expected.item(), rel=1e-6)


@pytest.mark.parametrize(
    ("dtype", "vocabulary_size", "is_by_kernel", "expected"),
    [
        (torch.bfloat16, 37_000, False, 1_024),
        (torch.bfloat16, 37_000, True, 16_384),
        (torch.float32, 37_000, True, 9_068),  # 1.25 GiB of logits
        (torch.bfloat16, 1_000_000, True, 1_024),
    ],
)
def test_our_kernel_takes_as_many_rows_at_a_time_as_logits_have_room(
    dtype, vocabulary_size, is_by_kernel, expected
):
    rows = torch.zeros(1, 1, dtype=dtype)
    found = loss_module._chunk_rows(rows, vocabulary_size, is_by_kernel=is_by_kernel)
    assert found == expected
