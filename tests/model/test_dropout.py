import pytest
import torch

from nmt_cli.model.dropout import Dropout, draw_kept


@pytest.mark.parametrize("rate", [0.05, 0.1, 0.2, 0.3, 0.5, 0.9, 0.9985])
def test_rate_holds_in_every_byte_lane(rate):
    torch.manual_seed(3)
    draws = 40_000
    kept, kept_share = draw_kept(torch.Size([draws, 8]), rate)
    assert 1.0 - kept_share == pytest.approx(rate, rel=1e-9 if rate < 0.99 else 0.01)
    five_sigma = 5 * (rate * (1 - rate) / draws) ** 0.5
    assert (kept.double().mean(0) - kept_share).abs().max() < five_sigma


@pytest.mark.parametrize("rate", [0.001, 0.1])
def test_rates_between_two_bytes_are_exact(rate):
    torch.manual_seed(4)
    kept, kept_share = draw_kept(torch.Size([16_000, 250]), rate)
    five_sigma = 5 * (rate * (1 - rate) / kept.numel()) ** 0.5
    assert five_sigma < 0.2 / 256  # a whole byte misses both rates by more
    assert kept.double().mean().item() == pytest.approx(kept_share, abs=five_sigma)


@pytest.mark.parametrize("training", [True, False])
def test_adding_is_the_sum_with_what_dropout_leaves(training):
    dropout = Dropout(0.3).train(training)
    x, branch = torch.randn(2, 40, 9, dtype=torch.float64).unbind()
    x.requires_grad_(), branch.requires_grad_()
    torch.manual_seed(6)
    found = dropout.add(x, branch)
    torch.manual_seed(6)
    expected = x + dropout(branch)
    assert torch.allclose(found, expected, atol=1e-15)
    direction = torch.randn_like(found)
    for ours, autograds in zip(
        torch.autograd.grad(found, (x, branch), direction),
        torch.autograd.grad(expected, (x, branch), direction),
        strict=True,
    ):
        assert torch.equal(ours, autograds)


def test_kept_elements_are_scaled_and_the_gradient_follows_the_same_mask():
    torch.manual_seed(5)
    x = torch.randn(70, 9, requires_grad=True)
    out = Dropout(0.3)(x)
    dropped = out.eq(0)
    assert 0.2 < dropped.double().mean() < 0.4
    scale = (out / x)[~dropped]
    assert torch.allclose(scale, scale[0].expand_as(scale))
    assert scale[0].item() == pytest.approx(1 / 0.7, rel=0.01)
    out.sum().backward()
    assert x.grad is not None
    assert torch.equal(x.grad.eq(0), dropped)
    assert torch.allclose(x.grad[~dropped], scale)


def test_mean_is_kept():
    torch.manual_seed(7)
    assert Dropout(0.1)(torch.ones(300_000)).mean().item() == pytest.approx(1.0, abs=0.005)


def test_nothing_happens_in_evaluation_or_at_rate_zero():
    x = torch.randn(5, 3)
    assert Dropout(0.5).eval()(x) is x
    assert Dropout(0.0)(x) is x


def test_the_seed_decides_the_mask():
    masks = []
    for seed in (11, 11, 12):
        torch.manual_seed(seed)
        masks.append(draw_kept(torch.Size([999]), 0.1)[0])
    assert torch.equal(masks[0], masks[1])
    assert not torch.equal(masks[0], masks[2])
