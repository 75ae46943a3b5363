"""Steps that the library makes by itself find what steps find that Python decides."""

from typing import Any

import numpy as np
import pytest
import torch

from nmt_cli.hardware.cpu import num_threads, set_num_threads
from nmt_cli.model.transformer import Transformer
from nmt_cli.search.compiled_model import CompiledTransformer
from nmt_cli.search.search import Search
from nmt_cli.search.sentences import NOT_A_NUMBER, SearchSettings, Sentence, Shortlist
from tests.fake_models import BOS, EOS, packed_model, tiny_recipe

VOCABULARY, BEAM, SLOTS = 300, 4, 5
VARIANTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "pre-norm, window": {"norm": "pre", "attention_window": 5},
    "recurrent": {"decoder": "ssru"},
    "learned positions": {"positions": "learned", "max_positions": 2000},
}


def model_of(library, precision="fp32", change=lambda model: None, **config):
    torch.manual_seed(4)
    model = Transformer(tiny_recipe(model=config).model, VOCABULARY).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(2.0)  # so that hypotheses differ, and some end soon
        change(model)
    return CompiledTransformer(packed_model(model, library, precision))


def sentences_of(rng, number, *, are_listed):
    """Return sentences of all kinds; a shortlist has </s>, and no start mark."""

    def one():
        listed = {EOS, *rng.integers(3, VOCABULARY, int(rng.integers(8, 90))).tolist()}
        return Sentence(
            (*rng.integers(3, VOCABULARY, int(rng.integers(1, 12))).tolist(), EOS),
            int(rng.integers(1, 70)),
            n_best=int(rng.integers(1, 3)),
            beam_size=int(rng.integers(2, BEAM + 1)),
            length_penalty=float(rng.choice([0.0, 0.6, 1.0])),
            shares_beam=bool(rng.integers(2)),
            shortlist=Shortlist(np.array(sorted(listed)), EOS) if are_listed else None,
        )

    return [one() for _ in range(number)]


def found_by(model, sentences, settings, steps, *, is_decided_by_python=False):
    """Search; ``steps()`` returns how many may be made, and how many sentences are enough."""
    search = Search(model, SLOTS, settings)
    search._all_are_restricted = is_decided_by_python
    waiting, found = list(enumerate(sentences)), {}
    inside = dict[int, int]()
    while waiting or inside:
        joining, waiting = waiting[: SLOTS - len(inside)], waiting[SLOTS - len(inside) :]
        numbers = search.admit(search.prepare([sentence for _, sentence in joining]))
        inside |= zip(numbers, (place for place, _ in joining), strict=True)
        for number, outcome in search.step(*steps()):
            found[inside.pop(number)] = outcome
    return found


@pytest.mark.parametrize("are_listed", [False, True])
@pytest.mark.parametrize("name", VARIANTS)
def test_many_steps_at_once_find_what_single_steps_find(library, name, are_listed):
    rng = np.random.default_rng(len(name))
    sentences = sentences_of(rng, 30, are_listed=are_listed)
    settings = SearchSettings(BEAM, 0.6, 2, BOS, EOS, token_scores=True)
    model = model_of(library, **VARIANTS[name])
    expected = found_by(model, sentences, settings, lambda: (), is_decided_by_python=True)
    assert len({hypotheses[0].tokens for hypotheses in expected.values()}) > 20
    assert max(len(hypotheses[0].tokens) for hypotheses in expected.values()) > 40
    for steps in (
        lambda: (1, 1),
        lambda: (100, SLOTS),
        lambda: tuple(rng.integers(1, [20, SLOTS]).tolist()),
    ):
        assert found_by(model, sentences, settings, steps) == expected


@pytest.mark.parametrize("precision", ["int8", "bf16"])
@pytest.mark.parametrize("are_listed", [False, True])
def test_that_holds_at_each_precision_and_with_two_threads(library, precision, are_listed):
    if precision == "bf16" and not library.has_bf16:
        pytest.skip("the CPU has no instructions for bf16")
    sentences = sentences_of(np.random.default_rng(1), 20, are_listed=are_listed)
    settings = SearchSettings(BEAM, 1.0, 1, BOS, EOS)
    model = model_of(library, precision, d_model=160, d_ff=320)
    before = num_threads()
    set_num_threads(2)
    try:
        expected = found_by(model, sentences, settings, lambda: (), is_decided_by_python=True)
        assert found_by(model, sentences, settings, lambda: (16, 2)) == expected
    finally:
        set_num_threads(before)


@pytest.mark.parametrize("most", [1, 16])
def test_a_sentence_without_numbers_fails_alone(library, most):
    bad = 7

    def change(model):
        model.source_embedding.weight[bad] = torch.nan

    model = model_of(library, change=change, tied_embeddings="none")
    sentences = sentences_of(np.random.default_rng(2), 12, are_listed=False)
    sentences = [
        each._replace(tokens=tuple(t + (t == bad) for t in each.tokens)) for each in sentences
    ]
    settings = SearchSettings(BEAM, 0.6, 1, BOS, EOS)
    expected = found_by(model, sentences, settings, lambda: (), is_decided_by_python=True)
    with_bad = [*sentences, sentences[3]._replace(tokens=(bad, EOS)), sentences[5]]
    found = found_by(model, with_bad, settings, lambda: (most, 1))
    assert found[12] == NOT_A_NUMBER
    assert found[13] == expected[5]
    assert {place: found[place] for place in expected} == expected


@pytest.mark.parametrize("most", [1, 16])
def test_sentences_fail_at_the_step_that_has_no_numbers(library, most):
    def change(model):
        model.target_embedding.positions.weight[9] = torch.nan

    model = model_of(library, change=change, positions="learned", max_positions=2000)
    sentences = sentences_of(np.random.default_rng(3), 25, are_listed=False)
    settings = SearchSettings(BEAM, 0.6, 1, BOS, EOS)
    expected = found_by(model, sentences, settings, lambda: (), is_decided_by_python=True)
    failed = [outcome == NOT_A_NUMBER for outcome in expected.values()]
    assert 3 < sum(failed) < 22
    assert found_by(model, sentences, settings, lambda: (most, 1)) == expected
