"""Searches with shortlists: over tables against brute force, and by each form of a model."""

import math
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from nmt_cli.corpus.lexicon import Lexicon
from nmt_cli.messages.errors import UserError
from nmt_cli.model.compiled.c_library import Library
from nmt_cli.model.compiled.layers import CompiledLayers
from nmt_cli.search.compiled_logits import CompiledLogits
from nmt_cli.search.engine import Ensemble
from nmt_cli.search.loading import load_models
from nmt_cli.search.rules.phrases import FORCED_PREFIX, REQUIRED, PhraseForm, RequiredPhrases
from nmt_cli.search.sentences import Sampling, SearchSettings, Sentence, Shortlist
from nmt_cli.search.shortlist import Shortlists
from nmt_cli.translating.interface.options import Constraints
from nmt_cli.translating.interface.request import Request
from nmt_cli.translating.translator import Translator
from tests.architectures import random_model
from tests.fake_models import BOS, EOS, TableModel
from tests.levels import LEVELS_HERE
from tests.model.test_packed_model import PRECISIONS, packed_at
from tests.table_search import beam_search, log_probability, random_table, search, settings

FORMAT_2 = Path(__file__).parents[1] / "formats/format_2/whitespace/run/average"
LINES = (Path(__file__).parents[1] / "formats/text/train.en").read_text().splitlines()[:15]
SIZE = 9


def listed(logits, tokens):
    """Return a table in which only ``tokens`` have a probability."""

    def of_list(source, prefix):
        row = torch.full((SIZE,), -math.inf)
        row[tokens] = logits(source, prefix)[tokens]
        return row

    return of_list


@pytest.mark.usefixtures("searched_by")
@pytest.mark.parametrize("beam_size", [1, 3, 200])
def test_the_search_is_that_of_a_model_of_the_listed_tokens(beam_size):
    logits = random_table(SIZE)
    lists = [[EOS, 4, 7], [3, EOS, 5, 6, 8], [EOS]]
    sentences = [
        Sentence((n,), 3, shortlist=Shortlist(np.array(sorted(tokens)), EOS))
        for n, tokens in enumerate(lists)
    ]
    chosen = settings(beam_size, n_best=1)
    together = search(logits, sentences, chosen)
    for sentence, tokens, found in zip(sentences, lists, together, strict=True):
        table = listed(logits, sorted(tokens))
        (alone,) = search(table, [sentence._replace(shortlist=None)], chosen)
        assert [each.tokens for each in found] == [each.tokens for each in alone]
        scores = [each.score for each in alone]
        assert [each.score for each in found] == pytest.approx(scores, abs=1e-5)
        (again,) = search(logits, [sentence], chosen)
        assert again == found  # to the last bit
        if beam_size == 200:
            others = [token for token in tokens if token != EOS]
            outputs = [o for length in range(4) for o in product(others, repeat=length)]
            of_each = {
                output: log_probability(table, tuple(sentence.tokens), output)
                / ((6 + len(output)) / 6) ** 0.6
                for output in outputs
            }
            assert found[0].tokens == max(outputs, key=lambda output: of_each[output])


def test_what_may_follow_a_line():
    lexicon = Lexicon.of([5], [[], [BOS, 6], [], [7, 8], [4], [], [], [], []], SIZE)
    automaton = RequiredPhrases([(PhraseForm((7, 6)),)])
    rule_data = {FORCED_PREFIX: (4, 8), REQUIRED: automaton}
    for bos, tokens, is_shared, data, expected in (
        (BOS, (3, EOS), True, {}, [EOS, 3, 5, 7, 8]),
        (BOS, (3, EOS), False, {}, [EOS, 5, 7, 8]),
        (BOS, (1,), False, {}, [EOS, 5, 6]),
        (EOS, (1,), False, {}, sorted([EOS, BOS, 5, 6])),
        (BOS, (EOS,), False, rule_data, [EOS, 4, 5, 6, 7, 8]),
    ):
        shortlists = Shortlists(lexicon, SearchSettings(1, 0.0, 1, bos, EOS), is_shared=is_shared)
        found = shortlists.added_to(Sentence(tokens, 3, data)).shortlist
        assert found is not None
        assert found.tokens.tolist() == sorted(expected)
        assert found.location[1:] == (len(expected), sorted(expected).index(EOS))


@pytest.mark.parametrize("level", LEVELS_HERE)
@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("has_bias", [False, True])
def test_logits_are_those_of_the_whole_matrix(library, level, precision, has_bias):
    del library
    library, size, beam_size = Library(level), 203, 3
    packed = packed_at(random_model({"output_bias": has_bias}, size), library, precision)
    layers, rng = CompiledLayers(packed), np.random.default_rng(1)
    lists = [np.sort(rng.choice(size, number, replace=False)) for number in (1, 30, 7, 60, 99, 3)]
    shortlists = [Shortlist(tokens, int(tokens[-1])) for tokens in lists]
    rows = rng.normal(size=(len(lists) * beam_size, packed.config.d_model)).astype(np.float32)
    rows[4] = np.nan
    whole = layers.logits(rows).copy().reshape(len(lists), beam_size, size)
    logits = CompiledLogits(rows, library, layers=layers)
    logits.within(shortlists)
    found = logits.values.reshape(whole.shape)
    of_whole = CompiledLogits(whole.reshape(-1, size).copy(), library)
    of_whole.within(shortlists)
    for slot, tokens in enumerate(lists):
        bound = 0.0 if precision == "int8" else 1e-4
        expected = pytest.approx(whole[slot][:, tokens], abs=bound, rel=0, nan_ok=True)
        assert found[slot][:, tokens] == expected
        assert (np.delete(found[slot], tokens, axis=1) == -np.inf).all()
        assert np.array_equal(
            of_whole.values.reshape(whole.shape)[slot][:, tokens],
            whole[slot][:, tokens],
            equal_nan=True,
        )
    sums = np.log(np.exp(found.astype(np.float64)).sum(axis=2)).ravel()
    assert logits.normalizers() == pytest.approx(sums, abs=1e-5, nan_ok=True)
    assert np.flatnonzero(np.isnan(logits.normalizers())).tolist() == [4]
    alone = CompiledLogits(rows[-beam_size:], library, layers=layers)
    alone.within(shortlists[-1:])
    assert np.array_equal(alone.values, found[-1])


@pytest.fixture
def lexicon():
    """A lexicon of the model in ``FORMAT_2``: half of the pieces, and some for each piece."""
    tokenizer = load_models(FORMAT_2, (), "cpu", "fp32").tokenizer
    rng = np.random.default_rng(2)
    by_source = [rng.choice(tokenizer.size, 3).tolist() for _ in range(tokenizer.size)]
    return Lexicon.of(range(4, tokenizer.size, 3), by_source, tokenizer.size)


def loaded(lexicon, **options):
    models = load_models(FORMAT_2, (), "cpu", options.get("precision", "fp32"))
    first = models.members[0]
    return Translator(first.settings, models.tokenizer, first.model, lexicon=lexicon, **options)


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("beam_size", [1, 4])
def test_a_line_depends_on_no_other_line(library, lexicon, precision, beam_size):
    if precision == "bf16" and not library.has_bf16:
        pytest.skip("this CPU has no instructions for bf16")
    options = {"precision": precision, "beam_size": beam_size, "token_scores": True}
    translator = loaded(lexicon, **options)
    together = list(translator.translate(LINES))
    assert together == [next(translator.translate([line])) for line in LINES]
    few = loaded(lexicon, max_tokens_per_device=300, **options)
    assert together == list(few.translate(LINES))
    # A line with a rule is searched in the other way, and so are those beside it.
    ruled = list(translator.translate([*LINES, Request(LINES[0], banned=["the"])]))
    assert ruled[:-1] == together
    assert together != list(loaded(None, **options).translate(LINES))


def test_the_library_finds_what_torch_finds(library, lexicon, monkeypatch, request):
    del library
    of_library = list(loaded(lexicon, n_best=3, beam_size=3).translate(LINES))
    request.getfixturevalue("torch_layers")
    of_torch = list(loaded(lexicon, n_best=3, beam_size=3).translate(LINES))
    for one, other in zip(of_library, of_torch, strict=True):
        assert [each.tokens for each in one.ranked] == [each.tokens for each in other.ranked]
        scores = [each.log_probability for each in other.ranked]
        assert [each.log_probability for each in one.ranked] == pytest.approx(scores, abs=1e-4)


@pytest.mark.parametrize("by_torch", [False, True])
def test_outputs_have_listed_pieces_and_those_that_are_asked_for(
    library, request, lexicon, by_torch
):
    del library
    if by_torch:
        request.getfixturevalue("torch_layers")
    models = load_models(FORMAT_2, (), "cpu", "fp32")
    tokenizer = models.tokenizer
    empty = Lexicon.of([], [[] for _ in range(tokenizer.size)], tokenizer.size)
    other = next(
        piece
        for piece in map(str, tokenizer.pieces(range(4, tokenizer.size)))
        if all(piece not in line.split() for line in LINES)
    )
    cases: list[tuple[Lexicon, dict[str, Any]]] = [
        (empty, {}),
        (empty, {"sampling": Sampling(seed=3)}),
        (lexicon, {"sampling": Sampling(seed=3), "n_best": 2}),
        (empty, {"constraints": Constraints(required=[other])}),
        (empty, {"constraints": Constraints(prefix=other)}),
        (empty, {"constraints": Constraints(no_repeat_ngram=1)}),
    ]
    for kept, options in cases:
        for line, found in zip(LINES, loaded(kept, **options).translate(LINES), strict=True):
            assert found.error is None
            ids = tokenizer.encode(line)
            allowed = {*kept.candidates(ids, ids), *tokenizer.encode(other, "target")}
            for each in found.ranked:
                pieces = {piece for piece in each.tokens if piece != other}
                assert pieces <= set(tokenizer.pieces(sorted(allowed)))
            constraints = options.get("constraints")
            if constraints is not None and (constraints.required or constraints.prefix):
                assert other in found.tokens


def test_an_ensemble_renormalizes_the_mean(searched_by):
    del searched_by
    one, two = random_table(SIZE), random_table(SIZE, end_bias=0.5)
    tokens = [EOS, 4, 6, 8]

    def mean(source, prefix):
        rows = [table(source, prefix).double().softmax(0) for table in (one, two)]
        return listed(lambda *_: (sum(rows) / 2).log().float(), tokens)(source, prefix)

    sentence = Sentence((5,), 4, shortlist=Shortlist(np.array(tokens), EOS))
    ensemble = Ensemble([TableModel(one), TableModel(two)])
    (found,) = beam_search(ensemble, [sentence], 1, settings(3))
    ((expected,),) = search(mean, [sentence._replace(shortlist=None)], settings(3))
    assert found.hypotheses[0].tokens == expected.tokens
    assert found.hypotheses[0].score == pytest.approx(expected.score, abs=1e-4)


def test_the_lexicon_of_an_ensemble_is_that_of_the_first_model_that_has_one():
    models = load_models(FORMAT_2, (), "cpu", "fp32")
    (member,) = models.members
    own = Lexicon.of([4], [], 9)
    having = member._replace(lexicon=own)
    assert models.lexicon(is_wanted=None) is None
    assert models._replace(members=[member, having]).lexicon(is_wanted=True) is own
    assert models._replace(members=[having]).lexicon(is_wanted=None) is None
    by_default = models._replace(members=[having._replace(uses_shortlist=True)])
    assert by_default.lexicon(is_wanted=None) is own
    assert by_default.lexicon(is_wanted=False) is None
    assert by_default._replace(device="cuda:0").lexicon(is_wanted=None) is None
    assert by_default._replace(device="cuda:0").lexicon(is_wanted=True) is own
    with pytest.raises(
        UserError, match=r"needs a lexicon, and .* has none; make one with: nmt-cli"
    ):
        models.lexicon(is_wanted=True)
