"""Random numbers by key and position, against the published ones of SplitMix64."""

import numpy as np

from nmt_cli.search.sampling import key_of, uniforms

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
