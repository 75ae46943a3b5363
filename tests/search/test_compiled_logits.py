"""What the library does with logits, against numpy in double precision, at each level of CPU."""

import ctypes

import numpy as np
import pytest
import torch

from nmt_cli.model.compiled.c_library import Library
from nmt_cli.search.compiled_logits import CompiledLogits
from nmt_cli.search.logits import Banned, Permitted
from nmt_cli.search.sentences import Sampling
from nmt_cli.search.torch_logits import TorchLogits
from tests.levels import LEVELS_HERE, at_levels

WIDTHS = [1, 7, 64, 200, 1003]
FEW_WIDTHS = [1003]
SAMPLINGS = [
    Sampling(),
    Sampling(0.3),
    Sampling(top_k=5),
    Sampling(top_k=40),
    Sampling(2.0, top_k=10_000),
    Sampling(top_p=0.5),
    Sampling(1.3, top_p=0.9),
    Sampling(3.0, top_p=0.999),
    Sampling(0.7, 30, 0.8),
]
FEW_SAMPLINGS = [Sampling(), Sampling(0.7, 30, 0.8)]
SAMPLINGS_OF_ONE = [Sampling(1e-9), Sampling(1e-320), Sampling(top_k=1), Sampling(top_p=1e-9)]
ROUNDING = 1e-6  # of shares of the probability


@pytest.fixture(params=LEVELS_HERE)
def library(request, library):
    """Return the library at each level of CPU that this one has."""
    del library  # skips where the library could not be built
    return Library(request.param)


def random_values(width, num_rows=40, spread=3.0, seed=1):
    rng = np.random.default_rng(seed)
    values = (rng.normal(size=(num_rows, width)) * spread).astype(np.float32)
    values[::2] = np.round(values[::2])  # so that many are equal
    return values


def log_sums(values):
    with np.errstate(invalid="ignore"):
        most = values.astype(np.float64).max(axis=1, keepdims=True)
        return (most + np.log(np.exp(values - most).sum(axis=1, keepdims=True)))[:, 0]


@pytest.mark.parametrize("width", WIDTHS)
def test_normalizers_are_logarithms_of_sums_for_each_row_alone(library, width):
    values = random_values(width, spread=20.0)
    values[1] -= 1e4
    values[2] += 100.0
    values[3, 0] = np.inf
    values[4, -1] = np.nan
    values[5, 1:] = -np.inf
    found = CompiledLogits(values, library).normalizers()
    assert np.allclose(found, log_sums(values), rtol=1e-6, atol=2e-6, equal_nan=True)
    alone = [CompiledLogits(row[None], library).normalizers()[0] for row in values]
    assert np.array_equal(found, alone, equal_nan=True)


def test_a_sum_of_very_many_exponentials_is_exact_to_fp32(library):
    values = random_values(300_000, 3)
    values[1] = -np.inf
    values[1, 7] = -60.0
    found = CompiledLogits(values, library).normalizers()
    assert np.allclose(found, log_sums(values), rtol=0, atol=3e-6)


@pytest.mark.parametrize("number", [2, 8, 40, 300])
@at_levels("width", WIDTHS, FEW_WIDTHS)
def test_the_best_continuations_are_those_of_a_sorted_list(library, width, number):
    """Whole numbers, so that many are equal."""
    rng = np.random.default_rng(number)
    slots, beam_size = 6, 4
    values = rng.integers(-3, 4, (slots * beam_size, width)).astype(np.float32)
    values[:4, 3:] = -np.inf
    values[5] = -np.inf
    scores = rng.integers(-2, 1, (slots, beam_size)).astype(np.float32)
    scores[2, 1:], scores[3] = -np.inf, -np.inf
    normalizers = rng.integers(0, 3, slots * beam_size).astype(np.float32)
    found = CompiledLogits(values, library, normalizers).best_of_slots(scores, number)
    totals = values - normalizers[:, None] + scores.reshape(-1, 1)
    for slot in range(slots):
        rows = range(slot * beam_size, (slot + 1) * beam_size)
        expected = sorted(
            (-totals[row, token], row - rows[0], -values[row, token], token)
            for row in rows
            for token in range(width)
            if totals[row, token] > -np.inf
        )[:number]
        exist = slice(len(expected))
        assert (found.scores[slot, len(expected) :] == -np.inf).all()
        each = zip(
            -found.scores[slot, exist], found.parents[slot], found.tokens[slot], strict=False
        )
        assert list(each) == [(total, parent, token) for total, parent, _, token in expected]


@pytest.mark.parametrize("width", WIDTHS)
def test_the_best_of_rows_come_by_logit_and_then_by_token(library, width):
    values = random_values(width)
    values[0, :] = 1.5
    values[1, 2:] = -np.inf
    scores, tokens = CompiledLogits(values, library).best_of_rows(20)
    order = np.argsort(-values, axis=1, kind="stable")[:, :20]
    exists = np.take_along_axis(values, order, 1) > -np.inf
    assert np.array_equal(tokens[exists], order[exists])
    expected = np.take_along_axis(values, order, 1) - log_sums(values)[:, None]
    assert np.allclose(scores, expected, atol=1e-5)


def test_each_call_restricts_further_and_leaves_the_normalizers(library):
    rng = np.random.default_rng(3)
    values, width = random_values(50, 12), 50
    logits = CompiledLogits(values.copy(), library)
    allowed = np.ones(values.shape, bool)
    for _ in range(2):
        banned = Banned(rng.integers(0, 12, 60), rng.integers(0, width, 60))
        rows = rng.permutation(12)[:5]
        of_rows = [rng.permutation(width)[:size] for size in (1, 0, 30, 49, 20)]
        bounds = np.cumsum([0, *map(len, of_rows)])
        logits.restrict(banned)
        logits.restrict(Permitted(rows, bounds, np.concatenate(of_rows)))
        allowed[banned] = False
        for row, permitted in zip(rows, of_rows, strict=True):
            allowed[row, np.setdiff1d(np.arange(width), permitted)] = False
    assert np.array_equal(logits.values, np.where(allowed, values, -np.inf))
    assert np.allclose(logits.normalizers(), log_sums(values), atol=1e-5)
    wanted = np.array([3, 3, 11, 0]), np.array([49, 0, 7, 1])
    expected = np.where(allowed, values, -np.inf)[wanted] - log_sums(values)[wanted[0]]
    assert np.allclose(logits.log_probabilities(*wanted), expected, atol=1e-5)
    part = logits.select(np.array([7, 2, 7]))
    assert np.array_equal(part.values, logits.values[[7, 2, 7]])
    assert np.array_equal(part.normalizers(), logits.normalizers()[[7, 2, 7]])


def test_rows_and_tokens_that_do_not_exist_are_refused(library):
    logits = CompiledLogits(random_values(50, 3), library)
    one, zero = np.array([1]), np.array([0])
    for rows, tokens in ((np.array([3]), zero), (zero, np.array([50]))):
        with pytest.raises(IndexError):
            logits.restrict(Banned(rows, tokens))
        with pytest.raises(IndexError):
            logits.restrict(Permitted.one_each(rows, tokens))
    with pytest.raises(AssertionError):
        logits.best_of_slots(np.zeros((2, 2), np.float32), 3)
    with pytest.raises(AssertionError):
        logits.draw(Sampling(), np.zeros(2))
    with pytest.raises(AssertionError):
        logits.mean_with([logits.select(one)])
    with pytest.raises(ctypes.ArgumentError):
        CompiledLogits(logits.values[:, ::2], library).normalizers()


def kept_shares(row, sampling):
    """Return the tokens that may be drawn from ``row``, in order, and their shares.

    Also how near a sum of shares is to ``top_p``, where rounding decides what is kept.
    """
    with np.errstate(under="ignore"):
        weights = np.exp((row.astype(np.float64) - row.max()) / sampling.temperature)
    order = np.arange(len(row))
    if sampling.top_k is not None or sampling.top_p < 1:
        order = np.lexsort((order, -row))[: sampling.top_k]
    shares = weights[order] / weights[order].sum()
    before = shares.cumsum() - shares
    kept = before < sampling.top_p
    nearness = np.abs(before - sampling.top_p).min() if sampling.top_p < 1 else 1.0
    return order[kept], shares[kept] / shares[kept].sum(), nearness


@at_levels("width", WIDTHS, FEW_WIDTHS)
@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_a_token_is_where_the_sum_of_the_shares_exceeds_the_number(library, sampling, width):
    values = random_values(width)
    values[:3, 1:] -= np.float32(40.0)  # one is sure
    values[3] = 1.0
    values[4, 3:] = values[5, :-2] = -np.inf
    uniforms = np.random.default_rng(2).random(len(values))
    uniforms[:8] = 0.0
    logits = CompiledLogits(values.copy(), library)
    tokens, scores = logits.draw(sampling, uniforms)
    assert np.array_equal(logits.values, values)
    num_sure = 0
    for row, uniform, token in zip(values, uniforms, tokens, strict=True):
        kept, shares, nearness = kept_shares(row, sampling)
        ends = shares.cumsum()
        if nearness > ROUNDING and (np.abs(ends[:-1] - uniform) > ROUNDING).all():
            num_sure += 1
            assert token == kept[(ends <= uniform).sum().clip(max=len(kept) - 1)]
    assert num_sure > 0.8 * len(values)
    expected = values[np.arange(len(values)), tokens] - log_sums(values)
    assert np.allclose(scores, expected, atol=1e-5)
    for number in range(0, len(values), 7):
        alone, score = logits.select(np.array([number])).draw(sampling, uniforms[[number]])
        assert (alone, score) == (tokens[number], scores[number])


@at_levels("sampling", SAMPLINGS, FEW_SAMPLINGS)
def test_torch_draws_the_same_tokens(library, sampling):
    values = random_values(200)[1::2].copy()
    uniforms = np.random.default_rng(3).random(len(values))
    expected, of_torch = TorchLogits(torch.from_numpy(values)).draw(sampling, uniforms)
    tokens, scores = CompiledLogits(values, library).draw(sampling, uniforms)
    is_same = tokens == expected
    assert is_same.sum() >= len(values) - 1  # a number may be within rounding of a boundary
    assert np.allclose(scores[is_same], of_torch[is_same], atol=1e-5)


@at_levels("sampling", SAMPLINGS, FEW_SAMPLINGS)
def test_evenly_spaced_numbers_draw_each_token_by_its_share(library, sampling):
    num_draws = 5000
    for row in random_values(150, num_rows=2, spread=1.0):
        kept, shares, nearness = kept_shares(row, sampling)
        assert nearness > ROUNDING
        logits = CompiledLogits(row[None].repeat(num_draws, axis=0), library)
        tokens, _ = logits.draw(sampling, (np.arange(num_draws) + 0.5) / num_draws)
        expected = np.zeros(len(row))
        expected[kept] = shares * num_draws
        counts = np.bincount(tokens, minlength=len(row))
        assert (np.abs(counts - expected) < 1.1).all()
        assert set(tokens) <= set(kept)


def test_the_smallest_and_the_largest_number_draw_tokens_that_have_a_probability(library):
    values = random_values(203, num_rows=1000)
    values[:, :70] = values[:, 100:120] = values[:, 180:] = -np.inf
    for sampling in SAMPLINGS:
        for uniform in (0.0, np.nextafter(1.0, 0.0)):
            tokens, scores = CompiledLogits(values.copy(), library).draw(
                sampling, np.full(len(values), uniform)
            )
            assert (scores > -30.0).all()
            assert (tokens >= 70).all()


@pytest.mark.parametrize("sampling", SAMPLINGS_OF_ONE)
def test_what_leaves_one_token_takes_the_best(library, sampling):
    rng = np.random.default_rng(5)
    values = rng.permuted(np.tile(np.linspace(-9, 9, 300, dtype=np.float32), (20, 1)), axis=1)
    tokens, _ = CompiledLogits(values, library).draw(sampling, rng.random(20))
    assert np.array_equal(tokens, values.argmax(axis=1))


@at_levels("sampling", SAMPLINGS, FEW_SAMPLINGS)
def test_rows_without_probabilities_have_no_score_and_disturb_no_others(library, sampling):
    values, uniforms = random_values(90, 9), np.linspace(0.0, 0.95, 9)
    expected, _ = CompiledLogits(values.copy(), library).draw(sampling, uniforms)
    values[2, 5] = np.nan
    values[6, 7] = np.inf
    logits = CompiledLogits(values, library)
    everything = Banned(np.full(90, 4), np.arange(90))
    logits.restrict(everything)
    tokens, scores = logits.draw(sampling, uniforms)
    assert ((tokens >= 0) & (tokens < 90)).all()
    assert np.isnan(scores[[2, 6]]).all()
    assert scores[4] == -np.inf
    others = [0, 1, 3, 5, 7, 8]
    assert np.array_equal(tokens[others], expected[others])


def log_softmax(values):
    return values - log_sums(values)[:, None]


@at_levels("width", WIDTHS, FEW_WIDTHS)
@pytest.mark.parametrize("num_models", [1, 2, 3])
def test_a_mean_is_that_of_the_probabilities(library, width, num_models):
    of_models = [random_values(width, spread=9.0, seed=seed) for seed in range(num_models)]
    for values in of_models:
        values[1, 1:] = -500.0  # too small for a probability in fp32
        values[2, 1:3] = -np.inf  # in all models
    of_models[0][2, :-1] = -np.inf
    of_models[-1][3, :-1] = -np.inf
    each = (CompiledLogits(values.copy(), library) for values in of_models)
    mean = next(each).mean_with(each)
    with np.errstate(divide="ignore"):
        expected = np.logaddexp.reduce([*map(log_softmax, of_models)]) - np.log(num_models)
    rows, tokens = np.indices(expected.shape)
    found = mean.log_probabilities(rows, tokens)
    assert np.allclose(found, expected, rtol=1e-6, atol=2e-6)


def test_a_mean_with_itself_changes_nothing_and_one_without_numbers_has_none(library):
    values = random_values(77)
    twice = CompiledLogits(values.copy(), library).mean_with([CompiledLogits(values, library)])
    (best, tokens), alone = twice.best_of_rows(77), CompiledLogits(values.copy(), library)
    assert np.allclose(best, alone.best_of_rows(77)[0], atol=1e-5)
    assert np.array_equal(tokens[:, 0], values.argmax(axis=1))
    broken = values.copy()
    broken[5, 3] = np.nan
    for one, other in ((values, broken), (broken, values)):
        mean = CompiledLogits(one.copy(), library).mean_with([CompiledLogits(other, library)])
        assert np.flatnonzero(np.isnan(mean.normalizers())).tolist() == [5]
