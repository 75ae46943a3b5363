"""chrF of many pairs against sacrebleu's of each, and what is chosen by it."""

import random

import numpy as np
import pytest
from sacrebleu.metrics.chrf import CHRF

from nmt_cli.metrics.chrf import by_agreement, chrf_of_each

TEXTS = [
    "Ein Mann liest ein Buch.",
    "Ein Mann  liest\tein Buch!",
    "Der alte Mann liest Bücher",
    "aaaa aaaa",
    "aaaaaaa",
    "a",
    "",
    "  ",
    "男人在读书。",
    "男人读一本书。",
    "رجل يقرأ كتابا",
    "คนอ่านหนังสือ",
    "🙂🙂 👩‍👩‍👧",
    "x" * 500,
]


def test_it_is_sacrebleus():
    found = chrf_of_each(TEXTS, TEXTS[::-1])
    expected = [[CHRF().sentence_score(h, [r]).score for r in TEXTS[::-1]] for h in TEXTS]
    assert np.allclose(found, expected, rtol=0, atol=1e-9)
    assert np.diag(chrf_of_each(TEXTS[:6], TEXTS[:6])) == pytest.approx(100)


def test_the_greatest_expected_score_is_first():
    rng = random.Random(2)
    for _ in range(30):
        texts = ["".join(rng.choices("ab c", k=rng.randrange(1, 12))) for _ in range(6)]
        texts += rng.choices(texts, k=2)
        weights = [rng.random() for _ in texts]
        expected = [
            sum(
                w * CHRF().sentence_score(h, [r]).score for w, r in zip(weights, texts, strict=True)
            )
            for h in texts
        ]
        found = [expected[place] for place in by_agreement(texts, weights)]
        assert found == pytest.approx(sorted(expected, reverse=True))
    assert by_agreement(["b", "a", "a", "b"], [1, 1, 1, 1]) == [0, 1, 2, 3]
    assert by_agreement(["b", "a", "c", "a"], [1, 1, 1, 1]) == [1, 3, 0, 2]
    assert by_agreement(["b"], [0.5]) == [0]
