"""Attention within a window against one mask over all pairs of a sentence's rows."""

import pytest
import torch
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from nmt_cli.model import attention_window
from nmt_cli.model.attention import SelfAttention
from nmt_cli.model.attention_layout import AttentionLayout
from nmt_cli.model.packing import pack

HEADS, D_MODEL = 3, 12
LENGTHS = [40, 1, 33, 7, 23, 3]


def by_formula(layer, rows, *, causal):
    """Return the output for the rows of one sentence."""
    places = torch.arange(len(rows))
    distance = places[:, None] - places
    mask = (distance.abs() <= layer.window) & ((distance >= 0) | (not causal))
    q, k, v = (part.unflatten(1, (HEADS, -1)).transpose(0, 1) for part in layer.project(rows))
    attended = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
    return layer.output(attended.transpose(0, 1).flatten(1))


def layer_of(window, d_v=4):
    torch.manual_seed(1)
    layer = SelfAttention(D_MODEL, HEADS, 4, d_v).double()
    layer.window = window
    return layer


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("window", [1, 5, 9, 50])
@pytest.mark.parametrize("kind", ["batched products", "blocks", "blocks of a group"])
def test_output_and_gradient_are_those_of_a_mask(kind, window, causal, monkeypatch):
    monkeypatch.setattr(attention_window, "LEAST_BLOCK", 8)
    overhead = 10_000 if kind == "blocks of a group" else 0
    monkeypatch.setattr("nmt_cli.model.attention_layout.GROUP_OVERHEAD", overhead)
    layer = layer_of(window, 4 if kind == "batched products" else 5)
    sentences = pack(torch.zeros(sum(LENGTHS)), LENGTHS, round_up=True)
    assert len(sentences.tokens) > sentences.num_tokens
    rows = torch.randn(len(sentences.tokens), D_MODEL, dtype=torch.float64, requires_grad=True)
    layout = AttentionLayout(sentences, sentences)
    found = layer(rows, layout, causal=causal)[: sum(LENGTHS)]
    assert (len(layout.padded.groups) == 1) == bool(overhead)
    expected = torch.cat(
        [by_formula(layer, own, causal=causal) for own in rows[: sum(LENGTHS)].split(LENGTHS)]
    )
    assert torch.allclose(found, expected)
    direction = torch.randn_like(found)
    leaves = [rows, *layer.parameters()]
    of_both = (torch.autograd.grad((each * direction).sum(), leaves) for each in (found, expected))
    for own, witness in zip(*of_both, strict=True):
        assert torch.allclose(own, witness)


class Largest(TorchDispatchMode):
    """Records the most elements of a tensor that is computed."""

    elements = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        sizes = (each.numel() for each in tree_leaves(result) if isinstance(each, torch.Tensor))
        self.elements = max(self.elements, *sizes, 0)
        return result


@pytest.mark.parametrize("causal", [False, True])
def test_memory_grows_with_the_length_not_its_square(causal):
    largest = []
    layer = layer_of(10).float()
    for length in (2_000, 4_000):
        sentence = pack(torch.zeros(length), [length])
        rows = torch.randn(length, D_MODEL, requires_grad=True)
        with Largest() as watch:
            layer(rows, AttentionLayout(sentence, sentence), causal=causal).sum().backward()
        largest.append(watch.elements)
    assert largest[1] < 2.1 * largest[0] < 4_000 * 4_000 / 10


@pytest.mark.parametrize("causal", [False, True])
def test_weights_outside_the_window_are_0(causal):
    layer, sentences = layer_of(3), pack(torch.zeros(21), [9, 12])
    rows = torch.randn(21, D_MODEL, dtype=torch.float64)
    layout = AttentionLayout(sentences, sentences)
    for weights in layer.weights(rows, layout, causal=causal):
        near = torch.ones_like(weights).triu(-3).tril(0 if causal else 3).bool()
        assert (weights[~near] == 0).all()
        assert (weights[near] > 0).all()
