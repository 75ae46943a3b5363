"""Paired tests against all possible samples of tiny texts."""

import os
from functools import cache
from itertools import product

import pytest
import sacrebleu

from nmt_cli.metrics.bleu import bleu_scorer, chrf_scorer, ter_scorer
from nmt_cli.metrics.scorer import Resampling
from nmt_cli.metrics.significance import memory_needed, paired_test

REFERENCE = [
    "the small cat sat on the old mat",
    "a dog barks at the night train",
    "it rains all day in the north",
    "we sell bread and milk and tea",
    "nobody came to the last concert here",
    "seven boats left the harbour before noon",
    "her letter never arrived in the village",
    "snow covers the fields near our house",
]
GOOD = [
    "the small cat sat on an old mat",
    "a dog barks at the night train",
    "it rains all day in that north",
    "we sell bread and milk or tea",
    "nobody came to the last concert here",
    "seven ships left the harbour before noon",
    "her letter never arrived in the village",
    "snow covers the fields near our house",
]
POOR = [
    "the small cat sat on the old mat",
    "one dog barks at the night trains",
    "it rains all the days in north",
    "we sell bread and milk and tea",
    "nobody came to the first concert there",
    "seven boats left that harbour before noon",
    "the letter did not arrive in the village",
    "snow covers all fields near our house",
]
SEED = 12_345


def bleu(lines, reference):
    return sacrebleu.corpus_bleu(lines, [reference], force=True).score


def paired(systems, resampling, scorer=None, references=None):
    named = [(str(place), lines) for place, lines in enumerate(systems)]
    return paired_test(scorer or bleu_scorer(), named, references or [REFERENCE], resampling)


def test_randomization_agrees_with_all_exchanges():
    real = abs(bleu(POOR, REFERENCE) - bleu(GOOD, REFERENCE))
    differences = []
    for exchanged in product([False, True], repeat=len(REFERENCE)):
        one = [b if swap else a for a, b, swap in zip(GOOD, POOR, exchanged, strict=True)]
        other = [a if swap else b for a, b, swap in zip(GOOD, POOR, exchanged, strict=True)]
        differences.append(abs(bleu(one, REFERENCE) - bleu(other, REFERENCE)))
    greater = sum(difference > real + 1e-9 for difference in differences) / len(differences)
    not_less = sum(difference > real - 1e-9 for difference in differences) / len(differences)
    figures = paired([GOOD, POOR], Resampling("randomization", 10_000, SEED)).systems[1]
    assert 0 < greater < 0.5
    assert greater - 0.02 < figures.p_value < not_less + 0.02
    assert figures.difference == pytest.approx(bleu(POOR, REFERENCE) - bleu(GOOD, REFERENCE))
    assert figures.confidence is None


@cache
def bleu_of_sample(drawn):
    """Return BLEU of the good and of the poor system on the segments drawn."""
    good, poor, reference = ([text[i] for i in drawn] for text in (GOOD, POOR, REFERENCE))
    return bleu(good, reference), bleu(poor, reference)


def test_bootstrap_agrees_with_all_samples():
    good, poor, reference = GOOD[:5], POOR[:5], REFERENCE[:5]
    real = abs(bleu(poor, reference) - bleu(good, reference))
    scores, differences = [], []
    for drawn in product(range(5), repeat=5):
        one, other = bleu_of_sample(tuple(sorted(drawn)))
        scores.append(other)
        differences.append(abs(other - one))
    mean = sum(differences) / len(differences)
    expected = sum(difference - mean > real for difference in differences) / len(differences)
    figures = paired(
        [good, poor], Resampling("bootstrap", 5_000, SEED), references=[reference]
    ).systems[1]
    assert 0.01 < expected < 0.5
    assert figures.p_value == pytest.approx(expected, abs=0.02)
    assert figures.bootstrap_mean == pytest.approx(sum(scores) / len(scores), abs=0.5)
    ordered = sorted(scores)
    half_interval = (ordered[-len(scores) // 40] - ordered[len(scores) // 40]) / 2
    assert figures.confidence == pytest.approx(half_interval, rel=0.1)


@pytest.mark.parametrize("method", ["bootstrap", "randomization"])
def test_the_seed_alone_decides(monkeypatch, method):
    first = paired([GOOD, POOR], Resampling(method, 500, 7))
    monkeypatch.setenv("SACREBLEU_SEED", "none")
    assert paired([GOOD, POOR], Resampling(method, 500, 7)) == first
    assert os.environ["SACREBLEU_SEED"] == "none"
    assert paired([GOOD, POOR], Resampling(method, 500, 8)).systems != first.systems
    monkeypatch.delenv("SACREBLEU_SEED")
    assert paired([GOOD, POOR], Resampling(method, 500, 7)) == first
    assert "SACREBLEU_SEED" not in os.environ
    short = {"bootstrap": "bs", "randomization": "ar"}[method]
    assert f"{short}:500|" in first.signature
    assert "seed:7|" in first.signature


@pytest.mark.parametrize("method", ["bootstrap", "randomization"])
def test_equal_output_is_not_significant(method):
    baseline, equal = paired([GOOD, list(GOOD)], Resampling(method, 200, SEED)).systems
    assert (baseline.p_value, baseline.verdict, baseline.difference) == (None, None, 0.0)
    assert (equal.p_value, equal.verdict) == (1.0, "not significant")


@pytest.mark.parametrize("make_scorer", [bleu_scorer, chrf_scorer, ter_scorer])
@pytest.mark.parametrize("method", ["bootstrap", "randomization"])
def test_the_better_system_is_better_in_each_metric(make_scorer, method):
    reference = [f"{line} {number}" for number in range(5) for line in REFERENCE]
    poor = [line.replace("a", "b") for line in reference]
    systems = [reference, poor], [poor, reference]
    verdicts = [
        paired(pair, Resampling(method, 200, SEED), make_scorer(), [reference]).systems[1].verdict
        for pair in systems
    ]
    assert verdicts == ["worse", "better"]


def test_memory_grows_with_samples_and_segments():
    assert memory_needed(Resampling("bootstrap", 1_000, SEED), 3_003) == 1_000 * 3_003 * 80
    assert memory_needed(Resampling("bootstrap", 100, SEED), 10, 2) == 100 * 10 * (8 * 3 * 4 + 8)
