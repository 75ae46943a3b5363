"""Beam search over tables, against exhaustive search and a plain search of one sentence."""

import math
import random
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch

from nmt_cli.search.beams import length_penalty
from nmt_cli.search.logits import Permitted
from nmt_cli.search.search import Search
from nmt_cli.search.sentences import NOT_A_NUMBER, Done, SearchSettings, Sentence
from tests.fake_models import BOS, EOS, TableModel
from tests.table_search import (
    beam_search,
    log_probabilities,
    log_probability,
    random_table,
    search,
    settings,
)

pytestmark = pytest.mark.usefixtures("searched_by")


def score_of(log_probability, num_tokens, alpha):
    return log_probability / ((5 + num_tokens) / 6) ** alpha


def exhaustive_search(logits, source, vocabulary_size, longest, alpha):
    """Return (score, tokens) of every possible output, best first."""
    outputs = []
    words = [token for token in range(vocabulary_size) if token not in (BOS, EOS)]
    for length in range(longest + 1):
        for tokens in product(words, repeat=length):
            total = log_probability(logits, source, tokens)
            outputs.append((score_of(total, length + 1, alpha), tokens))
    return sorted(outputs, reverse=True)


def plain_beam_search(logits, sentence, settings):
    """Return (score, tokens) as found without slots, tensors, or a bound to stop early."""
    source, longest = tuple(sentence.tokens), sentence.longest_output
    live: list[Any] = [(0.0, ())]
    ended: list[Any] = []
    for length in range(longest + 1):
        candidates = []
        for total, prefix in live:
            for token, value in enumerate(log_probabilities(logits, source, prefix)):
                if token != BOS and (token == EOS or length < longest):
                    candidates.append((total + value, (*prefix, token)))
        candidates.sort(reverse=True)
        for total, tokens in candidates[: settings.beam_size]:
            if tokens[-1] == EOS:
                ended.append((score_of(total, length + 1, settings.length_penalty), tokens[:-1]))
        live = [entry for entry in candidates if entry[1][-1] != EOS][: settings.beam_size]
        if len(ended) >= settings.beam_size and live:
            to_beat = sorted(ended, reverse=True)[settings.n_best - 1][0]
            if score_of(live[0][0], length + 1, settings.length_penalty) <= to_beat:
                break
    return sorted(ended, reverse=True)[: settings.n_best]


def assert_same(hypotheses, expected):
    assert [hypothesis.tokens for hypothesis in hypotheses] == [tokens for _, tokens in expected]
    scores = [hypothesis.score for hypothesis in hypotheses]
    assert scores == pytest.approx([score for score, _ in expected], abs=1e-4)


@pytest.mark.parametrize("alpha", [0.0, 0.6, 1.0])
@pytest.mark.parametrize(("vocabulary_size", "longest"), [(4, 4), (5, 3), (3, 6)])
@pytest.mark.parametrize("seed", [1, 2])
def test_a_beam_as_wide_as_the_space_finds_what_exhaustive_search_finds(
    vocabulary_size, longest, alpha, seed
):
    logits = random_table(vocabulary_size)
    everything = exhaustive_search(logits, (seed,), vocabulary_size, longest, alpha)
    beam_size = len(everything)
    sentences = [Sentence((seed,), longest)]
    for n_best in (1, 3, beam_size):
        (hypotheses,) = search(logits, sentences, settings(beam_size, alpha, n_best))
        assert_same(hypotheses, everything[:n_best])


def test_beam_one_is_greedy():
    logits = random_table(11)
    sentences = [Sentence((n,), longest) for n, longest in enumerate([0, 1, 3, 9, 9, 9, 20])]
    for sentence, (hypothesis,) in zip(
        sentences, search(logits, sentences, settings(1)), strict=True
    ):
        prefix: tuple[int, ...] = ()
        while True:
            values = log_probabilities(logits, tuple(sentence.tokens), prefix)
            values[BOS] = -math.inf
            token = values.index(max(values))
            if token == EOS or len(prefix) == sentence.longest_output:
                break
            prefix = (*prefix, token)
        assert hypothesis.tokens == prefix


@pytest.mark.parametrize("alpha", [0.0, 0.6, 1.0, 3.0])
@pytest.mark.parametrize("beam_size", [1, 2, 5])
def test_stopping_early_and_sharing_slots_change_nothing(beam_size, alpha):
    rng = random.Random(beam_size)
    sentences = [Sentence((n, rng.randrange(1000)), rng.randrange(12)) for n in range(9)]
    for end_bias in (-1.0, 1.0):
        logits = random_table(9, end_bias=end_bias)
        chosen = settings(beam_size, alpha, n_best=max(1, beam_size - 1))
        expected = [plain_beam_search(logits, sentence, chosen) for sentence in sentences]
        for num_slots in (1, 4, 8, 9, 20):
            for hypotheses, plain in zip(
                search(logits, sentences, chosen, num_slots), expected, strict=True
            ):
                assert_same(hypotheses, plain)


def test_no_output_is_longer_than_allowed_and_the_end_is_paid_for():
    def endless(source, prefix):
        return torch.tensor([0.0, 5.0, -20.0, 1.0, 2.0])

    sentences = [Sentence((n,), n) for n in (0, 1, 7)]
    row = endless((), ()).double().log_softmax(dim=0)
    for length, (best, *_) in zip(
        (0, 1, 7), search(endless, sentences, settings(2, n_best=2)), strict=True
    ):
        assert best.tokens == (4,) * length
        expected = length * row[4] + row[EOS]
        assert best.log_probability == pytest.approx(expected.item(), abs=1e-4)


def test_poor_outputs_that_end_early_do_not_crowd_out_the_good_one():
    def sure(source, prefix):
        row = torch.zeros(300)
        row[source[len(prefix)]] = 9.0  # of the others, all equal, </s> is among the first
        return row

    sentence = Sentence((17, 18, 19, 20, 21, 22, 23, EOS), 20)
    ((best,),) = search(sure, [sentence], settings(4))
    assert best.tokens == sentence.tokens[:-1]


def test_the_start_mark_is_never_output_unless_it_is_the_end_mark_too():
    def likes_to_start(source, prefix):
        return torch.tensor([0.0, 9.0, 1.0])

    ((hypothesis,),) = search(likes_to_start, [Sentence((1,), 4)], settings(2))
    assert BOS not in hypothesis.tokens
    one_mark = SearchSettings(2, 0.6, 1, BOS, BOS)  # models without <s> start with </s>
    ((hypothesis,),) = search(likes_to_start, [Sentence((1,), 4)], one_mark)
    assert hypothesis.tokens == ()


def test_equals_go_to_the_lower_ids_wherever_the_sentence_stands():
    def undecided(source, prefix):
        row = torch.zeros(200)
        row[EOS] = 1.0 if len(prefix) == source[0] else -9.0
        return row

    sentences = [Sentence((n % 5,), 9) for n in range(20)]
    for num_slots in (1, 7, 20):
        for n, (best, *_) in enumerate(search(undecided, sentences, settings(3), num_slots)):
            assert best.tokens == (0,) * (n % 5)


def test_what_is_not_a_number_fails_its_own_sentence_only():
    table = random_table(5, end_bias=-4.0)

    def broken(source, prefix):
        is_broken = source[0] == 2 and len(prefix) == 1
        return torch.full((5,), torch.nan) if is_broken else table(source, prefix)

    sentences = [Sentence((n,), 6) for n in range(5)]
    found = sorted(beam_search(TableModel(broken), sentences, 5, settings(2)))
    assert found[2].error == "the model's output is not a number"
    assert found[2].hypotheses == ()
    expected = search(table, sentences, settings(2))
    for n in (0, 1, 3, 4):
        assert found[n].error is None
        assert found[n].hypotheses == expected[n]


def test_a_first_token_that_is_not_a_number_fails_its_own_sentence_only(monkeypatch):
    table = random_table(5, end_bias=-4.0)

    def broken(source, prefix):
        return torch.full((5,), torch.nan) if source[0] in (1, 2) else table(source, prefix)

    sentences = [Sentence((n,), 6) for n in (0, 1, 3, 2)]
    model = TableModel(broken)
    forgotten: list[int] = []
    monkeypatch.setattr(model, "forget", forgotten.extend)
    found = sorted(beam_search(model, sentences, 4, settings(2)))
    assert forgotten == [1, 3]
    expected = search(table, [sentences[0], sentences[2]], settings(2))
    assert [each.error for each in found] == [None, NOT_A_NUMBER.reason, None, NOT_A_NUMBER.reason]
    assert [found[0].hypotheses, found[2].hypotheses] == expected


@pytest.mark.parametrize("num_slots", [1, 3, 8])
def test_sentences_that_end_at_once_are_found_without_a_step(num_slots):
    model = TableModel(random_table(6))
    sentences = [Sentence((n,), 0) for n in range(8)]
    found = sorted(beam_search(model, sentences, num_slots, settings(3)))
    assert [each.hypotheses[0].tokens for each in found] == [()] * 8
    assert model.num_rows == []


def test_a_beam_that_is_wider_than_the_vocabulary_has_few_hypotheses_at_first():
    table = random_table(4, end_bias=-3.0)  # two tokens and the two marks
    chosen = settings(6, n_best=6)
    sentences = [Sentence((n,), 5) for n in range(4)]
    for sentence, hypotheses in zip(sentences, search(table, sentences, chosen), strict=True):
        assert_same(hypotheses, plain_beam_search(table, sentence, chosen))


def test_slots_may_be_dropped_and_added_between_admission_and_the_first_step():
    table = random_table(6, end_bias=-2.0)
    sentences = [Sentence((n,), 2 + n) for n in range(6)]
    expected = search(table, sentences, settings(2))
    ongoing = Search(TableModel(table), 5, settings(2))
    ongoing.admit(ongoing.prepare(sentences[:3]))
    found: list[Done] = []
    while len(found) < 2:  # the slots of the short ones are free now
        found += ongoing.step()
    ongoing.admit(ongoing.prepare(sentences[3:4]))
    ongoing.drop_free_slots()
    assert ongoing.num_slots == 2
    ongoing.add_slots(2, 5)
    ongoing.admit(ongoing.prepare(sentences[4:]))
    while ongoing.is_busy:
        found += ongoing.step()
    assert [hypotheses for _, hypotheses in sorted(found)] == expected


def test_sentences_may_be_admitted_at_any_time():
    sentences = [Sentence((n,), 3 + n % 4) for n in range(9)]
    expected = search(random_table(6), sentences, settings(3, n_best=2))
    model = TableModel(random_table(6))
    ongoing = Search(model, 4, settings(3, n_best=2))
    assert not ongoing.is_busy
    waiting, found = list(sentences), []
    for step in range(100):
        if step % 3 == 0:  # requests arrive now and then
            busy_before = ongoing._beams.num_busy
            num_newcomers = min(2, 4 - busy_before)
            newcomers, waiting = waiting[:num_newcomers], waiting[num_newcomers:]
            numbers = ongoing.admit(ongoing.prepare(newcomers))
            assert numbers == [sentences.index(newcomer) for newcomer in newcomers]
            assert ongoing._beams.num_busy == busy_before + len(newcomers)
        found += ongoing.step()
    assert not waiting
    assert not ongoing.is_busy
    assert [hypotheses for _, hypotheses in sorted(found)] == expected


def test_a_sentence_may_have_another_number_of_hypotheses_than_its_neighbours():
    table = random_table(6)
    for alpha in (0.0, 1.0):
        sentences = [Sentence((n,), 3 + n % 4, n_best=(None, 1, 2, 4)[n % 4]) for n in range(16)]
        found = search(table, sentences, settings(4, alpha, 3), 5)
        for sentence, hypotheses in zip(sentences, found, strict=True):
            n_best = sentence.n_best or 3
            alone = sentence._replace(n_best=None)
            assert hypotheses == search(table, [alone], settings(4, alpha, n_best))[0]
            assert len(hypotheses) == n_best


@pytest.mark.parametrize("num_slots", [1, 5, 24])
def test_a_sentence_may_have_its_own_beam_size_and_length_penalty(num_slots):
    table = random_table(6, end_bias=-1.0)
    sentences = [
        Sentence(
            (n,),
            3 + n % 9,
            n_best=1 + n % 2 if n % 4 else 1,
            beam_size=(1, 2, 3, None)[n % 4],
            length_penalty=(None, 0.0, 1.5)[n % 3],
        )
        for n in range(24)
    ]
    found = search(table, sentences, settings(5), num_slots)
    for sentence, hypotheses in zip(sentences, found, strict=True):
        alpha = 0.6 if sentence.length_penalty is None else sentence.length_penalty
        own = settings(sentence.beam_size or 5, alpha)
        alone = sentence._replace(beam_size=None, length_penalty=None)
        assert hypotheses == search(table, [alone], own)[0]


def test_more_sentences_than_free_slots_are_refused():
    ongoing = Search(TableModel(random_table(5)), 2, settings(1))
    prepared = ongoing.prepare([Sentence((1,), 4)] * 3)
    ongoing.admit(prepared[:1])
    with pytest.raises(AssertionError, match="no free slots"):
        ongoing.admit(prepared[1:])


class ForcedStart:
    """A rule with data of each sentence: outputs begin with these tokens."""

    name, needs_data = "forced_start", True

    def __init__(self):
        self.seen = []

    def restriction(self, states):
        rows, following = list[int](), list[int]()
        for slot, tokens in states.data.items():
            length = states.lengths[slot]
            best = states.prefixes[slot, 0, :length].tolist()
            self.seen.append((tuple(tokens), tuple(best)))
            if length < len(tokens):
                rows += range(slot * states.beam_size, (slot + 1) * states.beam_size)
                following += [tokens[length]] * states.beam_size
        return Permitted.one_each(np.array(rows), np.array(following))


def test_rules_read_prefixes_and_what_a_sentence_brings_for_them():
    forced = {1: (4, 3), 5: (3, 3, 3), 6: (5,)}
    table = random_table(6)
    sentences = [
        Sentence((n,), 8, {"forced_start": forced[n]} if n in forced else {}) for n in range(8)
    ]
    rule = ForcedStart()
    ongoing = Search(TableModel(table), 3, settings(2), [rule])
    waiting, found = list(sentences), []
    while waiting or ongoing.is_busy:
        num_free = ongoing.num_slots - ongoing._beams.num_busy
        newcomers, waiting = waiting[:num_free], waiting[num_free:]
        ongoing.admit(ongoing.prepare(newcomers))
        found += ongoing.step()
        if not waiting and ongoing.is_busy:
            ongoing.drop_free_slots()
    free = search(table, sentences, settings(2))
    for number, hypotheses in found:
        assert isinstance(hypotheses, tuple)
        tokens = hypotheses[0].tokens
        if number not in forced:
            assert hypotheses == free[number]
            continue
        start = forced[number]
        assert tokens[: len(start)] == start
        # Forbidding does not change the probability of what is allowed.
        total = log_probability(table, (number,), tokens)
        assert hypotheses[0].log_probability == pytest.approx(total, abs=1e-4)
    for start, prefix in rule.seen:
        assert prefix[: len(start)] == start[: len(prefix)]
    assert max(len(prefix) for _, prefix in rule.seen) > 3


def test_impossible_sentences_have_no_hypotheses():
    def impossible(source, prefix):
        return torch.tensor([0.0, 0.0, -torch.inf, 0.0])

    assert search(impossible, [Sentence((1,), 2)], settings(2)) == [()]


def test_nothing_to_translate():
    assert search(random_table(5), [], settings(2)) == []


@pytest.mark.parametrize("beam_size", [1, 4])
def test_the_scores_of_tokens_are_those_of_the_model(beam_size):
    table = random_table(7, end_bias=-4.0)
    sentences = [Sentence((n,), 3 + 5 * n) for n in range(9)]  # longer than the arrays at first
    asked = settings(beam_size, n_best=beam_size)._replace(token_scores=True)
    found = search(table, sentences, asked)
    for sentence, hypotheses in zip(sentences, found, strict=True):
        for hypothesis in hypotheses:
            tokens, scores = hypothesis.tokens, hypothesis.token_scores
            expected = [
                log_probabilities(table, sentence.tokens, tokens[:place])[token]
                for place, token in enumerate((*tokens, EOS))
            ]
            assert scores == pytest.approx(expected, abs=1e-4)
            assert sum(scores) == pytest.approx(hypothesis.log_probability, abs=1e-6)
    assert max(len(hypotheses[0].tokens) for hypotheses in found) > 32
    plain = search(table, sentences, asked._replace(token_scores=False))
    without = [[each._replace(token_scores=()) for each in hypotheses] for hypotheses in found]
    assert [list(hypotheses) for hypotheses in plain] == without


def test_rows_stay_busy_and_sentences_start_together():
    def counts_down(source, prefix):
        row = torch.zeros(5)
        row[EOS if len(prefix) >= source[0] else 3] = 50.0
        return row

    lengths = sorted((random.Random(n).randrange(1, 40) for n in range(200)), reverse=True)
    model = TableModel(counts_down)
    sentences = [Sentence((length,), 60) for length in lengths]
    found = list(beam_search(model, sentences, 32, settings(2)))
    assert len(found) == 200
    needed = sum(2 * (length + 1) for length in lengths)
    assert needed / sum(model.num_rows) > 0.85
    assert 200 / len(model.num_started) > 2


def test_sentences_are_read_only_when_a_slot_is_free():
    read = []

    def sentences():
        for number in range(100):
            read.append(number)
            yield Sentence((number,), 5)

    found = beam_search(TableModel(random_table(5)), sentences(), 4, settings(2))
    next(found)
    assert len(read) < 10


def test_length_penalty_is_the_one_of_gnmt():
    assert length_penalty(1, 0.6) == 1.0
    assert length_penalty(7, 1.0) == 2.0
    assert length_penalty(7, 0.5) == pytest.approx(math.sqrt(2))
    assert length_penalty(99, 0.0) == 1.0
