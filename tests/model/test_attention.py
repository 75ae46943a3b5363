"""Our own gradient of packed attention against autograd's and against finite differences."""

import pytest
import torch

from nmt_cli.model.attention import MemoryAttention, SelfAttention
from nmt_cli.model.attention_layout import AttentionLayout
from nmt_cli.model.attention_window import EVERYTHING, THE_PAST, Window
from nmt_cli.model.cpu_attention import attend_packed
from nmt_cli.model.packing import pack

HEADS, D_MODEL = 3, 12
TARGET_LENGTHS, SOURCE_LENGTHS = [24, 39, 4], [25, 10, 36]


def packed(lengths):
    return pack(torch.zeros(sum(lengths)), lengths, round_up=True)


@pytest.fixture(params=[0, 10_000], ids=["many groups", "one group"])
def batches(request, monkeypatch):
    monkeypatch.setattr("nmt_cli.model.attention_layout.GROUP_OVERHEAD", request.param)
    target, source = packed(TARGET_LENGTHS), packed(SOURCE_LENGTHS)
    assert len(target.tokens) > target.num_tokens  # spare rows
    assert len(AttentionLayout(target, source).padded.groups) == (1 if request.param else 3)
    return target, source


def example(batch, width=D_MODEL):
    return torch.randn(len(batch.tokens), width, dtype=torch.float64, requires_grad=True)


def gradients(output, batch, leaves):
    direction = torch.randn(output.shape, dtype=torch.float64, generator=torch.manual_seed(5))
    real = slice(batch.num_tokens)
    return torch.autograd.grad((output[real] * direction[real]).sum(), leaves)


@pytest.mark.parametrize("kind", ["within", "causal", "memory"])
def test_both_ways_through_the_groups_give_the_same(kind, batches, monkeypatch):
    torch.manual_seed(1)
    target, source = batches
    kind_of_attention = MemoryAttention if kind == "memory" else SelfAttention
    attention = kind_of_attention(D_MODEL, HEADS, 4, 4).double()
    rows, memory = example(target), example(source)
    leaves = [rows, *attention.parameters()] + ([memory] if kind == "memory" else [])

    def attend():
        if kind == "memory":
            return attention(rows, memory, AttentionLayout(target, source))
        layout = AttentionLayout(target, target)
        return attention(rows, layout, causal=kind == "causal")

    ours = attend()
    assert "PackedAttention" in type(ours.grad_fn.next_functions[0][0]).__name__
    monkeypatch.setattr("nmt_cli.model.attention.MAX_KEYS", 0)  # all sentences are long
    theirs = attend()
    assert "PackedAttention" not in type(theirs.grad_fn.next_functions[0][0]).__name__
    real = slice(target.num_tokens)
    assert torch.allclose(ours[real], theirs[real], atol=1e-13)
    found, wanted = gradients(ours, target, leaves), gradients(theirs, target, leaves)
    for gradient, expected in zip(found, wanted, strict=True):
        assert torch.allclose(gradient, expected, atol=1e-13)


@pytest.mark.parametrize("window", [EVERYTHING, THE_PAST, Window(1, 1), Window(1, 0)])
def test_the_gradient_is_that_of_finite_differences(window):
    torch.manual_seed(2)
    batch = pack(torch.zeros(6), [2, 1, 3])
    layout = AttentionLayout(batch, batch)
    assert len(layout.padded.queries.holes) > 0
    projected = example(batch, width=3 * 2 * 2)
    assert torch.autograd.gradcheck(lambda rows: attend_packed(layout, 2, window, rows), projected)


def test_under_autocast_it_stays_close_to_fp32(batches):
    torch.manual_seed(3)
    target, _ = batches
    layout = AttentionLayout(target, target)
    attention = SelfAttention(D_MODEL, HEADS, 4, 4)
    rows = torch.randn(len(target.tokens), D_MODEL, requires_grad=True)
    leaves = [rows, attention.queries_keys_values.weight]
    exact = attention(rows, layout, causal=False)
    with torch.autocast("cpu", torch.bfloat16):
        rounded = attention(rows, layout, causal=False)
    assert rounded.dtype is torch.bfloat16
    assert torch.allclose(rounded.float(), exact, atol=0.03)
    found, wanted = gradients(rounded, target, leaves), gradients(exact, target, leaves)
    for gradient, expected in zip(found, wanted, strict=True):
        assert (gradient - expected).norm() < 0.02 * expected.norm()
