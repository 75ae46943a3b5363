"""Kernels that compute something wrong are refused, and right ones are not.

Both are stand-ins in torch. They round as the kernels in Triton, which are tried in
model/triton_kernels/.
"""

import re

import pytest
import torch
from torch.nn import functional as F

from nmt_cli.hardware.machine import Machine
from nmt_cli.model.attention_window import THE_PAST, Window
from nmt_cli.model.transformer import Transformer
from nmt_cli.recipe.sections.model import ModelConfig
from nmt_cli.training.gradient import kernel_trials
from nmt_cli.training.gradient.engine import GradientEngine
from nmt_cli.training.gradient.kernel_trials import worst_result
from tests import kernels_in_torch as right

TOY = {"num_layers": 1, "d_model": 20, "d_ff": 28, "num_heads": 5, "dropout": 0.1}
BASE = {"num_layers": 1, "dropout": 0.1, "attention_dropout": 0.1}
MODELS = {
    "post-norm": {**TOY, "attention_dropout": 0.2, "output_bias": True},
    "pre-norm": {**TOY, "norm": "pre", "d_v": 6, "attention_biases": True},
    "window": {**TOY, "dropout": 0.0, "attention_window": 3, "decoder": "ssru"},
}


class _Scaled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, tensor, factor):
        ctx.factor = factor
        return tensor.view_as(tensor)

    @staticmethod
    def backward(ctx, gradient):
        return gradient * ctx.factor, None


def scaled(tensor, factor):
    """Return ``tensor``, whose gradient is multiplied by ``factor``, a number or a tensor."""
    return _Scaled.apply(tensor, factor)


@pytest.fixture(autouse=True)
def _short(monkeypatch):
    monkeypatch.setattr(kernel_trials, "LENGTHS", (20, 33))
    monkeypatch.setattr(kernel_trials, "NUMBERS_OF_ROWS", (30, 600))


def tried(monkeypatch, changes, precision="bf16", seed=1, **kernels):
    """Return what is wrong in a model by ``kernels``, in place of right ones."""
    right.bring(monkeypatch, **kernels)
    monkeypatch.setattr(kernel_trials, "SEED", seed)
    model = Transformer(ModelConfig(**changes), 31).train()
    machine = Machine(torch.device("cpu"), precision)
    worst = worst_result(GradientEngine.of(model, 1, 0.1, 1, machine))
    return None if worst.multiple <= 1.0 else worst.text


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("changes", MODELS.values(), ids=MODELS)
def test_right_kernels_are_admitted(changes, precision, monkeypatch):
    for seed in (1, 2):
        assert tried(monkeypatch, changes, precision, seed) is None


def parts_scaled(*factors):
    """Return attention whose gradients of queries, keys and values have these factors."""

    def attend(layout, window, heads, first, keys_values=None):
        keys, values = heads.number * heads.d_k, heads.number * heads.d_v
        parts = first.split((keys, keys, values), dim=1) if keys_values is None else [first]
        if keys_values is not None:
            parts += keys_values.split((keys, values), dim=1)
        queries, *others = (scaled(part, each) for part, each in zip(parts, factors, strict=True))
        if keys_values is None:
            return right.attend(layout, window, heads, torch.cat([queries, *others], dim=1))
        return right.attend(layout, window, heads, queries, torch.cat(others, dim=1))

    return attend


def one_head(*_):
    of_head = torch.ones(5, 4)
    of_head[2] = 0.0
    return parts_scaled(1.0, of_head.flatten(), 1.0)


def one_key_too_many(layout, window, *others):
    return right.attend(layout, Window(-1, 1) if window == THE_PAST else window, *others)


def without_scale(layout, window, heads, first, *others):
    return right.attend(layout, window, heads, first * heads.d_k**0.5, *others)


def never_dropping(layout, window, heads, *others):
    drawn = heads.drawn._replace(rate=0.0)
    output = right.attend(layout, window, heads._replace(drawn=drawn), *others)
    return output / (1 - heads.drawn.rate)


def with_another_mask_behind(layout, window, heads, *others):
    """The backward pass draws with another number."""
    other = heads._replace(drawn=heads.drawn._replace(number=heads.drawn.number + 1))
    found, wrong = (right.attend(layout, window, each, *others) for each in (heads, other))
    return wrong + (found - wrong).detach()


ATTENTION = {
    "keys zero": (parts_scaled(1.0, 0.0, 1.0), "the gradient of keys of "),
    "keys doubled": (parts_scaled(1.0, 2.0, 1.0), "the gradient of keys of "),
    "halved": (parts_scaled(0.5, 0.5, 1.0), "the gradient of (queries|keys) of "),
    "values": (parts_scaled(1.0, 1.0, 0.97), "the gradient of values of "),
    "a head": (one_head(), "the gradient of keys of "),
    "a number": (parts_scaled(torch.nan, 1.0, 1.0), "the gradient of queries .* off by nan%"),
    "mask": (one_key_too_many, ".* of the decoder's attention"),
    "scale": (without_scale, ".*"),
    "all kept": (never_dropping, "the dropout of .* keeps 100.0%, not 80.0%"),
    "two masks": (with_another_mask_behind, "the gradient of "),
}


@pytest.mark.parametrize("wrong", ATTENTION)
def test_wrong_attention_is_refused(wrong, monkeypatch):
    kernel, text = ATTENTION[wrong]
    found = tried(monkeypatch, MODELS["post-norm"], attend=kernel)
    assert found is not None
    assert re.match(text, found)


def of_norm(weight, bias):
    def add_dropout_norm(rows, branch, drawn, norm, *of_branch):
        if norm is not None:
            norm = right.Norm(scaled(norm.weight, weight), scaled(norm.bias, bias), norm.epsilon)
        return right.add_dropout_norm(rows, branch, drawn, norm, *of_branch)

    return add_dropout_norm


def of_rows(rows, branch, bias=1.0):
    def add_dropout_norm(x, y, drawn, norm, of_branch=None):
        of_branch = None if of_branch is None else scaled(of_branch, bias)
        return right.add_dropout_norm(scaled(x, rows), scaled(y, branch), drawn, norm, of_branch)

    return add_dropout_norm


def first_rows(tensor):
    """Return zeros, through which the gradient of the first rows passes."""
    is_first = (torch.arange(len(tensor)) < 100)[:, None]
    return scaled(tensor, is_first) - tensor.detach()


def sums_of_some_rows(rows, branch, drawn, norm, *of_branch):
    """The sums of the norm's gradients leave out rows that programs do not hold at once."""
    if norm is None:
        return right.add_dropout_norm(rows, branch, drawn, norm)
    plain = right.Norm(norm.weight.detach(), norm.bias.detach(), norm.epsilon)
    found = right.add_dropout_norm(rows, branch, drawn, plain, *of_branch)
    return found + first_rows(right.add_dropout_norm(rows.detach(), branch.detach(), drawn, norm))


def dropped_in_front_only(rows, branch, drawn, *others):
    """The backward pass forgets the dropout of the branch."""
    found = right.add_dropout_norm(rows, branch, drawn, *others)
    plain = right.add_dropout_norm(rows, branch, drawn._replace(rate=0.0), *others)
    return plain + (found - plain).detach()


def without_epsilon(rows, branch, drawn, *others):
    total = rows.float() + branch.float()
    return right.add_dropout_norm(total * 0.5, branch * 0.0, drawn, *others)


RESIDUALS = {
    "weight": (of_norm(0.0, 1.0), "the gradient of the norm's weight "),
    "bias": (of_norm(1.0, 2.0), "the gradient of the norm's bias "),
    "rows": (of_rows(0.98, 1.0), "the gradient of rows of "),
    "branch": (of_rows(1.0, 0.9), "the gradient of branch of "),
    "its bias": (of_rows(1.0, 1.0, 1.03), "the gradient of the branch's bias of "),
    "many rows": (sums_of_some_rows, "the gradient of the norm's (weight|bias) "),
    "dropout": (dropped_in_front_only, "the gradient of "),
    "half a sum": (without_epsilon, ".*"),
}


@pytest.mark.parametrize("wrong", RESIDUALS)
def test_a_wrong_residual_sum_is_refused(wrong, monkeypatch):
    kernel, text = RESIDUALS[wrong]
    found = tried(monkeypatch, MODELS["post-norm"], add_dropout_norm=kernel)
    assert found is not None
    assert re.match(text, found)


def bias_of_some_rows(rows, weight, bias):
    found, rows = right.linear_relu(rows, weight, bias.detach())
    others, _ = right.linear_relu(rows.detach(), weight.detach(), bias)
    return found + first_rows(others), rows


def passing_everything(rows, weight, bias):
    """The gradient passes where the result is 0, too."""
    inner = F.linear(rows, weight.to(rows.dtype), bias.to(rows.dtype))
    return inner + (F.relu(inner) - inner).detach(), rows


ACTIVATION = {
    "bias": lambda rows, weight, bias: right.linear_relu(rows, weight, scaled(bias, 0.0)),
    "weight": lambda rows, weight, bias: right.linear_relu(rows, scaled(weight, 1.05), bias),
    "rows": lambda rows, weight, bias: right.linear_relu(scaled(rows, 0.5), weight, bias),
    "many rows": bias_of_some_rows,
    "negative": passing_everything,
}


@pytest.mark.parametrize("wrong", ACTIVATION)
def test_a_wrong_activation_is_refused(wrong, monkeypatch):
    found = tried(monkeypatch, TOY, linear_relu=ACTIVATION[wrong])
    what = {"many rows": "bias", "negative": ""}.get(wrong, wrong)
    assert found is not None
    assert re.match(f"the gradient of .*{what}", found)


def changed_loss(factor=1.0, nll=1.0, smoothing=1.0):
    def losses_in_place(logits, targets, given):
        found, chosen = right.losses_in_place(logits, targets, given * smoothing)
        logits *= factor
        return found * nll, chosen

    return losses_in_place


LOSS = {
    "doubled": (changed_loss(factor=2.0), "the gradient of "),
    "nll": (changed_loss(nll=1.05), "the result of the loss "),
    "smoothing": (changed_loss(smoothing=0.5), "the gradient of "),
}


@pytest.mark.parametrize("wrong", LOSS)
def test_a_wrong_loss_is_refused(wrong, monkeypatch):
    kernel, text = LOSS[wrong]
    found = tried(monkeypatch, MODELS["post-norm"], losses_in_place=kernel)
    assert found is not None
    assert re.match(text, found)
