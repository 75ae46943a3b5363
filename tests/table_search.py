"""Searches over tables of random logits, which a test can also search by brute force."""

from functools import cache, partial
from typing import NamedTuple

import torch

from nmt_cli.search.driver import Driver
from nmt_cli.search.search import Search
from nmt_cli.search.search_size import SearchSize
from nmt_cli.search.sentences import IMPOSSIBLE, Failure, Hypothesis, SearchSettings
from tests.fake_models import BOS, EOS, TableModel


class Found(NamedTuple):
    """The best hypotheses of one sentence, best first, or why it has none."""

    number: int
    hypotheses: tuple[Hypothesis, ...]
    error: str | None = None


def random_table(vocabulary_size, *, end_bias=0.0):
    """Logits that depend on the source and on every token of the prefix."""

    @cache
    def logits(source, prefix):
        generator = torch.Generator().manual_seed(hash((source, prefix)) % 2**31)
        row = 2 * torch.randn(vocabulary_size, generator=generator)
        row[EOS] += end_bias
        return row

    return logits


def log_probabilities(logits, source, prefix):
    return logits(source, prefix).double().log_softmax(dim=0).tolist()


def log_probability(logits, source, tokens):
    """Return the log-probability of an output with these tokens, its end included."""
    steps = enumerate((*tokens, EOS))
    return sum(log_probabilities(logits, source, tokens[:i])[token] for i, token in steps)


def settings(beam_size, alpha=0.6, n_best=1):
    return SearchSettings(beam_size, alpha, n_best, BOS, EOS)


def beam_search(model, sentences, num_slots, settings, rules=(), choice=None):
    """Yield what is found for each sentence when it is done."""
    driver = Driver[int](
        lambda first, _: Search(model, len(first), settings, rules, choice),
        SearchSize(num_slots),
        lambda sentence: 1,
    )
    return found_by(driver, sentences)


def found_by(driver, sentences):
    """Yield what a driver finds for each sentence, with its number; bugs are raised."""
    for number, outcome in driver.run(partial(next, enumerate(sentences), None), is_text=True):
        if not isinstance(outcome, Failure):
            yield Found(number, outcome)
        elif outcome.bug is not None:
            raise outcome.bug
        else:
            yield Found(number, (), None if outcome is IMPOSSIBLE else outcome.reason)


def search(logits, sentences, settings, num_slots=3, rules=(), choice=None):
    """Return the hypotheses of each sentence, in order."""
    found = sorted(beam_search(TableModel(logits), sentences, num_slots, settings, rules, choice))
    assert [each.number for each in found] == list(range(len(sentences)))
    return [each.hypotheses for each in found]
