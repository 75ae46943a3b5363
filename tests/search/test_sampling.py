"""Samples of table models: their frequencies against exact probabilities, their independence.

Their random numbers, by key and position, against the published ones of SplitMix64.
"""

import math
from collections import Counter
from functools import cache
from itertools import accumulate, product

import numpy as np
import pytest
import torch

from nmt_cli.messages.errors import UserError
from nmt_cli.search.logits import Banned, Permitted
from nmt_cli.search.rules.rule import SampledCandidates
from nmt_cli.search.sentences import (
    IMPOSSIBLE,
    NO_MEMORY,
    Hypothesis,
    Sampling,
    Sentence,
    gathered,
    key_of,
    samples_of,
    uniforms,
)
from nmt_cli.search.torch_logits import drawn_tokens
from tests.fake_models import BOS, EOS
from tests.table_search import log_probability, random_table, search, settings

NUM_SAMPLES = 2000


def kept_probabilities(logits, sampling):
    """Return the distribution of the next token, by sorting plain lists of numbers."""
    weights = {token: math.exp(value / sampling.temperature) for token, value in logits.items()}
    ranked = sorted(weights, key=lambda token: (-weights[token], token))[: sampling.top_k]
    total = sum(weights[token] for token in ranked)
    kept, mass = [], 0.0
    for token in ranked:
        if mass >= sampling.top_p * total:
            break
        kept.append(token)
        mass += weights[token]
    return {token: weights[token] / mass for token in kept}


def exact_probabilities(table, source, longest, sampling, forbidden=()):
    """Return the probability of every output."""

    @cache
    def after(prefix):
        row = table(source, prefix).tolist()
        allowed = {token: row[token] for token in range(len(row)) if token not in (BOS, *forbidden)}
        return {EOS: 1.0} if len(prefix) == longest else kept_probabilities(allowed, sampling)

    words = [token for token in range(len(table(source, ()))) if token != EOS]
    outputs = {}
    for length in range(longest + 1):
        for tokens in product(words, repeat=length):
            steps = enumerate((*tokens, EOS))
            outputs[tokens] = math.prod(after(tokens[:i]).get(token, 0.0) for i, token in steps)
    assert sum(outputs.values()) == pytest.approx(1.0)
    return {tokens: probability for tokens, probability in outputs.items() if probability}


def samples(table, sentence, sampling, num_samples, line=1, **options):
    """Return the hypotheses of ``num_samples`` samples."""
    sentences = samples_of([sentence], sampling, line, num_samples)
    choice = SampledCandidates(sampling)
    found = search(table, sentences, settings(1), num_slots=500, choice=choice, **options)
    return [hypothesis for (hypothesis,) in found]


class Forbidden:
    name = "forbidden"

    def __init__(self, *tokens):
        self.tokens = tokens

    needs_data = False

    def restriction(self, states):
        rows = np.arange(len(states.lengths))
        places = np.array([(row, token) for row in rows for token in self.tokens])
        return Banned(*places.T)


@pytest.mark.usefixtures("searched_by")
@pytest.mark.parametrize(
    "sampling",
    [
        Sampling(),
        Sampling(temperature=0.5, seed=2),
        Sampling(temperature=3.0, seed=3),
        Sampling(top_k=2, seed=4),
        Sampling(top_p=0.8, seed=5),
        Sampling(1.5, 3, 0.9, 6),
    ],
)
@pytest.mark.parametrize("forbidden", [(), (4,)])
def test_frequencies_are_those_of_the_exact_distribution(sampling, forbidden):
    table = random_table(6)
    exact = exact_probabilities(table, (7,), 2, sampling, forbidden)
    rules = [Forbidden(*forbidden)] if forbidden else []
    drawn = samples(table, Sentence((7,), 2), sampling, NUM_SAMPLES, rules=rules)
    counts = Counter(hypothesis.tokens for hypothesis in drawn)
    assert counts.keys() <= exact.keys()
    rare = [tokens for tokens, p in exact.items() if p * NUM_SAMPLES < 5]
    cells = [(counts[t], p * NUM_SAMPLES) for t, p in exact.items() if t not in rare]
    cells.append((sum(counts[t] for t in rare), sum(exact[t] for t in rare) * NUM_SAMPLES))
    distance = sum((count - p) ** 2 / p for count, p in cells if p)
    degrees = sum(p > 0 for _, p in cells) - 1
    # The upper 0.1 % of chi-square, by Wilson and Hilferty.
    assert distance < degrees * (1 - 2 / (9 * degrees) + 3.09 * (2 / (9 * degrees)) ** 0.5) ** 3


@pytest.mark.usefixtures("searched_by")
def test_scores_are_the_models_whatever_the_temperature_and_the_rules():
    table = random_table(8)
    drawn = samples(table, Sentence((3,), 6), Sampling(0.7, 4, 0.9), 40, rules=[Forbidden(5)])
    assert len({hypothesis.tokens for hypothesis in drawn}) > 5
    for hypothesis in drawn:
        total = log_probability(table, (3,), hypothesis.tokens)
        assert hypothesis.log_probability == pytest.approx(total, abs=1e-4)
        length = len(hypothesis.tokens) + 1
        assert hypothesis.score == pytest.approx(total / ((5 + length) / 6) ** 0.6, abs=1e-4)


@pytest.mark.usefixtures("searched_by")
@pytest.mark.parametrize("sampling", [Sampling(), Sampling(0.8, 5), Sampling(top_p=0.7)])
def test_draws_depend_on_seed_line_part_and_rank_alone(sampling):
    table, sentence = random_table(70), Sentence((1,), 8)
    choice = SampledCandidates(sampling)

    def drawn(sentences, num_slots):
        found = search(table, sentences, settings(1), num_slots, choice=choice)
        return [hypothesis.tokens for (hypothesis,) in found]

    keyed = [
        each for line in (1, 2, 3) for each in samples_of([sentence, sentence], sampling, line, 4)
    ]
    alone = [drawn([each], 1)[0] for each in keyed]
    assert len(set(alone)) > 20  # lines, parts and ranks differ
    assert drawn(keyed, 100) == alone
    assert drawn(keyed[::-1], 5)[::-1] == alone
    fewer = [each for line in (1, 2, 3) for each in samples_of([sentence], sampling, line, 2)]
    assert drawn(fewer, 3) == [alone[i] for i in (0, 1, 8, 9, 16, 17)]
    reseeded = sampling._replace(seed=9)
    assert drawn(samples_of([sentence], reseeded, 1, 4), 4) != alone[:4]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])  # in bf16, many are equal
@pytest.mark.parametrize("spread", [0.0, 0.3, 1.0, 3.0])
def test_a_token_is_that_of_a_sorted_list_of_the_nucleus(dtype, spread):
    generator = torch.Generator().manual_seed(7)
    rows = (1 + spread * torch.randn(30, 500, generator=generator)).to(dtype)
    drawn = torch.rand(30, generator=generator, dtype=torch.float64)
    sampling = Sampling(temperature=1.3, top_p=0.9)
    tokens = drawn_tokens(rows, drawn, sampling)
    for row, share, token in zip(rows.tolist(), drawn.tolist(), tokens.tolist(), strict=True):
        kept = kept_probabilities(dict(enumerate(row)), sampling)
        ends = accumulate(kept.values())
        expected = next(t for t, end in zip(kept, ends, strict=True) if share < end)
        assert token == expected


@pytest.mark.usefixtures("searched_by")
def test_of_equal_pieces_the_lowest_numbers_are_in_the_nucleus():
    """Of 299 equal pieces, the 150 with the lowest numbers make half; <s> is none of them."""
    flat = torch.zeros(300)
    drawn = samples(lambda *_: flat, Sentence((1,), 1), Sampling(top_p=0.5), 1500)
    found = {hypothesis.tokens for hypothesis in drawn}
    assert found <= {(), *((token,) for token in range(151))}
    assert len(found) > 145


@pytest.mark.usefixtures("searched_by")
def test_small_temperatures_are_greedy_and_kept_pieces_never_come_from_forbidden_ones():
    table = random_table(100)
    (greedy,) = search(table, [Sentence((5,), 9)], settings(1))
    for sampling in (Sampling(1e-9), Sampling(1e-320), Sampling(top_k=1), Sampling(top_p=1e-9)):
        for hypothesis in samples(table, Sentence((5,), 9), sampling, 3):
            assert hypothesis.tokens == greedy[0].tokens
    few = Forbidden(*range(3, 98))
    for sampling in (Sampling(), Sampling(top_k=50), Sampling(top_p=0.999)):
        for hypothesis in samples(table, Sentence((5,), 9), sampling, 50, rules=[few]):
            assert set(hypothesis.tokens) <= {0, 98, 99}


@pytest.mark.usefixtures("searched_by")
def test_what_is_not_a_number_and_what_has_no_way_on_fails_alone():
    def strange(source, prefix):
        row = torch.zeros(100)
        if source[0] == 1:
            row[5] = torch.nan
        if source[0] == 2:
            row[:] = -torch.inf
        return row

    class NoWay(Forbidden):
        def restriction(self, states):
            rows = np.array([*states.data])
            bounds, nothing = np.zeros(len(rows) + 1, np.int64), np.zeros(0, np.int64)
            return Permitted(rows, bounds, nothing)

    for sampling in (Sampling(), Sampling(top_k=7), Sampling(top_p=0.5)):
        sentences = [Sentence((n,), 3, {"forbidden": 1} if n == 3 else {}) for n in range(4)]
        keyed = [each for n, s in enumerate(sentences) for each in samples_of([s], sampling, n, 1)]
        choice = SampledCandidates(sampling)
        found = search(strange, keyed, settings(1), 4, [NoWay()], choice)
        assert [len(hypotheses) for hypotheses in found] == [1, 0, 0, 0]


def test_samples_are_gathered_in_the_order_drawn():
    good = [(Hypothesis((n,), -float(n), -float(n)),) for n in (3, 1, 2)]
    both = gathered([*good, good[1], IMPOSSIBLE, good[0]], 3)
    assert both == [tuple(h for (h,) in good), (*good[1], *good[0])]
    assert gathered([IMPOSSIBLE, IMPOSSIBLE], 2) == [IMPOSSIBLE]
    assert gathered([IMPOSSIBLE, NO_MEMORY, good[0]], 3) == [NO_MEMORY]


@pytest.mark.parametrize(
    ("sampling", "num_samples", "message"),
    [
        (Sampling(0.0), 1, "--temperature must be more than 0 and at most 1,000, but is 0.0"),
        (Sampling(math.nan), 1, "--temperature must be more than 0 and at most 1,000, but is nan"),
        (Sampling(top_k=0), 1, "--sample-top-k must be at least 1, but is 0"),
        (Sampling(top_p=1.5), 1, "--sample-top-p must be more than 0 and at most 1"),
        (Sampling(), 0, "--n-best with --sample must be at least 1 and at most 1,000, but is 0"),
        (
            Sampling(),
            1001,
            "--n-best with --sample must be at least 1 and at most 1,000, but is 1001",
        ),
    ],
)
def test_settings_out_of_range_are_refused(sampling, num_samples, message):
    with pytest.raises(UserError, match=message):
        sampling.refuse_wrong(num_samples)


# The first outputs of Vigna's splitmix64.c with the seed 1234567.
PUBLISHED = [
    6457827717110365317,
    3203168211198807973,
    9817491932198370423,
    4593380528125082431,
    16408922859458223821,
]


def test_the_numbers_are_those_of_splitmix64():
    keys = np.full(len(PUBLISHED), 1234567, np.uint64)
    found = uniforms(keys, np.arange(len(PUBLISHED)))
    assert found.tolist() == [(bits >> 11) / 2**53 for bits in PUBLISHED]


def test_keys_differ_and_depend_on_the_order_of_their_numbers():
    numbers = [
        (seed, line, rank) for seed in range(9) for line in range(-9, 9) for rank in range(9)
    ]
    assert len({key_of(each) for each in numbers}) == len(numbers)
    assert key_of((1, 2)) == key_of([1, 2]) != key_of((2, 1))
    assert 0 <= key_of((10**30, -1)) < 2**64


def test_numbers_of_many_keys_and_positions_are_uniform_and_independent():
    keys = np.array([key_of((1, line)) for line in range(1000)], np.uint64)
    drawn = np.stack([uniforms(keys, np.full(1000, position)) for position in range(20)])
    assert 0.0 <= drawn.min() <= drawn.max() < 1.0
    counts = np.histogram(drawn, bins=50, range=(0, 1))[0]
    assert ((counts - 400.0) ** 2 / 400.0).sum() < 85  # chi-square, 49 degrees: 0.1 % exceed 85
    neighbours = np.corrcoef(drawn[:, :-1].ravel(), drawn[:, 1:].ravel())[0, 1]
    steps = np.corrcoef(drawn[:-1].ravel(), drawn[1:].ravel())[0, 1]
    assert max(abs(neighbours), abs(steps)) < 0.025
