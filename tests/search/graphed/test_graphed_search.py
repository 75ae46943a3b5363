"""The search whose steps run ahead finds what the search that reads each step finds.

The sizes of searches whose steps are recorded.
"""

import gc
import random
from functools import partial

import pytest
import torch

from nmt_cli.hardware.device import GraphRecorder
from nmt_cli.model.transformer import Transformer
from nmt_cli.search.driver import Driver
from nmt_cli.search.graphed import model as model_module
from nmt_cli.search.graphed import search as search_module
from nmt_cli.search.graphed.model import (
    GraphedStep,
    GraphedTransformer,
    Storage,
    size_for,
    size_within,
)
from nmt_cli.search.graphed.search import GraphedSearch
from nmt_cli.search.incremental import CachedTransformer
from nmt_cli.search.search_size import SearchSize
from nmt_cli.search.sentences import NOT_A_NUMBER, SearchSettings, Sentence
from tests.fake_models import BOS, EOS, tiny_recipe
from tests.search.graphed.replayed_steps import ReplayingRecorder
from tests.table_search import beam_search, found_by

VOCABULARY_SIZE = 37
VARIANTS = [
    {},
    {"norm": "pre"},
    {"d_k": 3, "d_v": 6, "tied_embeddings": "decoder"},
    {"positions": "learned", "max_positions": 2000, "tied_embeddings": "none"},
    {"attention_window": 2},
    {"decoder": "ssru"},
]


def sharp_model(vocabulary_size=VOCABULARY_SIZE, seed=5, **config):
    """Return a model with random weights whose outputs are of many lengths."""
    torch.manual_seed(seed)
    model = Transformer(tiny_recipe(model=config).model, vocabulary_size).eval()
    with torch.no_grad():
        model.output_weight.mul_(4)
    return model


def sentences_of(rng, number, longest_source=20, longest_output=24):
    found = [
        Sentence(
            [rng.randrange(3, VOCABULARY_SIZE) for _ in range(rng.randint(1, longest_source))],
            rng.randint(0, longest_output),
            n_best=1 if number % 3 == 0 else rng.choice([None, 1]),
            beam_size=1 if number % 3 == 0 else None,
            length_penalty=rng.choice([None, 0.0, 2.0]),
        )
        for number in range(number)
    ]
    return sorted(found, key=lambda sentence: -len(sentence.tokens))


def settings_of(beam_size, n_best=1, *, token_scores=False, bos_id=BOS):
    return SearchSettings(beam_size, 0.6, n_best, bos_id, EOS, token_scores)


def search_ahead(model, sentences, num_slots, settings, graphed=None):
    graphed = graphed or GraphedTransformer(model, settings)
    return sorted(begun_ahead(graphed, sentences, num_slots, settings))


def begun_ahead(graphed, sentences, num_slots, settings):
    driver = Driver[int](
        lambda first, _: GraphedSearch(graphed, len(first), settings),
        SearchSize(num_slots),
        lambda sentence: 1,
    )
    return found_by(driver, sentences)


def plain_search(model, sentences, num_slots, settings):
    return sorted(beam_search(CachedTransformer(model), sentences, num_slots, settings))


def assert_same(found, expected):
    assert [each.number for each in found] == [each.number for each in expected]
    assert [each.error for each in found] == [each.error for each in expected]
    for each, other in zip(found, expected, strict=True):
        assert [h.tokens for h in each.hypotheses] == [h.tokens for h in other.hypotheses]
        for own, witness in zip(each.hypotheses, other.hypotheses, strict=True):
            assert own.score == pytest.approx(witness.score, abs=1e-4)
            assert own.token_scores == pytest.approx(witness.token_scores, abs=1e-4)


@pytest.fixture
def replayed(monkeypatch):
    """Let steps be recorded and repeated without their Python code, as CUDA graphs are."""
    monkeypatch.setattr(model_module, "GraphRecorder", ReplayingRecorder)
    monkeypatch.setattr(ReplayingRecorder, "num_recorded", 0)
    monkeypatch.setattr(ReplayingRecorder, "num_repeated", 0)
    return ReplayingRecorder


@pytest.mark.parametrize(
    ("config", "beam_size", "n_best"),
    [
        *(({}, *sizes) for sizes in [(1, 1), (2, 2), (4, 1), (7, 3)]),
        *((config, 3, 1) for config in VARIANTS[1:]),
    ],
)
def test_finds_what_the_other_search_finds(config, beam_size, n_best):
    model = sharp_model(**config)
    settings = settings_of(beam_size, n_best, token_scores=beam_size == 4)
    sentences = sentences_of(random.Random(beam_size), 16)
    expected = plain_search(model, sentences, 16, settings)
    lengths = {len(h.tokens) for found in expected for h in found.hypotheses}
    assert len(lengths) > 5
    for num_slots in [5] if config else [5, 40]:
        assert_same(search_ahead(model, sentences, num_slots, settings), expected)


@pytest.mark.parametrize("number", [4, 8])
def test_a_sentence_that_leaves_changes_nothing_for_the_others(replayed, monkeypatch, number):
    model, settings = endless_model(), settings_of(2)
    sentences = [Sentence([5 + n, 6, 7], 8 + n) for n in range(number)]
    expected = plain_search(model, sentences, number, settings)
    graphed, steps, copied = GraphedTransformer(model, settings), list[set[int]](), list[int]()
    copy_beams = graphed.copy_beams

    def copying(beams, slots):
        copied.extend(slot for slot in slots if not beams.is_busy[slot])
        copy_beams(beams, slots)

    def watch(inside):
        steps.append(set(inside))
        return [2] if len(steps) == 2 else None

    monkeypatch.setattr(graphed, "copy_beams", copying)
    search = partial(GraphedSearch, graphed, settings=settings)
    driver = Driver[int](lambda _, n: search(n), SearchSize(4), lambda sentence: 1)
    waiting = iter(enumerate(sentences))
    found = dict(driver.run(lambda: next(waiting, None), watch))
    assert sorted(found) == [n for n in range(number) if n != 2]
    for ticket, outcome in found.items():
        assert isinstance(outcome, tuple)
        assert outcome[0].tokens == expected[ticket].hypotheses[0].tokens
    assert 2 in steps[1]
    assert not any(2 in inside for inside in steps[2:])
    assert 2 in copied or number > 4  # then another sentence gets its slot at once


@pytest.mark.parametrize("config", VARIANTS[3::2])
def test_a_recorded_step_is_repeated_for_whatever_its_tensors_hold(config, replayed):
    model = sharp_model(**config)
    settings = settings_of(3)
    graphed = GraphedTransformer(model, settings)
    for seed in range(2):
        sentences = sentences_of(random.Random(seed), 20)
        expected = plain_search(model, sentences, 20, settings)
        assert_same(search_ahead(model, sentences, 6, settings, graphed), expected)
    assert replayed.num_repeated > 5 * replayed.num_recorded


def test_graphs_are_used_again_in_later_searches(replayed):
    model = sharp_model()
    settings = settings_of(2)
    graphed = GraphedTransformer(model, settings)
    sentences = sentences_of(random.Random(1), 16)
    for _ in range(2):  # in the first one, the caches grow
        expected = search_ahead(model, sentences, 8, settings, graphed)
        graphed.reset(0, 1)
    replayed.num_recorded = 0
    assert_same(search_ahead(model, sentences, 8, settings, graphed), expected)
    assert replayed.num_recorded == 0


def test_caches_do_not_grow_while_outputs_are_at_most_twice_as_long_as_sources(replayed):
    """So no graph has to be recorded again."""
    model, settings = endless_model(), settings_of(4)
    graphed, grown = GraphedTransformer(model, settings), list[tuple[int, int]]()
    grow = Storage.grow
    sentences = [Sentence([5] * 40, longest) for longest in (9, 80, 40, 60)]

    def noted(storage, num_places):
        grown.append((replayed.num_recorded, num_places))
        grow(storage, num_places)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Storage, "grow", noted)
        search_ahead(model, sentences, 4, settings, graphed)
    # 3 places of the past for each piece are a room of 128, the source takes one of 48.
    assert grown == [(0, 4 * 128), (0, 4 * 48)]
    shapes = list(graphed._steps)
    assert len(shapes) == replayed.num_recorded > 3
    assert {shape.past_room for shape in shapes} > {32, 48, 64}


def test_few_graphs_are_kept(replayed, monkeypatch):
    monkeypatch.setattr(model_module, "MOST_GRAPHS", 2)
    model = sharp_model()
    settings = settings_of(2)
    graphed = GraphedTransformer(model, settings)
    sentences = sentences_of(random.Random(1), 30)
    expected = plain_search(model, sentences, 8, settings)
    assert_same(search_ahead(model, sentences, 8, settings, graphed), expected)
    assert replayed.num_recorded > 3
    assert len(graphed._steps) == 2
    assert graphed._current().shape in graphed._steps


def test_a_search_that_is_given_up_leaves_nothing_behind():
    model = sharp_model()
    settings = settings_of(4)
    graphed = GraphedTransformer(model, settings)
    given_up = begun_ahead(graphed, sentences_of(random.Random(3), 30, 35), 8, settings)
    next(given_up)
    sentences = sentences_of(random.Random(4), 30)
    expected = plain_search(model, sentences, 8, settings)
    assert_same(search_ahead(model, sentences, 8, settings, graphed), expected)


def test_weights_that_were_changed_or_moved_are_used(replayed):
    model, settings = sharp_model(), settings_of(2)
    graphed, sentences = GraphedTransformer(model, settings), sentences_of(random.Random(1), 10)
    search_ahead(model, sentences, 8, settings, graphed)
    with torch.no_grad():
        model.output_weight.mul_(-1)  # at the same address
    expected = plain_search(model, sentences, 8, settings)
    assert_same(search_ahead(model, sentences, 8, settings, graphed), expected)
    model.output_weight.data = -model.output_weight.data
    expected = plain_search(model, sentences, 8, settings)
    assert_same(search_ahead(model, sentences, 8, settings, graphed), expected)


def test_outputs_longer_than_the_table_of_positions(replayed):
    settings = settings_of(2)
    sentences = [Sentence([5, 6], longest) for longest in (3, 8, 20)]
    expected = plain_search(endless_model(), sentences, 2, settings)
    assert [len(found.hypotheses[0].tokens) for found in expected] == [3, 8, 20]
    model = endless_model()
    table = model.target_embedding.positions.table
    model.target_embedding.positions.table = table[:8].clone()
    assert_same(search_ahead(model, sentences, 2, settings), expected)


def test_the_table_of_positions_grows_with_outputs_not_with_what_they_may_be(replayed):
    class EndedError(Exception):
        pass

    class Ended(GraphedTransformer):
        calls = 0

        def steps(self, number, num_places, num_positions):
            self.calls += 1
            if self.calls >= 20:
                raise EndedError
            return super().steps(number, num_places, num_positions)

    model, settings = endless_model(), settings_of(2)
    sentences = [Sentence([5, 6], 1_000_000)] * 2
    with pytest.raises(EndedError):
        search_ahead(model, sentences, 2, settings, Ended(model, settings))
    assert len(model.target_embedding.positions.table) <= 256


def test_learned_positions_suffice_for_the_longest_output(replayed):
    def model():
        made = sharp_model(positions="learned", max_positions=2000, output_bias=True)
        positions = made.target_embedding.positions
        positions.weight = torch.nn.Parameter(positions.weight[:21].detach())
        with torch.no_grad():
            made.output_bias[EOS] = -1000.0
        return made

    settings, sentences = settings_of(2), [Sentence([5, 6], longest) for longest in (3, 8, 20)]
    expected = plain_search(model(), sentences, 2, settings)
    assert_same(search_ahead(model(), sentences, 2, settings), expected)


def endless_model():
    model = sharp_model(output_bias=True)
    with torch.no_grad():
        model.output_bias[EOS] = -1000.0
    return model


def test_a_beam_wider_than_the_least_room():
    model, settings = sharp_model(), settings_of(40)
    sentences = sentences_of(random.Random(8), 6, longest_output=6)
    expected = plain_search(model, sentences, 6, settings)
    assert_same(search_ahead(model, sentences, 4, settings), expected)


def test_sources_may_become_longer_while_a_search_goes_on(replayed):
    model, settings, rng = sharp_model(), settings_of(3), random.Random(2)
    sentences = sorted(sentences_of(rng, 25, 150), key=lambda each: len(each.tokens))
    expected = plain_search(model, sentences, 8, settings)
    assert_same(search_ahead(model, sentences, 8, settings), expected)


@pytest.mark.parametrize("seed", [2, 10])
def test_what_is_not_a_number_fails_its_own_sentence_only(seed):
    """Outputs are so long that caches get other shapes while NaN lies in them."""
    model = sharp_model(tied_embeddings="none", seed=seed)
    with torch.no_grad():
        model.target_embedding.weight[7] = torch.nan  # in outputs
        model.source_embedding.weight[VOCABULARY_SIZE - 1] = torch.nan  # in sources
    settings, sentences = settings_of(2), sentences_of(random.Random(seed), 50, 8, 60)
    expected = plain_search(model, sentences, 50, settings)
    assert_same(search_ahead(model, sentences, 3, settings), expected)
    failed = {found.number for found in expected if found.error == NOT_A_NUMBER.reason}
    of_sources = {n for n, each in enumerate(sentences) if VOCABULARY_SIZE - 1 in each.tokens}
    assert of_sources < failed < set(range(50))


def test_bf16(replayed):
    model, settings = sharp_model().to(torch.bfloat16), settings_of(4)
    sentences = sentences_of(random.Random(7), 16)
    expected = plain_search(model, sentences, 8, settings)
    found = search_ahead(model, sentences, 8, settings)
    same = [
        a.hypotheses[0].tokens == b.hypotheses[0].tokens
        for a, b in zip(found, expected, strict=True)
    ]
    assert sum(same) >= 14


def test_one_mark_may_be_start_and_end(replayed):
    model, settings = sharp_model(), settings_of(3, bos_id=EOS)
    sentences = sentences_of(random.Random(5), 20)
    expected = plain_search(model, sentences, 8, settings)
    assert_same(search_ahead(model, sentences, 8, settings), expected)


def test_other_numbers_of_steps_at_once_find_the_same(monkeypatch):
    model, settings = sharp_model(), settings_of(3)
    sentences = sentences_of(random.Random(6), 16)
    expected = plain_search(model, sentences, 8, settings)
    for number in (1, 2, 7):
        monkeypatch.setattr(search_module, "STEPS_AT_ONCE", number)
        assert_same(search_ahead(model, sentences, 8, settings), expected)


def test_full_memory_gives_up_all_and_a_smaller_search_follows(monkeypatch):
    model, settings = sharp_model(), settings_of(2)
    graphed, sentences = GraphedTransformer(model, settings), sentences_of(random.Random(1), 20)
    expected = plain_search(model, sentences, 8, settings)
    compute, shapes = GraphRecorder.compute, list[object]()

    def full(recorder, step):
        shapes.append(step)
        if len(shapes) == 3:
            raise MemoryError
        compute(recorder, step)

    monkeypatch.setattr(GraphRecorder, "compute", full)
    search = GraphedSearch(graphed, 16, settings)
    search.admit(search.prepare(sentences[:16]))
    with pytest.raises(MemoryError):
        [search.step() for _ in range(100)]
    assert not graphed._steps
    assert not any(storage._layers for storage in graphed._storages)
    assert_same(search_ahead(model, sentences, 2, settings, graphed), expected)


def test_no_old_cache_is_in_memory_while_a_larger_one_is_made(monkeypatch):
    model, settings = sharp_model(), settings_of(2)
    grow, alive = Storage.grow, list[int]()
    monkeypatch.setattr(model_module, "PLACES_OF_A_PIECE", 0)  # so that they grow

    def watched(storage, num_places):
        alive.append(sum(type(each) is GraphedStep for each in gc.get_objects()))
        grow(storage, num_places)

    monkeypatch.setattr(Storage, "grow", watched)
    gc.collect()
    sentences = sentences_of(random.Random(1), 20, 100)[::-1]
    search_ahead(model, sentences, 16, settings)
    assert len(alive) > 2
    assert not any(alive)


def test_few_rows_are_computed_for_sentences_that_are_done():
    model, settings = sharp_model(), settings_of(2)
    rows = []

    class Counting(GraphedTransformer):
        def steps(self, number, num_places, num_positions):
            rows.append(number * self._current().shape.num_slots)
            return super().steps(number, num_places, num_positions)

    sentences = sentences_of(random.Random(1), 200, 8, 30)
    found = search_ahead(model, sentences, 16, settings, Counting(model, settings))
    needed = sum(max(len(each.tokens) for each in f.hypotheses) for f in found if f.hypotheses)
    assert needed / sum(rows) > 0.6


def test_sizes_are_powers_of_two_and_one_and_a_half_times_those():
    sizes = sorted({1, 3} | {m << n for n in range(1, 12) for m in (1, 3)})
    for number in range(1, 2049):
        assert size_for(number) == min(size for size in sizes if size >= number)
        assert size_within(number) == max(size for size in sizes if size <= number)
