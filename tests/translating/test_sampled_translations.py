"""Sampled translations of lines, with a real model that has not learnt."""

import math
from collections import Counter

import pytest
from sacrebleu.metrics.chrf import CHRF

from nmt_cli.messages.errors import UserError
from nmt_cli.model.compiled.layers import CompiledLayers
from nmt_cli.search.sentences import Sampling
from nmt_cli.translating.interface import request as request_module
from nmt_cli.translating.interface.request import Request
from tests import fake_models
from tests.fake_models import tiny_recipe

WORDS = ["ant", "bee", "cat", "dog", "eel", "fox", "gnu", "hen"]
LINES = ["cat dog", "", "fox", "eel ant hen", "cat dog", "gnu"]
SAMPLING = Sampling()


def untrained(max_length=100, **options):
    recipe = tiny_recipe(
        data={"max_length": max_length},
        model={"num_layers": 1, "d_model": 8, "num_heads": 2, "d_ff": 8},
    )
    return fake_models.untrained(WORDS, recipe, **options)


def drawn(lines, sampling=SAMPLING, **options):
    """Return the texts of each line, in the order drawn."""
    translations = untrained(sampling=sampling, **options).translate(lines)
    return [[each.text, *(other.text for other in each.alternatives)] for each in translations]


def test_lines_are_drawn_by_seed_and_number_in_any_company(monkeypatch):
    expected = drawn(LINES, n_best=3)
    assert expected[1] == [""]
    assert expected[0] != expected[4]  # the same text at another place
    assert all(len(set(texts)) > 1 for texts in expected if texts != [""])
    assert drawn(LINES, n_best=3, max_tokens_per_device=1) == expected
    assert drawn(LINES, n_best=2) == [texts[:2] for texts in expected]
    places = [Request(line, line=number) for number, line in enumerate(LINES, start=1)]
    assert drawn(places[::-1], n_best=3)[::-1] == expected
    assert drawn(LINES, Sampling(seed=2), n_best=3) != expected
    monkeypatch.setattr(request_module, "WINDOW_LINES", 2)
    assert drawn(LINES, n_best=3) == expected


def test_the_score_is_that_of_the_text_in_beam_search():
    wide = untrained(beam_size=600, n_best=600, max_extra_length=1)
    (best,) = wide.translate(["cat"])
    scores = {each.tokens: each.score for each in (best, *best.alternatives)}
    sampled = untrained(sampling=Sampling(0.5), n_best=20, max_extra_length=1)
    (translation,) = sampled.translate(["cat"])
    samples = [translation, *translation.alternatives]
    assert len(samples) == 20
    for sample in samples:
        assert sample.score == pytest.approx(scores[sample.tokens], abs=1e-4)


def agreement(texts, weights):
    """Return the expected chrF2 of each text."""
    return [
        sum(w * CHRF().sentence_score(text, [r]).score for w, r in zip(weights, texts, strict=True))
        for text in texts
    ]


def test_the_sample_that_agrees_most_with_the_others_is_first():
    plain, ranked = drawn(LINES, n_best=7), drawn(LINES, n_best=7, choose="mbr")
    assert ranked != plain
    for line, texts, chosen in zip(LINES, plain, ranked, strict=True):
        assert sorted(chosen) == sorted(texts)
        expected = agreement(chosen, [1.0] * len(chosen))
        assert expected == pytest.approx(sorted(expected, reverse=True)), line
    asked = [Request(line, choose="mbr") for line in LINES]
    assert drawn(asked, n_best=7) == ranked


def test_hypotheses_count_as_much_as_they_are_probable():
    options = {"beam_size": 6, "n_best": 6}
    (plain,), (chosen,) = (
        list(untrained(**options, choose=choose).translate(["cat dog fox"]))
        for choose in (None, "mbr")
    )
    assert {each.tokens for each in chosen.ranked} == {each.tokens for each in plain.ranked}
    assert len(chosen.ranked) == len(plain.ranked) == 6
    texts = [each.text for each in chosen.ranked]
    expected = agreement(texts, [math.exp(each.log_probability) for each in chosen.ranked])
    assert expected == pytest.approx(sorted(expected, reverse=True))
    (asked,) = untrained(**options, choose="mbr").translate(
        [Request("cat dog fox", choose="score")]
    )
    assert asked == plain


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (Request("cat", choose="mbr", n_best=1), "choose mbr compares several translations"),
        (Request("cat", choose="best"), "choose must be score or mbr, but is best"),  # type: ignore[arg-type]
    ],
)
def test_a_line_that_cannot_choose_fails(line, reason):
    (found,) = untrained(n_best=2).translate([line])
    assert reason in found.error


def test_the_parts_of_a_long_line_are_drawn_apart():
    line = "cat dog eel fox " * 4
    (translation,) = untrained(max_length=4, sampling=Sampling(), n_best=3).translate([line])
    assert translation.num_parts == 4
    assert len(translation.alternatives) == 2
    parts = untrained(sampling=Sampling(), n_best=3).translate(["cat dog eel fox"] * 9)
    starts = Counter(part.text[:3] for part in parts)
    assert len(starts) > 1


def test_sampling_has_no_beam():
    with pytest.raises(UserError, match="--beam-size is not for --sample, which draws --n-best"):
        untrained(sampling=Sampling(), beam_size=4)
    with pytest.raises(UserError, match="--temperature must be more than 0"):
        untrained(sampling=Sampling(temperature=-1.0))


@pytest.mark.parametrize("options", [{"sampling": Sampling(), "n_best": 7}, {}])
@pytest.mark.usefixtures("library")
def test_equal_sentences_are_encoded_once(monkeypatch, options):
    encode, encoded = CompiledLayers.encode, list[int]()

    def counting(layers, sentences):
        encoded.append(len(sentences.lengths))
        return encode(layers, sentences)

    monkeypatch.setattr(CompiledLayers, "encode", counting)
    found = list(untrained(**options).translate(["cat dog", "eel", "cat dog"]))
    assert sum(encoded) == 2
    assert (found[0].text == found[2].text) == (not options)
