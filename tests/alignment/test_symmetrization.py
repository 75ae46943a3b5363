"""Symmetrization against Moses's pseudo-code, on matrices."""

import random
from itertools import product

import pytest

from nmt_cli.alignment.symmetrization import SYMMETRIZATIONS

NEIGHBOURS = [(-1, 0), (0, -1), (1, 0), (0, 1), (-1, -1), (-1, 1), (1, -1), (1, 1)]


def grown(forward, backward, size):
    """Return what the pseudo-code of Moses' manual (GROW-DIAG-FINAL-AND) gives, word by word."""
    union, links = set(forward) | set(backward), set(forward) & set(backward)
    all_links = list(product(range(size), repeat=2))

    def is_free(axis, number):
        return all(link[axis] != number for link in links)

    before = -1
    while len(links) != before:
        before = len(links)
        for link in all_links:
            for down, right in NEIGHBOURS if link in links else ():
                new = link[0] + down, link[1] + right
                if new in union and (is_free(0, new[0]) or is_free(1, new[1])):
                    links.add(new)
    for direction in (forward, backward):
        for link in all_links:
            if link in direction and is_free(0, link[0]) and is_free(1, link[1]):
                links.add(link)
    return links


@pytest.mark.parametrize("seed", range(60))
def test_grow_diag_final_and_is_that_of_moses(seed):
    rng, size = random.Random(seed), 6
    forward = [(rng.randrange(size), target) for target in range(size) if rng.random() < 0.8]
    backward = [(source, rng.randrange(size)) for source in range(size) if rng.random() < 0.8]
    assert set(SYMMETRIZATIONS["grow-diag-final-and"](forward, backward)) == grown(
        forward, backward, size
    )


def test_the_others_are_what_their_names_say():
    forward, backward = [(0, 0), (1, 1)], [(1, 1), (2, 2)]
    found = {name: sorted(join(forward, backward)) for name, join in SYMMETRIZATIONS.items()}
    assert found["intersection"] == [(1, 1)]
    assert found["union"] == [(0, 0), (1, 1), (2, 2)]
    assert (found["forward"], found["backward"]) == (forward, backward)
