"""chrF2 of each of some sentences against each of others, whose n-grams are counted once.

It is sacrebleu's (Popović 2015), which would count them once for each pair.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Scores = NDArray[np.float64]

LONGEST_NGRAM = 6  # characters; white space is none
BETA_SQUARED = 4  # recall has twice the weight of precision
DIGITS = 9  # of scores that are compared: sums in another order are equal then


def chrf_of_each(hypotheses: Sequence[str], references: Sequence[str]) -> Scores:
    """Return the chrF2 [H, R], from 0 to 100, of each hypothesis against each reference."""
    both = [["".join(text.split()) for text in texts] for texts in (hypotheses, references)]
    precision, recall, num_orders = np.zeros((3, len(hypotheses), len(references)))
    for length in range(1, LONGEST_NGRAM + 1):
        matches, of_hypotheses, of_references = _matches(both[0], both[1], length)
        precision += matches / np.maximum(of_hypotheses, 1)[:, None]
        recall += matches / np.maximum(of_references, 1)
        num_orders += np.minimum.outer(of_hypotheses, of_references) > 0
    precision, recall = (each / np.maximum(num_orders, 1) for each in (precision, recall))
    weighted = BETA_SQUARED * precision + recall
    score = (1 + BETA_SQUARED) * precision * recall / np.where(weighted > 0, weighted, 1.0)
    return 100 * score


def _matches(
    hypotheses: Sequence[str], references: Sequence[str], length: int
) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Return how many n-grams of a length each pair has in common [H, R], and each text alone."""
    numbers = dict[str, int]()
    of_references = [_counted(text, length, numbers) for text in references]
    of_hypotheses = [_counted(text, length, numbers) for text in hypotheses]
    ngrams, counts = np.concatenate([np.zeros((2, 0), np.int64), *of_references], axis=1)
    bounds = np.cumsum([0, *(each.shape[1] for each in of_references)])
    own, sums = np.zeros(len(numbers), np.int64), np.zeros(len(ngrams) + 1, np.int64)
    matches = np.empty((len(hypotheses), len(references)), np.int64)
    for row, (its_ngrams, its_counts) in zip(matches, of_hypotheses, strict=True):
        own[its_ngrams] = its_counts
        np.cumsum(np.minimum(own[ngrams], counts), out=sums[1:])
        row[:] = np.diff(sums[bounds])
        own[its_ngrams] = 0
    totals = [np.array([each[1].sum() for each in side]) for side in (of_hypotheses, of_references)]
    return matches, totals[0], totals[1]


def _counted(text: str, length: int, numbers: dict[str, int]) -> NDArray[np.int64]:
    """Return the numbers of the n-grams of ``text`` and their counts [2, any]; number new ones."""
    found = Counter(text[place : place + length] for place in range(len(text) - length + 1))
    known = [numbers.setdefault(ngram, len(numbers)) for ngram in found]
    return np.array([known, [*found.values()]], np.int64)


def by_agreement(texts: Sequence[str], weights: Sequence[float]) -> list[int]:
    """Return the places of ``texts``, the one that agrees most with all of them first.

    It has the greatest expected chrF2 against a text that is drawn by ``weights``: the least Bayes
    risk (Kumar and Byrne 2004; Eikema and Aziz 2020). Of equals, an earlier one is first.
    """
    weight_of: dict[str, float] = {}  # samples are often equal
    for text, weight in zip(texts, weights, strict=True):
        weight_of[text] = weight_of.get(text, 0.0) + weight
    different = [*weight_of]
    expected = chrf_of_each(different, different) @ np.array([*weight_of.values()])
    score_of = dict(zip(different, expected.round(DIGITS), strict=True))
    return sorted(range(len(texts)), key=lambda place: -score_of[texts[place]])
