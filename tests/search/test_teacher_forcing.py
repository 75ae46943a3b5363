"""The library's pass over given pairs: it is torch's, and no pair or later token changes it."""

import math
from typing import Any

import numpy as np
import pytest
import torch

from nmt_cli.hardware.cpu import num_threads, set_num_threads
from nmt_cli.model.compiled import layers
from nmt_cli.model.compiled.c_library import Library
from nmt_cli.model.transformer import Transformer
from nmt_cli.recipe.sections.model import ModelConfig
from nmt_cli.search.sentences import SentencePair
from nmt_cli.search.teacher_forcing import CompiledForcing, mean_of_models
from nmt_cli.search.torch_models import TorchForcing
from tests.architectures import OPTION_SETS, Formula, random_model
from tests.fake_models import ByteTokenizer, packed_model
from tests.levels import LEVELS_HERE, at_levels, at_the_best_level
from tests.rounded_model import at_precision

VOCABULARY_SIZE = 97
NO_MULTIPLES_OF_A_VECTOR: dict[str, Any] = {"d_k": 19, "d_v": 33}
WITH_WINDOW = {**NO_MULTIPLES_OF_A_VECTOR, "attention_window": 3}
ONE_OF_EACH_ACTIVATION = [*{each["activation"]: each for each in OPTION_SETS}.values()]
PRECISIONS = ["fp32", "bf16", "int8"]
# In int8 a value halfway between two integers may be rounded to either one; bf16 has 8 bits.
TOLERANCES = {"fp32": 1e-5, "bf16": 0.03, "int8": 0.01}


@pytest.fixture(params=LEVELS_HERE)
def library(request, library):
    """Return the library at each level of CPU that this one has."""
    del library  # skips where the library could not be built
    return Library(request.param)


def model_of(options):
    return random_model(options, VOCABULARY_SIZE).eval()


def forcing_of(model, library, precision="fp32"):
    if precision == "bf16" and not library.functions.has_bf16():
        pytest.skip("this level has no instructions for bf16")
    return CompiledForcing(packed_model(model, library, precision), ByteTokenizer())


def tokens_of(length, seed=0):
    return np.random.default_rng([seed, length]).integers(3, VOCABULARY_SIZE, length).tolist()


LENGTHS = [(4, 6), (1, 0), (30, 41), (16, 3), (17, 15), (2, 19), (33, 16)]
PAIRS = [SentencePair(*map(tokens_of, each)) for each in LENGTHS]


def results(forcing, pairs, layers=(0, 1)):
    """Return the scores of each pair, and its weights of each kind of attention."""
    weights = forcing.attention(pairs, layers)
    return [
        [np.array(own), *kinds]
        for own, kinds in zip(forcing.token_scores(pairs), weights, strict=True)
    ]


def assert_equal(one, other):
    for own, theirs in zip(one, other, strict=True):
        assert np.array_equal(own, theirs)


@at_levels("options", OPTION_SETS, ONE_OF_EACH_ACTIVATION)
def test_scores_are_those_of_the_formula_and_attention_is_that_of_torch(options, library):
    model = model_of(options)
    numbers = (0, 2)  # only some decoders have the last one
    found = results(forcing_of(model, library), PAIRS, numbers)
    of_torch = TorchForcing(model, ByteTokenizer()).attention(PAIRS, numbers)
    formula = Formula(model.double())
    for pair, (scores, *kinds), expected in zip(PAIRS, found, of_torch, strict=True):
        wanted = formula.token_scores(list(pair.source), list(pair.target), ByteTokenizer())
        assert np.allclose(scores, wanted, atol=TOLERANCES["fp32"])
        for kind, other in zip(kinds, expected, strict=True):
            assert np.allclose(kind, other.reshape(kind.shape), atol=1e-5)


@pytest.mark.parametrize("precision", PRECISIONS)
def test_scores_in_any_precision_are_those_of_torch(precision, library):
    model = model_of(NO_MULTIPLES_OF_A_VECTOR)
    found = forcing_of(model, library, precision).token_scores(PAIRS)
    if precision != "bf16":  # torch would round all that a layer returns, too
        model = at_precision(model.eval(), precision)
    expected = TorchForcing(model, ByteTokenizer()).token_scores(PAIRS)
    differences = np.abs(np.concatenate(found) - np.concatenate(expected))
    assert differences.max() < TOLERANCES[precision]


@pytest.mark.parametrize("precision", PRECISIONS)
@at_levels("options", [OPTION_SETS[3], NO_MULTIPLES_OF_A_VECTOR, WITH_WINDOW], [WITH_WINDOW])
def test_a_pair_has_the_same_numbers_in_any_company(options, precision, library, monkeypatch):
    forcing = forcing_of(model_of(options), library, precision)
    together = results(forcing, PAIRS)
    for pair, expected in zip(PAIRS, together, strict=True):
        (alone,) = results(forcing, [pair])
        assert_equal(alone, expected)
    monkeypatch.setattr(layers, "ROWS_AT_ONCE", dict.fromkeys(layers.ROWS_AT_ONCE, 7))
    for found, expected in zip(results(forcing, PAIRS), together, strict=True):
        assert_equal(found, expected)


@pytest.mark.parametrize("options", [NO_MULTIPLES_OF_A_VECTOR, WITH_WINDOW])
@at_levels("precision", PRECISIONS, ["fp32"])
def test_later_tokens_change_nothing(precision, options, library):
    model = model_of(options)
    forcing = forcing_of(model, library, precision)
    source, target = PAIRS[2]
    ((scores, _, decoder, memory),) = results(forcing, [PAIRS[2]])
    for place in range(len(target)):
        others = tokens_of(len(target) - place, seed=1)
        changed = [
            SentencePair(source, [*target[:place], *others]),
            SentencePair(source, target[:place]),
        ]
        for own, _, own_decoder, own_memory in results(forcing, changed):
            assert np.array_equal(own[:place], scores[:place])
            rows = slice(place + 1)  # row t reads token t - 1
            assert np.array_equal(own_decoder[:, :, rows, rows], decoder[:, :, rows, rows])
            assert np.array_equal(own_memory[:, :, rows], memory[:, :, rows])
        if target[place] != others[0]:
            assert own[place] != scores[place]


@at_the_best_level
@pytest.mark.parametrize("window", [None, 50])
def test_sentences_of_one_token_and_of_two_thousand(window, library):
    model = model_of({"attention_window": window})
    pairs = [
        SentencePair(tokens_of(2000), tokens_of(3)),
        SentencePair([5], tokens_of(1999)),
        PAIRS[0],
    ]
    found = forcing_of(model, library).token_scores(pairs)
    expected = TorchForcing(model, ByteTokenizer()).token_scores(pairs)
    assert np.allclose(np.concatenate(found), np.concatenate(expected), atol=1e-4)


@at_the_best_level
def test_a_sentence_longer_than_the_learned_positions_is_refused(library):
    forcing = forcing_of(model_of({"positions": "learned"}), library)
    for pair in (SentencePair([5] * 64, [6]), SentencePair([5], [6] * 64)):  # and a mark
        with pytest.raises(ValueError, match="longer than"):
            forcing.token_scores([pair])


@at_the_best_level
def test_several_threads_compute_the_same(library):
    torch.manual_seed(4)
    config = ModelConfig(num_layers=2, d_model=256, num_heads=4, d_ff=1024)
    forcing = forcing_of(Transformer(config, 400), library)
    threads = num_threads()
    try:
        set_num_threads(1)
        alone = results(forcing, PAIRS)
        set_num_threads(3)
        together = results(forcing, PAIRS)
    finally:
        set_num_threads(threads)
    for one, other in zip(alone, together, strict=True):
        assert_equal(one, other)


def test_nan_stays_in_its_pair(library):
    model = model_of({"tied_embeddings": "none"})
    bad = SentencePair([5, VOCABULARY_SIZE - 1], [6, 7])
    pairs = [SentencePair([5, 6], [7]), bad, SentencePair([8, 9, 4], [5, 5])]
    expected = forcing_of(model, library).token_scores(pairs)
    with torch.no_grad():
        model.source_embedding.weight[-1] = torch.nan
    found = forcing_of(model, library).token_scores(pairs)
    assert np.isnan(found[1]).all()
    assert [found[0], found[2]] == [expected[0], expected[2]]


def test_the_mean_of_models_is_that_of_probabilities():
    first, second = mean_of_models([[[math.log(0.5)], []], [[math.log(0.1)], []]])
    assert first == [pytest.approx(math.log(0.3))]
    assert second == []
    assert mean_of_models([[[-math.inf]], [[-math.inf]]]) == [[-math.inf]]
