"""The fewest pieces that meet constraints, against a search through all continuations."""

import random
from itertools import product

import pytest

from nmt_cli.search.rules.phrases import (
    MOST_ORDERED,
    MOST_PHRASES,
    MOST_PIECES,
    PhraseForm,
    RequiredPhrases,
)

LETTERS = (5, 6, 7)


def required(*constraints):
    """Return constraints; each is a phrase or a list of alternatives."""
    return RequiredPhrases(
        tuple(map(PhraseForm, each if isinstance(each, list) else [each])) for each in constraints
    )


def occurs(phrase, text):
    return any(text[i : i + len(phrase)] == phrase for i in range(len(text)))


def fewest(constraints, text):
    """Return the length of the shortest continuation after which each constraint is met."""
    for length in range(12):
        for more in product(LETTERS, repeat=length):
            whole = (*text, *more)
            if all(any(occurs(phrase, whole) for phrase in forms) for forms in constraints):
                return length
    raise AssertionError


@pytest.mark.parametrize("seed", range(25))
def test_the_number_is_that_of_a_search_through_all_continuations(seed):
    rng = random.Random(seed)

    def text(longest):
        return tuple(rng.choice(LETTERS[:2]) for _ in range(rng.randrange(1, longest + 1)))

    constraints = [
        [text(3) for _ in range(rng.choice([1, 1, 2]))] for _ in range(rng.choice([1, 2, 3]))
    ]
    phrases = required(*constraints)
    for begun in [(), text(4), (*text(3), 9), (9, *text(4))]:
        assert phrases.fewest_after(begun) == fewest(constraints, begun)


def test_phrases_overlap_and_contain_each_other():
    assert required((1, 2), (2, 3), (3, 1)).fewest_after(()) == 4
    assert required((1, 2, 3), (2,), (2, 3)).fewest_after((9, 1)) == 2
    assert required((1,), (2,)).fewest_after((2, 7, 1)) == 0
    assert required([(1, 2, 3), (4, 5)], (3, 4)).fewest_after((1, 2)) == 2


def test_overlaps_of_many_phrases_are_not_looked_for():
    chain = [(n, n + 1) for n in range(MOST_ORDERED)]
    assert required(*chain).fewest_after(()) == MOST_ORDERED + 1
    assert required(*chain, (98, 99)).fewest_after(()) == 2 * MOST_ORDERED + 2
    assert required(*chain, (98, 99)).fewest_after((98, 99)) == MOST_ORDERED + 1


def test_the_largest_number_of_phrases():
    chain = [(n, n + 1) for n in range(MOST_PHRASES)]
    assert required(*chain).fewest_after(()) == 2 * MOST_PHRASES
    for too_many in ([*chain, (99,)], [tuple(range(MOST_PIECES + 1))]):
        with pytest.raises(ValueError, match="more than 50 phrases or 500 pieces"):
            required(*too_many)


def test_a_long_phrase_that_nearly_repeats_itself():
    phrase = (5, 6) * 49 + (5, 5)
    phrases = required(phrase)
    assert phrases.fewest_after(phrase[:-1]) == 1
    assert phrases.fewest_after((*phrase[:-1], 6)) == 2  # two pieces later it may end as well
    assert phrases.fewest_after((*phrase[:-1], 7)) == 100
