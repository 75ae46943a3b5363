"""Beams that are shared between banks, against all outputs that meet the constraints."""

from itertools import product
from typing import Any

import numpy as np
import pytest
import torch

from nmt_cli.search.beams import length_penalty
from nmt_cli.search.constrained_candidates import ConstrainedCandidates, _order_of_turns
from nmt_cli.search.rules.phrases import REQUIRED, PhraseForm, RequiredPhrases
from nmt_cli.search.sentences import Sentence
from tests.fake_models import EOS
from tests.table_search import log_probability, random_table, search, settings

pytestmark = pytest.mark.usefixtures("searched_by")

X, A, B, S = 0, 3, 4, 5  # S continues the word of the piece before
CONTINUING = np.array([piece == S for piece in range(6)])
LONGEST = 4
OUTPUTS = [out for length in range(LONGEST + 1) for out in product([X, A, B, S], repeat=length)]


def text(*ids):
    return PhraseForm(ids, is_text=True)


def pieces(*ids):
    return PhraseForm(ids)


def is_met(constraint, output):
    """Return what the constraint means, by the words of its documentation."""
    for ids, is_text in constraint:
        for end in range(len(ids), len(output) + 1):
            goes_on = end < len(output) and output[end] == S
            if output[end - len(ids) : end] == ids and not (is_text and goes_on):
                return True
    return False


def asking(constraints, source=(3, 4), longest=LONGEST, limited=None, **options):
    phrases = RequiredPhrases(constraints, CONTINUING, limited or {})
    required = {REQUIRED: phrases} if constraints or limited else {}
    return Sentence(source, longest, required, shares_beam=bool(required), **options)


def searched(sentences, beam_size, num_slots=3, table=None, **options):
    choice = ConstrainedCandidates(2 * beam_size, EOS)
    table = random_table(6) if table is None else table
    return search(table, sentences, settings(beam_size, **options), num_slots, (), choice)


CASES: list[Any] = [
    [(text(A),)],
    [(pieces(A),)],
    [(text(A, B),), (text(X),)],
    [(text(A), text(B, X))],
    [(text(A, S), pieces(X, X, X)), (text(B),)],
    [(text(A, B),), (text(B, X), text(X, A)), (pieces(X),)],
    [(text(A, A),), (text(A),), (pieces(A, A, A),)],
    [(text(A, B, X),), (text(B, X, X),)],
    [(pieces(S),), (text(X),)],
]


@pytest.mark.parametrize("constraints", CASES)
def test_a_wide_beam_finds_the_best_of_all_outputs_that_meet_the_constraints(constraints):
    table = random_table(6)
    for source in [(3,), (4, 3)]:
        scores = {
            out: log_probability(table, source, out) / length_penalty(len(out) + 1, 0.6)
            for out in OUTPUTS
            if all(is_met(each, out) for each in constraints)
        }
        ranked = sorted(scores, key=lambda out: -scores[out])
        assert 0 < len(ranked) < len(OUTPUTS)
        (found,) = searched([asking(constraints, source, n_best=3)], len(OUTPUTS))
        assert [each.tokens for each in found] == ranked[:3]
        assert found[0].score == pytest.approx(scores[ranked[0]], abs=1e-4)


def is_met_within(constraint, output, least, most):
    """Return what limits of a constraint mean: the most holds at each place, whatever follows."""
    num_met = 0
    for end in range(1, len(output) + 1):
        ended = [
            is_text for ids, is_text in constraint if output[max(0, end - len(ids)) : end] == ids
        ]
        if num_met + bool(ended) > most:
            return False
        goes_on = end < len(output) and output[end] == S
        num_met += bool(ended) and not (goes_on and all(ended))
    return num_met >= least


@pytest.mark.parametrize(
    "limited",
    [
        {(text(A),): (1, 1)},
        {(text(A),): (2, 2)},
        {(pieces(A), pieces(X, A)): (1, 1), (text(B),): (2, 2)},
        {(text(A, B),): (1, 1), (text(B),): (2, 2)},
        {(text(A),): (1, 2), (pieces(A, S),): (1, 1)},
    ],
    ids=str,
)
def test_the_best_output_that_has_phrases_a_number_of_times(limited):
    table = random_table(6)
    scores = {
        out: log_probability(table, (4, 3), out) / length_penalty(len(out) + 1, 0.6)
        for out in OUTPUTS
        if is_met((text(X), text(A)), out)
        and all(is_met_within(each, out, *limits) for each, limits in limited.items())
    }
    ranked = sorted(scores, key=lambda out: -scores[out])
    assert 0 < len(ranked) < len(OUTPUTS)
    asked = asking([(text(X), text(A))], (4, 3), limited=limited, n_best=3)
    (found,) = searched([asked], len(OUTPUTS))
    assert [each.tokens for each in found] == ranked[:3]
    for beam_size in (1, 2, 4):
        ((best,),) = searched([asking([], (4, 3), 30, limited)], beam_size)
        assert all(is_met_within(each, best.tokens, *limits) for each, limits in limited.items())


@pytest.mark.parametrize("beam_size", [1, 2, 3, 7])
def test_constraints_are_met_whatever_the_beam(beam_size):
    table = random_table(6)

    def logits(source, prefix):
        assert all(0 <= token < 6 for token in prefix), "no model has this token"
        return table(source, prefix)

    for longest in (4, 5, 30):
        sentences = [asking(each, (n,), longest) for n, each in enumerate(CASES)]
        found = searched(sentences, beam_size, table=logits)
        for constraints, (best, *_) in zip(CASES, found, strict=True):
            assert all(is_met(each, best.tokens) for each in constraints)
            assert len(best.tokens) <= longest


def test_sentences_get_what_they_get_alone_beside_others_and_in_wider_searches():
    """Some have constraints; some have a smaller beam than the search."""
    sentences = [
        asking(constraints, (n, 3), 4 + n % 3, beam_size=beam_size)
        for n, constraints in enumerate([[], *CASES, []])
        for beam_size in (None, 1, 3)
    ]
    together = searched(sentences, 5, num_slots=7)
    for sentence, found in zip(sentences, together, strict=True):
        own = 5 if sentence.beam_size is None else sentence.beam_size
        assert searched([sentence], own, num_slots=1) == [found]


def test_the_nearest_bank_gets_two_places_in_each_turn_and_what_is_impossible_none():
    totals = np.array([[-1.0, -2.0, -3.0, -4.0, -5.0, -6.0, -7.0, -np.inf, -np.inf]])
    banks = np.array([[2, 2, 1, 1, 1, 3, 2, 0, 1]])
    impossible, last = np.array([8]), np.array([6])
    assert _order_of_turns(totals, banks, impossible).tolist() == [[2, 3, 0, 5, 4, 1, 6, 7, 8]]
    assert _order_of_turns(totals, banks, last).tolist() == [[6, 2, 3, 0, 5, 4, 1, 7, 8]]
    # The better of the two is first, wherever it stands.
    backwards = _order_of_turns(totals[:, ::-1], banks[:, ::-1], np.array([0]))
    assert backwards.tolist() == [[6, 5, 8, 3, 4, 7, 2, 0, 1]]


def test_a_line_ends_where_many_tokens_are_always_likelier_than_the_end():
    """Behind an unlikely phrase a model may repeat itself for as long as there is room."""
    vocabulary_size, beam_size, longest = 40, 5, 50

    def logits(source, prefix):
        row = torch.zeros(vocabulary_size)
        row[EOS] = -1.0
        return row

    phrases = RequiredPhrases([(text(A, B),)], np.zeros(vocabulary_size, np.bool_), {})
    sentence = Sentence((3, 4), longest, {REQUIRED: phrases}, shares_beam=True)
    ((best,),) = searched([sentence], beam_size, table=logits)
    # The more pieces, the less likely: log-probabilities fall faster than the penalty grows.
    scores = [
        log_probability(logits, (3, 4), each) / length_penalty(len(each) + 1, 0.6)
        for each in [(A, B), (A, B, X), (A, B, *[X] * (longest - 2))]
    ]
    assert scores == sorted(scores, reverse=True)
    assert best.tokens == (A, B)


def test_a_phrase_in_the_middle_is_found_although_it_is_unlikely_at_first():
    """Only after A and B does the phrase X X cost little, and only then the end is likely."""

    def logits(source, prefix):
        row = random_table(6)(source, prefix).clone()
        row[:] = 0.0
        row[[A, B, X, EOS][min(len(prefix), 3)]] = 9.0
        if prefix == (A, B):
            row[X] = 5.0
        if prefix == (A, B, X):
            row[X] = 5.0
        return row

    ((best,),) = searched([asking([(text(X, X),)], longest=30)], 3, table=logits)
    assert best.tokens == (A, B, X, X)
