"""The layers of the library compute what torch's do, each sentence as if it were alone."""

import os
import random
from concurrent.futures import ThreadPoolExecutor
from itertools import chain

import numpy as np
import pytest
import torch

from nmt_cli.hardware.cpu import read_cpu
from nmt_cli.model.compiled.kernels import LEVELS, Kernels, NoKernelsError
from nmt_cli.model.compiled.layers import CompiledLayers
from nmt_cli.model.packing import pack
from nmt_cli.model.precision import arrange_fp32, at_precision
from nmt_cli.model.transformer import Transformer
from nmt_cli.search import engine
from tests.fake_models import ByteTokenizer, tiny_recipe, translator_of

VOCABULARY_SIZE = 50
WIDE = {"d_model": 64, "num_heads": 2, "d_ff": 100}


@pytest.fixture(params=[level for level, flags in LEVELS.items() if flags <= read_cpu().flags])
def kernels(request, kernels):
    """Return the library at each level of CPU that this one has."""
    del kernels  # skips where the library could not be built
    return Kernels(request.param)


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


def first_logits(layers, sentences):
    """Return the memory of each layer, and the logits of the first tokens."""
    source = packed(sentences)
    sources = layers.encode(source.tokens, source.lengths)
    _, logits = layers.first(1, sources, source.lengths)
    return sources, logits


@torch.no_grad()
def torchs_first_logits(model, sentences):
    source = packed(sentences)
    memory = model.encode(source)
    sources = [each.memory_attention.keys_values(memory) for each in model.decoder_layers]
    starts = pack(torch.ones(len(sentences), dtype=torch.int64), [1] * len(sentences))
    return sources, model.project(model.decode(starts, memory, source))


PRECISIONS = ["fp32", "bf16", "int8"]


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("norm", ["post", "pre"])
@pytest.mark.parametrize("lengths", [[1], [7, 1, 30, 16], [3] * 40, [600, 2, 300, 300]])
def test_encoder_and_first_tokens_are_those_of_torch(kernels, precision, norm, lengths):
    model = model_of(precision, norm=norm)
    skip_without_bf16(precision, kernels)
    sources, logits = first_logits(CompiledLayers(model, kernels), sentences_of(lengths))
    if precision == "bf16":  # torch would round all that a layer returns, too
        model = model_of("fp32", norm=norm)
    expected, expected_logits = torchs_first_logits(model, sentences_of(lengths))
    tolerance = TOLERANCES[precision]
    for own, other in zip(sources, expected, strict=True):
        assert torch.allclose(own, other, atol=tolerance)
        assert (own - other).abs().mean() < tolerance / 10
    assert torch.allclose(logits, expected_logits, atol=tolerance)


# In int8, a value halfway between two integers may be rounded to either one: a unit is 1/127 of the
# row's largest value. bf16 has 8 bits.
TOLERANCES = {"fp32": 1e-4, "bf16": 0.1, "int8": 0.1}


def skip_without_bf16(precision, kernels):
    if precision == "bf16" and not kernels.functions.has_bf16():
        pytest.skip("this level has no instructions for bf16")


@pytest.mark.parametrize("precision", PRECISIONS)
def test_a_sentence_has_the_same_numbers_in_any_company(kernels, precision):
    model = model_of(precision)
    skip_without_bf16(precision, kernels)
    layers, sentences = CompiledLayers(model, kernels), sentences_of([5, 1, 20, 9, 13, 2, 2, 40])
    sources, logits = first_logits(layers, sentences)
    of_each = [source.split([len(each) for each in sentences]) for source in sources]
    for number, sentence in enumerate(sentences):
        alone, own_logits = first_logits(layers, [sentence])
        assert torch.equal(own_logits[0], logits[number])
        for layer, own in enumerate(alone):
            assert torch.equal(own, of_each[layer][number])


@pytest.mark.parametrize("precision", PRECISIONS)
def test_nan_stays_in_its_sentence(kernels, precision):
    model = model_of(precision)
    skip_without_bf16(precision, kernels)
    sentences = sentences_of([4, 6, 5])
    bad = VOCABULARY_SIZE - 1
    sentences[1][3] = bad
    for others in (sentences[0], sentences[2]):
        others[:] = [min(token, bad - 1) for token in others]
    _, expected = first_logits(CompiledLayers(model, kernels), sentences)
    with torch.no_grad():
        model.source_embedding.weight[bad] = torch.nan
    _, found = first_logits(CompiledLayers(model, kernels), sentences)
    assert found[1].isnan().all()
    is_well = [column for column in range(VOCABULARY_SIZE) if column != bad]
    assert torch.equal(found[[0, 2]][:, is_well], expected[[0, 2]][:, is_well])


def test_several_threads_compute_the_same(kernels):
    model = model_of(d_model=256, num_heads=4, d_ff=1024)
    layers, sentences = CompiledLayers(model, kernels), sentences_of([70, 33, 50])
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        alone = first_logits(layers, sentences)
        torch.set_num_threads(3)
        together = first_logits(layers, sentences)
    finally:
        torch.set_num_threads(threads)
    assert torch.equal(alone[1], together[1])
    assert all(map(torch.equal, alone[0], together[0]))


@pytest.fixture
def three_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield
    torch.set_num_threads(before)


def large_layers(kernels):
    """Return layers and tokens for which several threads are used."""
    model = model_of(d_model=256, num_heads=4, d_ff=1024)
    return CompiledLayers(model, kernels), packed(sentences_of([70, 33, 50]))


@pytest.mark.usefixtures("three_threads")
def test_threads_that_compute_at_the_same_time_do_not_mix(kernels):
    layers, source = large_layers(kernels)
    expected = layers.encode(source.tokens, source.lengths)
    others = [large_layers(kernels) for _ in range(4)]
    with ThreadPoolExecutor(4) as threads:
        found = threads.map(
            lambda own: [own[0].encode(own[1].tokens, own[1].lengths) for _ in range(5)], others
        )
        for each in chain.from_iterable(found):
            assert all(map(torch.equal, each, expected))


@pytest.mark.usefixtures("three_threads")
@pytest.mark.filterwarnings("ignore:.*fork")
def test_a_forked_process_has_threads_of_its_own(kernels):
    layers, source = large_layers(kernels)
    expected = [each.numpy() for each in layers.encode(source.tokens, source.lengths)]
    child = os.fork()
    if child == 0:
        try:
            found = layers.encode(source.tokens, source.lengths)
            os._exit(not all(map(np.array_equal, map(torch.Tensor.numpy, found), expected)))
        finally:
            os._exit(2)
    assert os.waitpid(child, 0)[1] == 0


def test_weights_that_are_arranged_for_another_library_are_the_same(kernels):
    plain = model_of()
    sentences = sentences_of([5, 8])
    _, expected = first_logits(CompiledLayers(plain, kernels), sentences)
    for library in ("mkl", "onednn"):
        arranged = model_of()
        arrange_fp32(arranged, library)
        _, found = first_logits(CompiledLayers(arranged, kernels), sentences)
        assert torch.equal(found, expected)


def test_bf16_is_fp32_where_the_cpu_has_no_instructions(monkeypatch, caplog):
    if not LEVELS["v3"] <= read_cpu().flags:
        pytest.skip("the level without these instructions is for other CPUs")
    monkeypatch.setattr(engine, "load_kernels", lambda: Kernels("v3"))
    recipe, tokenizer = tiny_recipe(), ByteTokenizer()
    model = Transformer(recipe.model, tokenizer.size)
    lines = ["a b", "abc"]
    rounded = translator_of(recipe, tokenizer, model, precision="bf16")
    assert "bf16 is computed in fp32" in caplog.text
    plain = translator_of(recipe, tokenizer, model, precision="fp32")
    assert rounded.chosen["precision"] == "fp32"
    assert [*rounded.translate(lines)] == [*plain.translate(lines)]


def test_without_the_library_torch_translates_and_says_so(monkeypatch, caplog):
    def none() -> Kernels:
        raise NoKernelsError("library.so was not built", "Install a compiler")

    monkeypatch.setattr(engine, "load_kernels", none)
    recipe, tokenizer = tiny_recipe(), ByteTokenizer()
    model = Transformer(recipe.model, tokenizer.size)
    for _ in range(2):
        translator = translator_of(recipe, tokenizer, model)
        assert not translator._engine.is_compiled
        assert all(each.error is None for each in translator.translate(["a b"]))
    (record,) = caplog.records  # once
    assert record.message.endswith("library.so was not built. Install a compiler")
