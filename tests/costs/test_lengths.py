import numpy as np
import pytest

from nmt_cli.costs import training_time
from nmt_cli.costs.flops import sum_lengths
from nmt_cli.costs.training_time import SentenceLengths, equal_pairs, sum_of_text


def test_a_text_is_summed_in_parts(monkeypatch):
    monkeypatch.setattr(training_time, "PAIRS_AT_ONCE", 7)
    rng = np.random.default_rng(1)
    source, target = rng.integers(1, 900, (2, 40), dtype=np.uint16)
    assert sum_of_text(source, target) == sum_lengths(source, target)


def test_the_means_are_those_of_the_pairs():
    text = SentenceLengths(sum_lengths([3, 4, 8], [1, 1, 7]), 3, "a text")
    assert (text.mean_source, text.mean_target) == (5, 3)
    assert equal_pairs(5, 3, "given").mean_source == pytest.approx(text.mean_source)
    assert equal_pairs(5, 3, "given").mean_target == pytest.approx(text.mean_target)
