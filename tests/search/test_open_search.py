"""Sentences join and leave a search that goes on; it has as many slots as they need."""

import random
from typing import Any

import pytest
import torch

from nmt_cli.search.by_length import SearchByLength
from nmt_cli.search.open_search import OpenSearch
from nmt_cli.search.search import Search, Sentence
from tests.fake_models import EOS, TableModel
from tests.table_search import random_table, search, settings

BEAM = 3


def opened(logits, *, max_tokens=1000, chosen=None):
    """Return an open search over ``logits``, and its model; a slot needs the source's tokens."""
    model = TableModel(logits)
    chosen = chosen or settings(BEAM)
    by_length = SearchByLength(max_tokens)
    start = lambda num_slots: Search(model, num_slots, chosen)  # noqa: E731
    return OpenSearch(start, by_length, lambda sentence: len(sentence.tokens)), model


def counts_down(source, prefix):
    """Make an output of as many tokens as the first token of the source says."""
    row = torch.zeros(5)
    row[EOS if len(prefix) >= source[0] else 3] = 50.0
    return row


def lasting(num_tokens, length=1):
    """Return a sentence of ``length`` tokens whose output has ``num_tokens``."""
    return Sentence((num_tokens,) * length, 60)


@pytest.mark.parametrize("max_tokens", [1, 4, 11, 1000])
def test_sentences_find_the_same_whenever_they_join(max_tokens):
    chance = random.Random(max_tokens)
    table = random_table(7, end_bias=-1.0)
    chosen = settings(BEAM, n_best=2)._replace(token_scores=True)
    sentences = [
        Sentence(tuple(chance.choices(range(9), k=chance.choice([1, 1, 2, 5]))), 3 + n % 20)
        for n in range(40)
    ]
    ongoing, _ = opened(table, max_tokens=max_tokens, chosen=chosen)
    found: dict[int, Any] = {}
    num_offered = 0
    while len(found) < len(sentences):
        arrived = min(len(sentences), num_offered + chance.choice([0, 0, 1, 2, 9]))
        while num_offered < arrived and ongoing.offer(num_offered, sentences[num_offered]):
            num_offered += 1
        if ongoing.num_sentences:
            for done in ongoing.step():
                assert done.sentence is sentences[done.ticket]
                found[done.ticket] = done.found.hypotheses
    assert [found[number] for number in range(40)] == search(table, sentences, chosen)


def test_the_slots_follow_the_number_of_sentences():
    ongoing, model = opened(counts_down)
    assert ongoing.offer("first", lasting(40))
    ongoing.step()
    assert model.num_rows == [BEAM]
    for number in range(10):
        assert ongoing.offer(number, lasting(3))
    ongoing.step()
    assert model.num_rows[-1] == 11 * BEAM
    assert model.num_started == [1, 10]  # encoded together
    tickets = [done.ticket for _ in range(4) for done in ongoing.step()]
    assert sorted(tickets) == list(range(10))
    assert model.num_rows[-1] == BEAM
    while ongoing.num_sentences:
        tickets += [done.ticket for done in ongoing.step()]
    assert tickets[10:] == ["first"]


def test_a_long_sentence_waits_until_few_enough_are_left():
    ongoing, model = opened(counts_down, max_tokens=100)
    for number in range(8):
        assert ongoing.offer(number, lasting(3 + number, length=5))
    ongoing.step()
    num_steps = 1
    while not ongoing.offer("long", lasting(2, length=50)):
        assert ongoing.num_sentences > 1  # with the long one only two fit
        assert len(ongoing.step()) <= 1
        num_steps += 1
    assert ongoing.num_sentences == 2
    ongoing.step()
    assert model.num_rows[-1] == 2 * BEAM


def test_a_long_sentence_that_has_left_does_not_limit_the_others_for_ever():
    ongoing, model = opened(counts_down, max_tokens=100)
    assert ongoing.offer("long", lasting(1, length=50))
    assert ongoing.offer(0, lasting(4, length=5))
    assert not ongoing.offer(1, lasting(9, length=5))
    while ongoing.num_sentences == 2:
        ongoing.step()
    assert ongoing.offer(1, lasting(9, length=5))
    assert not ongoing.offer(2, lasting(1, length=5))
    while ongoing.num_sentences:
        assert not ongoing.offer(2, lasting(1, length=5))  # nobody joins until the search has ended
        ongoing.step()
    assert all(ongoing.offer(number, lasting(1, length=5)) for number in range(2, 22))
    assert not ongoing.offer(22, lasting(1, length=5))
    ongoing.step()
    assert model.num_rows[-1] == 20 * BEAM


def test_a_full_search_is_refilled_by_several_at_a_time():
    ongoing, model = opened(counts_down, max_tokens=64)
    waiting = [lasting(5 + number % 13) for number in range(300)]
    while waiting or ongoing.num_sentences:
        while waiting and ongoing.offer(None, waiting[-1]):
            waiting.pop()
        ongoing.step()
    assert max(model.num_rows) == 64 * BEAM
    assert 300 / len(model.num_started) > 3
    needed = sum(BEAM * (6 + number % 13) for number in range(300))
    assert needed / sum(model.num_rows) > 0.85


def test_cleared_sentences_are_forgotten():
    ongoing, _ = opened(counts_down)
    ongoing.offer("lost", lasting(9))
    ongoing.step()
    ongoing.offer("lost too", lasting(9))
    ongoing.clear()
    assert ongoing.num_sentences == 0
    ongoing.offer("kept", lasting(0))
    assert [done.ticket for done in ongoing.step()] == ["kept"]
