"""The layers of the library compute what torch's do, each sentence as if it were alone."""

import os
import random
from concurrent.futures import ThreadPoolExecutor
from itertools import chain

import numpy as np
import pytest
import torch

from nmt_cli.hardware.cpu import num_threads, read_cpu, set_num_threads
from nmt_cli.messages.errors import UserError
from nmt_cli.model.compiled import c_library as library_module
from nmt_cli.model.compiled.c_library import LEVELS, Library, NoLibraryError, library_for
from nmt_cli.model.compiled.layers import CompiledLayers, Sentences
from nmt_cli.model.packing import pack
from nmt_cli.model.transformer import Transformer
from tests.fake_models import ByteTokenizer, packed_model, tiny_recipe, translator_of
from tests.levels import LEVELS_HERE, at_levels, at_the_best_level
from tests.rounded_model import at_precision

VOCABULARY_SIZE = 50
WIDE = {"d_model": 64, "num_heads": 2, "d_ff": 100}


@pytest.fixture(params=LEVELS_HERE)
def library(request, library):
    """Return the library at each level of CPU that this one has."""
    del library  # skips where the library could not be built
    return Library(request.param)


def model_of(**config):
    torch.manual_seed(5)
    model = Transformer(tiny_recipe(model={**WIDE, **config}).model, VOCABULARY_SIZE).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 1:  # biases and norms begin with 0 and 1
                parameter.add_(torch.randn_like(parameter), alpha=0.1)
    return model


def layers_of(model, library, precision="fp32"):
    if precision == "bf16" and not library.functions.has_bf16():
        pytest.skip("this level has no instructions for bf16")
    return CompiledLayers(packed_model(model, library, precision))


def sentences_of(lengths, seed=1):
    rng = random.Random(seed)
    return [[rng.randrange(3, VOCABULARY_SIZE) for _ in range(length)] for length in lengths]


def packed(sentences):
    return pack(torch.tensor([*chain.from_iterable(sentences)]), [len(each) for each in sentences])


def encoded(layers, sentences):
    """Return the entries of each sentence."""
    return layers.encode(Sentences.of(sentences))


def first_logits(layers, sentences):
    """Return the memory of each sentence, and the logits of the first tokens."""
    sources = encoded(layers, sentences)
    return sources, layers.logits(layers.first(1, sources)[1]).copy()


def as_rows(sources):
    """Return the keys and values [N, R, H*(W+X)] that the entries of all sentences have."""
    rows = []
    for entries in sources:
        keys, values = np.split(entries, 2, axis=1)  # N, D*E each
        keys = keys.reshape(len(entries), WIDE["d_model"], -1).swapaxes(1, 2)
        shape = len(entries), WIDE["num_heads"], -1, WIDE["d_model"] // WIDE["num_heads"]
        values = values.reshape(shape).swapaxes(1, 2)
        rows.append(np.concatenate([keys, values.reshape(keys.shape)], axis=2))
    return np.concatenate(rows, axis=1)


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
@at_levels("lengths", [[1], [7, 1, 30, 16], [3] * 40, [600, 2, 300, 300]], [[7, 1, 30, 16]])
def test_encoder_and_first_tokens_are_those_of_torch(library, precision, norm, lengths):
    model = model_of(norm=norm)
    sources, logits = first_logits(layers_of(model, library, precision), sentences_of(lengths))
    if precision == "int8":  # in bf16 torch would round all that a layer returns, too
        model = at_precision(model, precision)
    expected, expected_logits = torchs_first_logits(model, sentences_of(lengths))
    tolerance = TOLERANCES[precision]
    for own, other in zip(as_rows(sources), expected, strict=True):
        assert np.allclose(own, other, atol=tolerance)
        assert np.abs(own - other.numpy()).mean() < tolerance / 10
    assert np.allclose(logits, expected_logits, atol=tolerance)


# In int8, a value halfway between two integers may be rounded to either one: a unit is 1/127 of the
# row's largest value. bf16 has 8 bits.
TOLERANCES = {"fp32": 1e-4, "bf16": 0.1, "int8": 0.1}


@pytest.mark.parametrize("precision", PRECISIONS)
def test_a_sentence_has_the_same_numbers_in_any_company(library, precision):
    layers, sentences = (
        layers_of(model_of(), library, precision),
        sentences_of([5, 1, 20, 9, 13, 2, 2, 40]),
    )
    sources, logits = first_logits(layers, sentences)
    for number, sentence in enumerate(sentences):
        (alone,), own_logits = first_logits(layers, [sentence])
        assert np.array_equal(own_logits[0], logits[number])
        assert np.array_equal(alone, sources[number])


@pytest.mark.parametrize("precision", PRECISIONS)
def test_nan_stays_in_its_sentence(library, precision):
    model = model_of()
    sentences = sentences_of([4, 6, 5])
    bad = VOCABULARY_SIZE - 1
    sentences[1][3] = bad
    for others in (sentences[0], sentences[2]):
        others[:] = [min(token, bad - 1) for token in others]
    _, expected = first_logits(layers_of(model, library, precision), sentences)
    with torch.no_grad():
        model.source_embedding.weight[bad] = torch.nan
    _, found = first_logits(layers_of(model, library, precision), sentences)
    assert np.isnan(found[1]).all()
    is_well = [column for column in range(VOCABULARY_SIZE) if column != bad]
    assert np.array_equal(found[[0, 2]][:, is_well], expected[[0, 2]][:, is_well])


@pytest.fixture
def three_threads():
    before = num_threads()
    set_num_threads(3)
    yield
    set_num_threads(before)


def large_layers(library):
    """Return layers for whose products several threads are used."""
    return layers_of(model_of(d_model=256, num_heads=4, d_ff=1024), library)


LARGE = sentences_of([70, 33, 50])


@at_the_best_level
@pytest.mark.usefixtures("three_threads")
def test_several_threads_compute_the_same(library):
    layers = large_layers(library)
    together = first_logits(layers, LARGE)
    set_num_threads(1)
    alone = first_logits(layers, LARGE)
    assert np.array_equal(alone[1], together[1])
    assert all(map(np.array_equal, alone[0], together[0]))


@at_the_best_level
@pytest.mark.usefixtures("three_threads")
def test_threads_that_compute_at_the_same_time_share_a_model_and_do_not_mix(library):
    packed = packed_model(model_of(d_model=256, num_heads=4, d_ff=1024), library)
    expected = encoded(CompiledLayers(packed), LARGE)
    others = [CompiledLayers(packed) for _ in range(4)]
    with ThreadPoolExecutor(4) as threads:
        found = threads.map(lambda own: [encoded(own, LARGE) for _ in range(5)], others)
        for each in chain.from_iterable(found):
            assert all(map(np.array_equal, each, expected))


@at_the_best_level
@pytest.mark.usefixtures("three_threads")
@pytest.mark.filterwarnings("ignore:.*fork")
def test_a_forked_process_has_threads_of_its_own(library):
    layers = large_layers(library)
    expected = encoded(layers, LARGE)
    child = os.fork()
    if child == 0:
        try:
            os._exit(not all(map(np.array_equal, encoded(layers, LARGE), expected)))
        finally:
            os._exit(2)
    assert os.waitpid(child, 0)[1] == 0


@at_the_best_level
def test_arrays_that_c_would_read_wrongly_are_refused(library):
    layers = layers_of(model_of(), library)
    for tokens in (np.zeros(4, np.int32), np.zeros(8, np.int64)[::2]):
        with pytest.raises(TypeError, match=f"{tokens.dtype} .*, not contiguous int64"):
            layers.encode(Sentences(tokens, [4]))


def test_bf16_is_fp32_where_the_cpu_has_no_instructions(monkeypatch, caplog):
    if not LEVELS["v3"] <= read_cpu().flags:
        pytest.skip("the level without these instructions is for other CPUs")
    monkeypatch.setattr(library_module, "load_library", lambda: Library("v3"))
    recipe, tokenizer = tiny_recipe(), ByteTokenizer()
    model = Transformer(recipe.model, tokenizer.size)
    lines = ["a b", "abc"]
    rounded = translator_of(recipe, tokenizer, model, precision="bf16")
    assert "bf16 is computed in fp32" in caplog.text
    plain = translator_of(recipe, tokenizer, model, precision="fp32")
    assert rounded.chosen["precision"] == "fp32"
    assert [*rounded.translate(lines)] == [*plain.translate(lines)]


def test_without_the_library_torch_translates_and_says_so(monkeypatch, caplog):
    def none() -> Library:
        raise NoLibraryError("library.so was not built. Install a compiler")

    monkeypatch.setattr(library_module, "load_library", none)
    recipe, tokenizer = tiny_recipe(), ByteTokenizer()
    model = Transformer(recipe.model, tokenizer.size)
    for _ in range(2):
        translator = translator_of(recipe, tokenizer, model)
        assert not translator._engine.is_compiled
        assert all(each.error is None for each in translator.translate(["a b"]))
    (record,) = caplog.records  # once
    assert record.message.endswith("library.so was not built. Install a compiler")
    monkeypatch.setattr(library_module, "find_spec", lambda package: None)
    with pytest.raises(UserError, match=r"^library.so was not built. Install a compiler$"):
        library_for("cpu")
