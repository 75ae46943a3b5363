"""The aligner against EM in plain loops, and on pairs whose alignment is known."""

import random
from collections import Counter, defaultdict
from math import exp
from typing import Any

import numpy as np
import pytest
import torch

from nmt_cli.alignment.ibm_model2 import DirectionModel, WordAligner, digamma, write_pairs
from nmt_cli.alignment.pair_cells import NumberedPairs
from nmt_cli.corpus.chunk_pool import ChunkPool

ITERATIONS = 4


def random_pairs(number, num_words=8, seed=5):
    """Return pairs of sentences without repeated words, whose places could tie."""
    rng = random.Random(seed)

    def side():
        return rng.sample(range(num_words), rng.randint(1, num_words - 1))

    return [(side(), side()) for _ in range(number)]


def aligned(folder, chunks, num_words, symmetrization="forward", iterations=ITERATIONS):
    """Return the aligner after its iterations, and the links of each pair of ``chunks``."""
    for number, pairs in enumerate(chunks):
        write_pairs(folder, number, NumberedPairs.of(pairs))
    lengths = Counter((len(source), len(target)) for pairs in chunks for source, target in pairs)
    with ChunkPool(folder) as pool:
        aligner = WordAligner(folder, lengths, num_words, pool, 1)
        aligner.find_word_pairs(lambda _: None)
        for iteration in range(iterations):
            aligner.iterate(lambda _: None, fits_tension=iteration > 0)
        return aligner, [line for lines in aligner.links(symmetrization) for line in lines]


class PlainModel:
    """The same model as its paper defines it, for the target words, in loops over words."""

    def __init__(self, pairs, num_targets):
        self.pairs, self.num_targets = pairs, num_targets
        self.table = defaultdict(lambda: 1.0)
        self.tension = 4.0

    @staticmethod
    def distances(place, length, given):
        return [abs(place / length - other / given) for other in range(1, given + 1)]

    def weights(self, source, target, place):
        """Return those of no word and of each source word for target word ``place``, from 1."""
        word = target[place - 1]
        prior = [exp(-self.tension * d) for d in self.distances(place, len(target), len(source))]
        of_words = [
            0.92 * each / sum(prior) * self.table[given, word]
            for each, given in zip(prior, source, strict=True)
        ]
        return [0.08 * self.table[None, word], *of_words]

    def iterate(self, fits_tension):
        counts: dict[Any, float] = defaultdict(float)
        distance, num_words = 0.0, 0
        given_words = {(None, word) for word in range(self.num_targets)}
        for source, target in self.pairs:
            given_words |= {(given, word) for given in source for word in target}
            for place, word in enumerate(target, 1):
                weights = self.weights(source, target, place)
                distances = [0.0, *self.distances(place, len(target), len(source))]
                for given, weight, d in zip([None, *source], weights, distances, strict=True):
                    counts[given, word] += weight / sum(weights)
                    distance += d * weight / sum(weights)
                num_words += 1
        for _ in range(8 if fits_tension else 0):
            step = 20 * (self.expected_distance() - distance) / num_words
            self.tension = min(max(self.tension + step, 0.1), 14.0)
        sums: dict[Any, float] = defaultdict(float)
        for given, word in given_words:
            sums[given] += counts[given, word] + 0.01
        for given, word in given_words:
            logs = torch.tensor([counts[given, word] + 0.01, sums[given]], dtype=torch.float64)
            first, second = logs.digamma().tolist()
            self.table[given, word] = exp(first - second)

    def expected_distance(self):
        total = 0.0
        for source, target in self.pairs:
            for place in range(1, len(target) + 1):
                distances = self.distances(place, len(target), len(source))
                prior = [exp(-self.tension * d) for d in distances]
                total += sum(d * p for d, p in zip(distances, prior, strict=True)) / sum(prior)
        return total

    def links(self):
        for source, target in self.pairs:
            links = []
            for place in range(1, len(target) + 1):
                none, *weights = self.weights(source, target, place)
                best = max(range(len(weights)), key=weights.__getitem__)
                if weights[best] > none:
                    links.append((best, place - 1))
            yield " ".join(f"{one}-{other}" for one, other in sorted(links))


def exchanged(pairs):
    return [(target, source) for source, target in pairs]


def turned(line):
    links = [link.split("-") for link in line.split()]
    return " ".join(f"{a}-{b}" for a, b in sorted((int(b), int(a)) for a, b in links))


def test_the_model_is_that_of_plain_loops(tmp_path):
    pairs = random_pairs(30)
    forward, backward = PlainModel(pairs, 8), PlainModel(exchanged(pairs), 8)
    for iteration in range(ITERATIONS):
        forward.iterate(iteration > 0)
        backward.iterate(iteration > 0)
    aligner, links = aligned(tmp_path, [pairs[:11], pairs[11:]], (8, 8))
    assert aligner.tensions == pytest.approx((forward.tension, backward.tension), rel=1e-4)
    assert links == list(forward.links())
    assert len({len(line.split()) for line in links}) > 3
    back = [line for lines in aligner.links("backward") for line in lines]
    assert [turned(line) for line in back] == list(backward.links())


def test_the_cut_into_chunks_changes_nothing(tmp_path):
    pairs = random_pairs(25, seed=8)
    found = []
    for name, chunks in (("one", [pairs]), ("many", [pairs[n : n + 2] for n in range(0, 25, 2)])):
        folder = tmp_path / name
        folder.mkdir()
        aligner, links = aligned(folder, chunks, (8, 8), "grow-diag-final-and")
        found.append((links, aligner.tensions))
    assert found[0][0] == found[1][0]
    assert found[0][1] == pytest.approx(found[1][1], rel=1e-5)


def test_words_of_a_dictionary_are_aligned_although_their_order_differs(tmp_path):
    rng = random.Random(2)
    pairs, gold = [], []
    for _ in range(300):
        source = rng.sample(range(60), rng.randint(3, 12))
        order = list(range(len(source)))
        for place in range(0, len(source) - 1, 2):
            if rng.random() < 0.4:
                order[place], order[place + 1] = order[place + 1], order[place]
        pairs.append((source, [59 - source[place] for place in order]))
        links = sorted((place, n) for n, place in enumerate(order))
        gold.append(" ".join(f"{a}-{b}" for a, b in links))
    _, links = aligned(tmp_path, [pairs], (60, 60), "grow-diag-final-and", 5)
    right = sum(one == other for one, other in zip(links, gold, strict=True))
    assert right > 290


def test_what_the_prior_expects_is_the_sum_over_all_words():
    lengths = [(3, 5, 2), (1, 1, 7), (4, 4, 1), (6, 1, 1), (1, 6, 3), (40, 90, 1)]
    prior = DirectionModel(np.zeros(1, np.int32), 1, lengths)
    for tension in (0.1, 1.0, 4.0, 14.0):
        expected = 0.0
        for predicted, given, number in lengths:
            for place in range(1, predicted + 1):
                distances = PlainModel.distances(place, predicted, given)
                weights = [exp(-tension * d) for d in distances]
                of_word = sum(d * w for d, w in zip(distances, weights, strict=True))
                expected += number * of_word / sum(weights)
        assert prior.expected_distance(tension) == pytest.approx(expected, rel=1e-9)


def test_digamma_is_torchs():
    numbers = np.concatenate([np.geomspace(1e-3, 1e7, 400), [0.01, 1.0]])
    expected = torch.from_numpy(numbers).digamma().numpy()
    np.testing.assert_allclose(digamma(numbers), expected, rtol=1e-9, atol=1e-9)
