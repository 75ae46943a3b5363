"""The fewest pieces that complete phrases, against a search through all continuations."""

import random
from itertools import product

import pytest

from nmt_cli.search.rules.phrases import MOST_PHRASES, Completion

LETTERS = (5, 6, 7)


def occurs(phrase, text):
    return any(text[i : i + len(phrase)] == phrase for i in range(len(text)))


def fewest(phrases, text):
    """Return the length of the shortest continuation after which every phrase has occurred."""
    for length in range(12):
        for more in product(LETTERS, repeat=length):
            if all(occurs(phrase, (*text, *more)) for phrase in phrases):
                return length
    raise AssertionError


@pytest.mark.parametrize("seed", range(25))
def test_the_number_is_that_of_a_search_through_all_continuations(seed):
    rng = random.Random(seed)

    def text(longest):
        return tuple(rng.choice(LETTERS[:2]) for _ in range(rng.randrange(1, longest + 1)))

    phrases = tuple(dict.fromkeys(text(3) for _ in range(rng.randrange(1, 4))))
    completion = Completion(phrases)
    for begun in [(), text(4), (*text(3), 9), (9, *text(4))]:
        missing = fewest(phrases, begun)
        assert completion.num_missing(begun) == missing
        for room in range(missing + 2):
            allowed = completion.next_pieces(begun, room)
            for piece in (*LETTERS, 9):
                fits = fewest(phrases, (*begun, piece)) <= room
                assert fits == (allowed is None or piece in allowed)


def test_phrases_overlap_and_contain_each_other():
    assert Completion([(1, 2), (2, 3), (3, 1)]).num_missing(()) == 4
    assert Completion([(1, 2, 3), (2,), (2, 3)]).num_missing((9, 1)) == 2
    assert Completion([(1,), (2,)]).num_missing((2, 7, 1)) == 0


def test_the_largest_number_of_phrases():
    chain = [(n, n + 1) for n in range(MOST_PHRASES)]
    assert Completion(chain).num_missing(()) == MOST_PHRASES + 1
    for too_many in ([*chain, (99,)], [tuple(range(101))]):
        with pytest.raises(ValueError, match="more than 10 phrases or 100 pieces"):
            Completion(too_many)


def test_a_long_phrase_that_nearly_repeats_itself():
    phrase = (5, 6) * 49 + (5, 5)
    completion = Completion([phrase])
    assert completion.num_missing(phrase[:-1]) == 1
    assert completion.num_missing((*phrase[:-1], 6)) == 2  # two pieces later it may end as well
    assert completion.num_missing((*phrase[:-1], 7)) == 100
