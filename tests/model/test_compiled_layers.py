"""The layers of --compile compute what torch's do, each sentence as if it were alone."""

import random
from itertools import chain

import pytest
import torch
from torch import Tensor

from nmt_cli.model.compiled import layers as compiled_layers
from nmt_cli.model.compiled.layers import CompiledLayers
from nmt_cli.model.packing import pack
from nmt_cli.model.precision import arrange_fp32, at_precision
from nmt_cli.model.transformer import Transformer
from tests.fake_models import tiny_recipe

VOCABULARY_SIZE = 50
WIDE = {"d_model": 64, "num_heads": 2, "d_ff": 100}


def model_of(precision="fp32", **config):
    torch.manual_seed(5)
    model = Transformer(tiny_recipe(model={**WIDE, **config}).model, VOCABULARY_SIZE).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 1:  # biases and norms begin with 0 and 1
                parameter.add_(torch.randn_like(parameter), alpha=0.1)
    return at_precision(model, precision)


def sentences_of(lengths, seed=1):
    rng = random.Random(seed)
    return [[rng.randrange(3, VOCABULARY_SIZE) for _ in range(length)] for length in lengths]


def packed(sentences):
    return pack(torch.tensor([*chain.from_iterable(sentences)]), [len(each) for each in sentences])


def entries(rows, lengths, shape):
    """Return the keys [B, H, W, E] and values [B, H, E, X] in packed rows of a memory."""
    room, heads = max(lengths), shape.num_heads
    keys = torch.zeros(len(lengths), heads, shape.key_width, room)
    values = torch.zeros(len(lengths), heads, room, shape.value_width)
    for number, own in enumerate(rows.split(lengths)):
        of_keys, of_values = own.split([heads * shape.key_width, heads * shape.value_width], dim=1)
        keys[number, :, :, : len(own)] = of_keys.unflatten(1, (heads, -1)).permute(1, 2, 0)
        values[number, :, : len(own)] = of_values.unflatten(1, (heads, -1)).transpose(0, 1)
    return keys, values


def first_logits(layers, model, sentences):
    """Return the memory of each layer, and the logits of the first tokens."""
    sources = layers.encode(packed(sentences))
    lengths = [len(each) for each in sentences]
    memory = [entries(rows, lengths, model.config.decoder) for rows in sources]
    _, logits = layers.first(torch.ones(len(sentences), dtype=torch.int64), memory, lengths)
    return sources, logits


@torch.no_grad()
def torchs_first_logits(model, sentences):
    source = packed(sentences)
    memory = model.encode(source)
    sources = [each.memory_attention.keys_values(memory) for each in model.decoder_layers]
    starts = pack(torch.ones(len(sentences), dtype=torch.int64), [1] * len(sentences))
    return sources, model.project(model.decode(starts, memory, source))


@pytest.mark.parametrize("precision", ["fp32", "int8"])
@pytest.mark.parametrize("norm", ["post", "pre"])
@pytest.mark.parametrize("lengths", [[1], [7, 1, 30, 16], [3] * 40, [600, 2, 300, 300]])
def test_encoder_and_first_tokens_are_those_of_torch(kernels, precision, norm, lengths):
    model = model_of(precision, norm=norm)
    skip_without_products(model, kernels)
    layers, sentences = CompiledLayers(model, kernels), sentences_of(lengths)
    sources, logits = first_logits(layers, model, sentences)
    expected, expected_logits = torchs_first_logits(model, sentences)
    # Two numbers between integers may round apart, which is a hundredth of a row's largest one.
    tolerance = 1e-4 if precision == "fp32" else 0.1
    for own, other in zip(sources, expected, strict=True):
        assert torch.allclose(own, other, atol=tolerance)
        assert (own - other).abs().mean() < tolerance / 10
    assert torch.allclose(logits, expected_logits, atol=tolerance)


def skip_without_products(model, kernels):
    if not CompiledLayers.supports(model, kernels):
        pytest.skip("this CPU has no instructions for products of bytes")


@pytest.mark.parametrize("precision", ["fp32", "int8"])
def test_a_sentence_has_the_same_numbers_in_any_company(kernels, precision):
    model = model_of(precision)
    skip_without_products(model, kernels)
    layers, sentences = CompiledLayers(model, kernels), sentences_of([5, 1, 20, 9, 13, 2, 2, 40])
    sources, logits = first_logits(layers, model, sentences)
    of_each = [source.split([len(each) for each in sentences]) for source in sources]
    for number, sentence in enumerate(sentences):
        alone, own_logits = first_logits(layers, model, [sentence])
        assert torch.equal(own_logits[0], logits[number])
        for layer, own in enumerate(alone):
            assert torch.equal(own, of_each[layer][number])


@pytest.mark.parametrize("precision", ["fp32", "int8"])
def test_nan_stays_in_its_sentence(kernels, precision):
    model = model_of(precision)
    skip_without_products(model, kernels)
    sentences = sentences_of([4, 6, 5])
    _, expected = first_logits(CompiledLayers(model, kernels), model, sentences)
    bad = VOCABULARY_SIZE - 1
    sentences[1][3] = bad
    for others in (sentences[0], sentences[2]):
        others[:] = [min(token, bad - 1) for token in others]
    _, expected = first_logits(CompiledLayers(model, kernels), model, sentences)
    with torch.no_grad():
        model.source_embedding.weight[bad] = torch.nan
    _, found = first_logits(CompiledLayers(model, kernels), model, sentences)
    assert found[1].isnan().all()
    is_well = [column for column in range(VOCABULARY_SIZE) if column != bad]
    assert torch.equal(found[[0, 2]][:, is_well], expected[[0, 2]][:, is_well])


def test_several_threads_compute_the_same(kernels):
    model = model_of(d_model=256, num_heads=4, d_ff=1024)
    layers, sentences = CompiledLayers(model, kernels), sentences_of([70, 33, 50])
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        alone = first_logits(layers, model, sentences)
        torch.set_num_threads(3)
        together = first_logits(layers, model, sentences)
    finally:
        torch.set_num_threads(threads)
    assert layers._encoder.threads == 3
    assert torch.equal(alone[1], together[1])
    assert all(map(torch.equal, alone[0], together[0]))


def test_weights_that_are_arranged_for_another_library_are_the_same(kernels):
    plain = model_of()
    sentences = sentences_of([5, 8])
    _, expected = first_logits(CompiledLayers(plain, kernels), plain, sentences)
    for library in ("mkl", "onednn"):
        arranged = model_of()
        arrange_fp32(arranged, library)
        _, found = first_logits(CompiledLayers(arranged, kernels), arranged, sentences)
        assert torch.equal(found, expected)


def test_long_texts_are_encoded_in_groups(kernels, monkeypatch):
    model = model_of()
    layers, sentences = CompiledLayers(model, kernels), sentences_of([5, 30, 2, 2, 19, 8, 1])
    expected: list[Tensor] = layers.encode(packed(sentences))
    monkeypatch.setattr(compiled_layers, "ENCODED_ROWS", 20)
    assert all(map(torch.equal, layers.encode(packed(sentences)), expected))


def test_bf16_is_left_to_torch(kernels):
    assert CompiledLayers.supports(model_of(), kernels)
    assert not CompiledLayers.supports(model_of("bf16"), kernels)
