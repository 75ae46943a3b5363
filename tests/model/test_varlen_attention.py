"""Attention to packed rows as they are against padded groups: the wiring; on a GPU the kernel."""

from unittest.mock import Mock

import pytest
import torch
from torch.nn import functional as F

from nmt_cli.model import attention
from nmt_cli.model.attention import MemoryAttention, SelfAttention
from nmt_cli.model.attention_layout import AttentionLayout
from nmt_cli.model.packing import pack

HEADS, D_MODEL = 4, 64
TARGET_LENGTHS, SOURCE_LENGTHS = [24, 1, 39, 4], [25, 3, 10, 36]
KINDS = ["within", "causal", "window", "causal window", "memory"]


def sentence_by_sentence(
    queries,
    keys,
    values,
    query_bounds,
    key_bounds,
    longest_query,
    longest_key,
    *,
    window_size,
):
    """What torch documents of varlen_attn, by one call for each sentence."""
    assert query_bounds.dtype == key_bounds.dtype == torch.int32
    assert longest_query == query_bounds.diff().max()
    assert longest_key == key_bounds.diff().max()
    assert window_size in ((-1, -1), (-1, 0), (2, 2), (2, 0))
    back, ahead = (1_000 if each < 0 else each for each in window_size)
    outputs = []
    for i in range(len(query_bounds) - 1):
        of_queries, of_keys = slice(*query_bounds[i : i + 2]), slice(*key_bounds[i : i + 2])
        near = torch.ones(len(queries[of_queries]), len(keys[of_keys])).triu(-back).tril(ahead)
        near = near.bool()
        outputs.append(
            F.scaled_dot_product_attention(
                queries[of_queries].transpose(0, 1),
                keys[of_keys].transpose(0, 1),
                values[of_keys].transpose(0, 1),
                attn_mask=near,
            ).transpose(0, 1)
        )
    return torch.cat(outputs)


def attended(layer, kind, target, source, rows, memory):
    if kind == "memory":
        return layer(rows, memory, AttentionLayout(target, source))
    return layer(rows, AttentionLayout(target, target), causal="causal" in kind)


def layer_of(kind, width):
    kind_of_attention = MemoryAttention if kind == "memory" else SelfAttention
    layer = kind_of_attention(D_MODEL, HEADS, width, width)
    if isinstance(layer, SelfAttention) and "window" in kind:
        layer.window = 2
    return layer


def with_gradients(layer, kind, target, source, rows, memory):
    output = attended(layer, kind, target, source, rows, memory)
    direction = torch.randn(output.shape, generator=torch.manual_seed(5)).to(output)
    leaves = [rows, *layer.parameters()] + ([memory] if kind == "memory" else [])
    return [output, *torch.autograd.grad((output * direction).sum(), leaves)]


@pytest.mark.parametrize("kind", KINDS)
def test_sentences_are_handed_over_where_they_lie(kind, monkeypatch):
    torch.manual_seed(1)
    target, source = (
        pack(torch.zeros(sum(lengths)), lengths) for lengths in (TARGET_LENGTHS, SOURCE_LENGTHS)
    )
    layer = layer_of(kind, 16).double()
    rows, memory = (
        torch.randn(len(side.tokens), D_MODEL, dtype=torch.float64, requires_grad=True)
        for side in (target, source)
    )
    monkeypatch.setattr(attention, "MAX_KEYS", 0)  # no batched products on a CPU
    expected = with_gradients(layer, kind, target, source, rows, memory)
    monkeypatch.setattr(layer, "supports_varlen", lambda *_: True)
    monkeypatch.setattr("torch.nn.attention.varlen.varlen_attn", sentence_by_sentence)
    monkeypatch.setattr(layer, "_attend_padded", Mock(side_effect=AssertionError))
    found = with_gradients(layer, kind, target, source, rows, memory)
    for ours, theirs in zip(found, expected, strict=True):
        assert torch.allclose(ours, theirs, atol=1e-12)


@pytest.mark.gpu
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("width", [8, 64])
def test_the_kernel_stays_close_to_fp32(kind, width, monkeypatch):
    torch.manual_seed(2)
    target, source = (
        pack(torch.zeros(sum(lengths)), lengths, "cuda")
        for lengths in (TARGET_LENGTHS, SOURCE_LENGTHS)
    )
    layer = layer_of(kind, width).cuda()
    rows, memory = (
        torch.randn(len(side.tokens), D_MODEL, device="cuda", requires_grad=True)
        for side in (target, source)
    )
    exact = with_gradients(layer, kind, target, source, rows, memory)
    monkeypatch.setattr(layer, "_attend_padded", Mock(side_effect=AssertionError))
    with torch.autocast("cuda", torch.bfloat16):
        rounded = with_gradients(layer, kind, target, source, rows, memory)
    for ours, theirs in zip(rounded, exact, strict=True):
        assert (ours.float() - theirs).norm() < 0.02 * theirs.norm()
