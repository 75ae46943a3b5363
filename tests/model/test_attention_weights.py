"""Attention weights against those of torch's own multi-head attention."""

import pytest
import torch
from torch import nn

from nmt_cli.model.attention import MemoryAttention, SelfAttention
from nmt_cli.model.attention_layout import AttentionLayout
from nmt_cli.model.packing import pack

HEADS, D_MODEL = 5, 20
TARGET_LENGTHS, SOURCE_LENGTHS = [4, 1, 7], [6, 3, 2]


def packed(lengths):
    return pack(torch.zeros(sum(lengths)), lengths, round_up=True)


def rows_of(batch):
    return torch.randn(len(batch.tokens), D_MODEL)


def torchs(in_projections):
    theirs = nn.MultiheadAttention(D_MODEL, HEADS, bias=False, batch_first=True)
    theirs.in_proj_weight = nn.Parameter(torch.cat(in_projections))
    return theirs


@pytest.mark.parametrize("causal", [False, True])
def test_self_attention_has_torchs_weights(causal):
    torch.manual_seed(1)
    batch = packed([9, 1, 14])
    attention, rows = SelfAttention(D_MODEL, HEADS, 4, 4), rows_of(batch)
    theirs = torchs([attention.queries_keys_values.weight])
    found = attention.weights(rows, AttentionLayout(batch, batch), causal=causal)
    for weights, sentence in zip(found, rows.split(batch.lengths), strict=True):
        length = len(sentence)
        future = torch.ones(length, length, dtype=torch.bool).triu(1) if causal else None
        _, expected = theirs(*3 * [sentence[None]], attn_mask=future, average_attn_weights=False)
        assert weights.shape == (HEADS, length, length)
        assert torch.allclose(weights, expected[0], atol=1e-6)


def test_attention_to_the_memory_has_torchs_weights():
    torch.manual_seed(2)
    target, source = packed(TARGET_LENGTHS), packed(SOURCE_LENGTHS)
    attention = MemoryAttention(D_MODEL, HEADS, 4, 4)
    rows, memory = rows_of(target), rows_of(source)
    theirs = torchs([attention.queries.weight, attention.keys_values.weight])
    found = attention.weights(rows, memory, AttentionLayout(target, source))
    parts = (rows.split(TARGET_LENGTHS), memory.split(SOURCE_LENGTHS))
    for weights, queries, keys in zip(found, *parts, strict=True):
        _, expected = theirs(queries[None], keys[None], keys[None], average_attn_weights=False)
        assert torch.allclose(weights, expected[0], atol=1e-6)


def test_spare_rows_belong_to_no_sentence():
    torch.manual_seed(3)
    batch = packed([30, 57])
    assert len(batch.tokens) > batch.num_tokens
    attention, rows = SelfAttention(D_MODEL, HEADS, 3, 7), rows_of(batch)
    found = attention.weights(rows, AttentionLayout(batch, batch), causal=False)
    rows[batch.num_tokens :] = torch.nan
    again = attention.weights(rows, AttentionLayout(batch, batch), causal=False)
    assert [len(weights[0]) for weights in found] == [30, 57]
    assert all(map(torch.equal, found, again))


def test_weights_of_a_model_in_bf16_are_fp32():
    attention = SelfAttention(D_MODEL, HEADS, 4, 4).bfloat16()
    batch = packed([6])
    rows = rows_of(batch).bfloat16()
    (weights,) = attention.weights(rows, AttentionLayout(batch, batch), causal=True)
    assert weights.dtype is torch.float32
    assert torch.allclose(weights.sum(2), torch.ones(HEADS, 6), atol=1e-6)
