"""torch's own layers as witnesses of ours."""

import pytest
import torch
from torch import nn

from nmt_cli.model.attention import MultiHeadAttention
from nmt_cli.model.attention_layout import AttentionLayout
from nmt_cli.model.layers import DecoderLayer, EncoderLayer
from nmt_cli.model.packing import pack
from nmt_cli.recipe.sections.model import ModelConfig

D_MODEL, D_FF, HEADS = 20, 28, 5
SOURCE_LENGTHS, TARGET_LENGTHS = [7, 3, 11, 1], [4, 9, 2, 6]


def config(norm):
    return ModelConfig(
        num_layers=1, d_model=D_MODEL, d_ff=D_FF, num_heads=HEADS, dropout=0.0, norm=norm
    )


def randomize(layer):
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.normal_(std=0.3)


def copy_attention(ours: MultiHeadAttention, torchs: nn.MultiheadAttention):
    *inputs, output = ours.parameters()
    torchs.in_proj_weight.copy_(torch.cat(tuple(inputs)))
    torchs.out_proj.weight.copy_(output)
    torchs.in_proj_bias.zero_()  # the paper's projections have none
    torchs.out_proj.bias.zero_()


def copy_rest(ours, torchs, residuals):
    torchs.linear1.load_state_dict(ours.feed_forward.inner.state_dict())
    torchs.linear2.load_state_dict(ours.feed_forward.outer.state_dict())
    for number, residual in enumerate(residuals, 1):
        getattr(torchs, f"norm{number}").load_state_dict(residual.norm.state_dict())


def padded(rows, lengths):
    sentences = rows.split(lengths)
    keep = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
    return nn.utils.rnn.pad_sequence(sentences, batch_first=True), ~keep


def unpadded(batch, lengths):
    return torch.cat([row[:length] for row, length in zip(batch, lengths, strict=True)])


def torch_layer(kind, norm):
    return kind(D_MODEL, HEADS, D_FF, dropout=0.0, batch_first=True, norm_first=norm == "pre")


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_encoder_layer_is_torchs(norm):
    torch.manual_seed(1)
    ours = EncoderLayer(config(norm))
    randomize(ours)
    theirs = torch_layer(nn.TransformerEncoderLayer, norm)
    with torch.no_grad():
        copy_attention(ours.self_attention, theirs.self_attn)
        copy_rest(ours, theirs, [ours.self_attention_residual, ours.feed_forward_residual])
    rows = torch.randn(sum(SOURCE_LENGTHS), D_MODEL)
    batch = pack(torch.zeros(len(rows)), SOURCE_LENGTHS)
    source, ignored = padded(rows, SOURCE_LENGTHS)
    expected = unpadded(theirs(source, src_key_padding_mask=ignored), SOURCE_LENGTHS)
    assert torch.allclose(ours(rows, AttentionLayout(batch, batch)), expected, atol=1e-5)


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_decoder_layer_and_its_gradients_are_torchs(norm):
    torch.manual_seed(2)
    ours = DecoderLayer(config(norm))
    randomize(ours)
    theirs = torch_layer(nn.TransformerDecoderLayer, norm)
    with torch.no_grad():
        copy_attention(ours.self_attention, theirs.self_attn)
        copy_attention(ours.memory_attention, theirs.multihead_attn)
        residuals = [
            ours.self_attention_residual,
            ours.memory_attention_residual,
            ours.feed_forward_residual,
        ]
        copy_rest(ours, theirs, residuals)
    rows = torch.randn(sum(TARGET_LENGTHS), D_MODEL, requires_grad=True)
    memory = torch.randn(sum(SOURCE_LENGTHS), D_MODEL, requires_grad=True)
    target_batch = pack(torch.zeros(len(rows)), TARGET_LENGTHS)
    source_batch = pack(torch.zeros(len(memory)), SOURCE_LENGTHS)
    output = ours(
        rows,
        memory,
        AttentionLayout(target_batch, target_batch),
        AttentionLayout(target_batch, source_batch),
    )
    target, target_ignored = padded(rows, TARGET_LENGTHS)
    source, source_ignored = padded(memory, SOURCE_LENGTHS)
    future = torch.ones(max(TARGET_LENGTHS), max(TARGET_LENGTHS), dtype=torch.bool).triu(1)
    expected = theirs(
        target,
        source,
        tgt_mask=future,
        tgt_key_padding_mask=target_ignored,
        memory_key_padding_mask=source_ignored,
    )
    expected = unpadded(expected, TARGET_LENGTHS)
    assert torch.allclose(output, expected, atol=1e-5)

    direction = torch.randn_like(output)
    leaves = (rows, memory)
    found = torch.autograd.grad((output * direction).sum(), leaves)
    wanted = torch.autograd.grad((expected * direction).sum(), leaves)
    for ours_gradient, torchs_gradient in zip(found, wanted, strict=True):
        assert torch.allclose(ours_gradient, torchs_gradient, atol=1e-4)
