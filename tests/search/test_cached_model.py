"""The cached Transformer gives the logits of the packed one for the whole past of hypotheses."""

import random
from typing import Any

import numpy as np
import pytest
import torch

from nmt_cli.hardware.cpu import num_threads, set_num_threads
from nmt_cli.model.compiled import layers
from nmt_cli.model.compiled.layers import CompiledLayers
from nmt_cli.model.packing import pack
from nmt_cli.model.transformer import Transformer
from nmt_cli.search import compiled_model
from nmt_cli.search.attention_cache import GrowingPast
from nmt_cli.search.beams import StepInput
from nmt_cli.search.compiled_model import CompiledTransformer
from nmt_cli.search.engine import Ensemble
from nmt_cli.search.incremental import CachedTransformer
from nmt_cli.search.search import Search
from nmt_cli.search.search_size import room_for
from nmt_cli.search.sentences import NOT_A_NUMBER, SearchSettings, Sentence
from nmt_cli.search.torch_models import at_precision
from tests.fake_models import BOS, EOS, TableModel, packed_model, tiny_recipe
from tests.search.test_compiled_beams import past_arrays
from tests.table_search import beam_search

VOCABULARY_SIZE = 37
VARIANTS = [
    {},
    {"norm": "pre"},
    {"d_k": 3, "d_v": 6, "tied_embeddings": "decoder"},
    {"positions": "learned", "max_positions": 2000, "tied_embeddings": "none"},
]
RECURRENT = [
    {"decoder": "ssru"},
    {"decoder": "ssru", "norm": "pre", "d_v": 3, "decoder_num_layers": 3, "decoder_start": "zeros"},
    # Queries to the source that are wider than both products of a unit.
    {"decoder": "ssru", "d_k": 40, "d_v": 2, "d_ff": 5},
]
WINDOWED = [
    {"attention_window": 1},
    {"attention_window": 7, "norm": "pre", "d_v": 3, "decoder_num_layers": 3},
]
OF_OTHER_PROGRAMS = [
    {"activation": "gelu", "attention_biases": True, "output_bias": True},
    {"activation": "gelu_tanh", "embedding_norm": True, "scale_embeddings": False},
    {"activation": "swish", "feed_forward_biases": False, "decoder_start": "zeros"},
    {"d_model": 64, "num_heads": 2, "d_ff": 50, "decoder_d_ff": 130},
    {"d_model": 144, "num_heads": 3, "decoder_num_heads": 1, "decoder_num_layers": 1},
]


def tiny_model(**config):
    torch.manual_seed(5)
    return Transformer(tiny_recipe(model=config).model, VOCABULARY_SIZE).eval()


def compiled(model, library, precision="fp32"):
    return CompiledTransformer(packed_model(model, library, precision))


def uncached(model, source, prefixes):
    """Return the logits of what follows each of ``prefixes``, which begin with the start."""
    return uncached_of_all(model, [source] * len(prefixes), prefixes)


@torch.no_grad()
def uncached_of_all(model, sources, prefixes):
    flat = torch.tensor([token for source in sources for token in source])
    sources = pack(flat, [len(source) for source in sources])
    lengths = [len(prefix) for prefix in prefixes]
    target_input = pack(torch.tensor([token for prefix in prefixes for token in prefix]), lengths)
    ends = torch.tensor(lengths).cumsum(0) - 1
    return model.project(model(sources, target_input)[ends])


def rooms_of(past):
    """Return how many entries each slot of the library's past has room for."""
    return past_arrays(past.structure)[0].tolist()


class Drive:
    """Leads a cached model through a tree of hypotheses and checks it at every step."""

    def __init__(self, model, num_slots, beam_size, seed=1, cached: Any = None):
        self.rng = random.Random(seed)
        self.model = model
        self.cached: Any = cached if cached is not None else CachedTransformer(model)
        self.beam_size = beam_size
        self.cached.reset(num_slots, beam_size)
        self.sources: list[list[int]] = [[]] * num_slots
        self.hypotheses: list[list[list[int]]] = [[]] * num_slots
        self.parents: list[list[int]] = [[]] * num_slots
        self.free: set[int] = set()

    def start(self, slots, lengths, tolerance=1e-5):
        sources = [self.tokens(length) for length in lengths]
        encoded, logits = self.cached.encode(sources, BOS)
        witness = uncached_of_all(self.model, sources, [[BOS]] * len(sources))
        assert torch.allclose(
            torch.as_tensor(logits.values).float(), witness.float(), atol=tolerance
        )
        self.cached.start(slots, encoded)
        for slot, source in zip(slots, sources, strict=True):
            self.sources[slot] = source
            self.free.discard(slot)
            self.hypotheses[slot] = [[BOS, *self.tokens(1)] for _ in range(self.beam_size)]
            self.parents[slot] = [self.random_parent() for _ in range(self.beam_size)]

    @property
    def past(self) -> Any:
        return self.cached._past

    @property
    def room(self) -> int:
        """The number of places for entries in the slot with the most."""
        if isinstance(self.past, GrowingPast):
            return self.past.room
        return max(rooms_of(self.past))

    def tokens(self, count):
        return [self.rng.randrange(VOCABULARY_SIZE) for _ in range(count)]

    def step(self, tolerance=1e-5, *, checked=True):
        tokens = np.array([[prefix[-1] for prefix in beam] for beam in self.hypotheses])
        positions = np.array([len(beam[0]) - 1 for beam in self.hypotheses])
        logits = torch.as_tensor(
            self.cached.step(StepInput(tokens, np.array(self.parents), positions)).values
        )
        if not checked:
            return
        busy = [slot for slot in range(len(self.sources)) if slot not in self.free]
        sources = [self.sources[slot] for slot in busy for _ in range(self.beam_size)]
        prefixes = [prefix for slot in busy for prefix in self.hypotheses[slot]]
        witness = uncached_of_all(self.model, sources, prefixes)
        assert torch.allclose(logits.float(), witness.float(), atol=tolerance)

    def leave(self, slot):
        """Free ``slot``."""
        self.free.add(slot)
        self.hypotheses[slot] = [[BOS] for _ in range(self.beam_size)]
        self.parents[slot] = list(range(self.beam_size))

    def grow(self, choose_parent):
        for slot, beam in enumerate(self.hypotheses):
            if slot in self.free:
                continue
            parents = [choose_parent() for _ in beam]
            self.hypotheses[slot] = [[*beam[parent], *self.tokens(1)] for parent in parents]
            self.parents[slot] = parents

    def random_parent(self):
        return self.rng.randrange(self.beam_size)

    def keep_slots(self, slots):
        self.cached.keep_slots(slots)
        self.sources = [self.sources[slot] for slot in slots]
        self.hypotheses = [self.hypotheses[slot] for slot in slots]
        self.parents = [self.parents[slot] for slot in slots]
        self.free = {place for place, slot in enumerate(slots) if slot in self.free}


@pytest.mark.parametrize("config", [*VARIANTS, *RECURRENT, *WINDOWED])
def test_a_random_tree_of_hypotheses(config):
    follow_a_random_tree(tiny_model(**config))


@pytest.mark.parametrize(
    ("config", "beam_size"),
    [
        *((config, 4) for config in (*VARIANTS, *RECURRENT, *WINDOWED, *OF_OTHER_PROGRAMS)),
        *((config, 6) for config in (VARIANTS[0], RECURRENT[0], WINDOWED[1])),
    ],
)
def test_compiled_steps_of_a_random_tree(config, beam_size, library):
    model = tiny_model(**config)
    follow_a_random_tree(model, compiled(model, library), beam_size)


@pytest.mark.parametrize("decoder", ["attention", "ssru"])
@pytest.mark.parametrize("precision", ["bf16", "int8"])
def test_compiled_steps_in_a_lower_precision(precision, decoder, library):
    model = tiny_model(d_model=64, num_heads=2, decoder=decoder)
    if precision == "bf16" and not library.functions.has_bf16():
        pytest.skip("this CPU has no instructions for bf16")
    follow_a_random_tree(model, compiled(model, library, precision), tolerance=0.1)


def test_compiled_steps_in_several_threads(library):
    model = tiny_model(d_model=256, d_ff=1024, num_heads=4)
    threads = num_threads()
    try:
        set_num_threads(3)
        follow_a_random_tree(model, compiled(model, library), tolerance=1e-4)
    finally:
        set_num_threads(threads)


def test_a_sentence_of_which_the_model_makes_no_number_leaves_the_compiled_caches(library):
    """Its slot serves the next sentence."""
    model = tiny_model(tied_embeddings="none")
    with torch.no_grad():
        model.source_embedding.weight[VOCABULARY_SIZE - 1] = torch.nan
    bad, good = Sentence([5, VOCABULARY_SIZE - 1], 9), Sentence([5, 6, 7], 9)
    settings = SearchSettings(3, 0.6, 2, BOS, EOS)

    def tokens(sentences, num_slots):
        found = sorted(beam_search(compiled(model, library), sentences, num_slots, settings))
        assert all(
            (each.error == NOT_A_NUMBER.reason) == (sentences[each.number] is bad) for each in found
        )
        return [[each.tokens for each in one.hypotheses] for one in found if one.error is None]

    (alone,) = tokens([good], 1)
    assert tokens([bad, good, bad, good], 1) == [alone, alone]
    assert tokens([bad, good, bad, good], 4) == [alone, alone]


def test_the_compiled_past_has_room_for_its_sentence_only(library):
    model = tiny_model()
    drive = Drive(model, num_slots=3, beam_size=2, cached=compiled(model, library))
    drive.start([0, 1, 2], [4, 100, 4])
    assert rooms_of(drive.past) == [8, 8, 8]
    for step in range(70):
        drive.step(checked=step % 10 == 9)
        drive.grow(drive.random_parent)
        if step % 10 == 0:
            drive.start([2], [3])
    grown, as_long, short = rooms_of(drive.past)
    assert 70 < grown < 100
    assert 70 < as_long < 100
    assert short <= 24
    drive.start([0], [30])  # what an earlier sentence has needed is not kept
    assert rooms_of(drive.past) == [8, as_long, short]
    drive.step()


def test_texts_are_encoded_in_groups(library, monkeypatch):
    cached = compiled(tiny_model(), library)
    sentences = [[5 + length] * length for length in (5, 30, 2, 2, 19, 8, 1)]
    expected, expected_logits = cached.encode(sentences, BOS)
    monkeypatch.setattr(compiled_model, "ENCODED_TOKENS", 20)
    groups = [[len(each) for each in group] for group in compiled_model._groups(sentences)]
    assert groups == [[5], [30], [2, 2], [19], [8, 1]]
    found, logits = cached.encode(sentences, BOS)
    assert np.array_equal(logits.values, expected_logits.values)
    for own, other in zip(found, expected, strict=True):
        assert all(map(np.array_equal, own, other))


def test_first_tokens_are_found_a_few_sentences_at_a_time(library, monkeypatch):
    """As they are alone, and if some sentences are equal."""
    numbers, logits = [], CompiledLayers.logits

    def recorded(self, rows):
        numbers.append(len(rows))
        return logits(self, rows)

    monkeypatch.setattr(layers, "ROWS_AT_ONCE", {"fp32": 3})
    monkeypatch.setattr(CompiledLayers, "logits", recorded)
    settings = SearchSettings(2, 0.6, 1, BOS, EOS)
    search = Search(compiled(tiny_model(), library), 2, settings)
    for tokens in ([5, 6, 7, 8, 9, 10, 11], [5, 6, 5, 5, 7, 8, 6, 9], [5] * 7):
        sentences = [Sentence((token, token + 1), 4) for token in tokens]
        firsts = [each.first for each in search.prepare(sentences)]
        assert numbers == [3] * (len(tokens) // 3) + [len(tokens) % 3]
        for sentence, first in zip(sentences, firsts, strict=True):
            (alone,) = search.prepare([sentence])
            assert first is not None
            assert alone.first is not None
            assert all(map(np.array_equal, first, alone.first))
        numbers.clear()


def follow_a_random_tree(model, cached=None, beam_size=4, tolerance=1e-5):
    drive = Drive(model, num_slots=3, beam_size=beam_size, cached=cached)
    drive.start([0, 1, 2], [5, 1, 9], tolerance)
    for step in range(60):
        drive.step(tolerance, checked=step % 3 == 0)
        drive.grow(drive.random_parent)
        if step == 15:
            drive.leave(1)
        if step == 20:
            drive.start([1], [14], tolerance)  # longer than all before
        if step == 35:
            drive.start([2, 0], [2, 3], tolerance)  # all shorter than the cache is wide
            drive.start([1], [4], tolerance)
        if step == 40:
            drive.leave(0)
        if step == 45:
            drive.keep_slots([2, 1, 0, 2])
        if step == 50:
            drive.keep_slots([0, 1])
    if model.config.attention_window is not None:
        most = (model.config.attention_window + 1) * beam_size
        assert drive.room <= room_for(most), "entries outside the window are kept"
    elif model.config.decoder == "attention":
        assert drive.room < 60 * beam_size / 2, "places are never used again"


def test_hypotheses_that_share_nothing_have_places_of_their_own():
    drive = Drive(tiny_model(), num_slots=2, beam_size=3)
    drive.start([0, 1], [3, 4])
    places = iter(list(range(3)) * 1000)
    for step in range(50):
        drive.step(checked=step % 7 == 0)
        drive.grow(lambda: next(places))
    assert 50 * 3 <= drive.room < 50 * 3 * 5 / 4


def test_one_line_of_descent_needs_few_places():
    drive = Drive(tiny_model(), num_slots=2, beam_size=5)
    drive.start([0, 1], [3, 4])
    for step in range(40):
        drive.step(checked=step % 4 == 0)
        drive.grow(lambda: 2)
    assert 40 + 5 <= drive.room <= 64


def test_the_room_of_a_long_hypothesis_is_given_up_after_it():
    drive = Drive(tiny_model(), num_slots=2, beam_size=2)
    drive.start([0, 1], [3, 4])
    for step in range(70):
        drive.step(checked=step > 50)
        drive.grow(drive.random_parent)
        if step == 48:
            assert drive.room >= 48
            drive.start([0], [4])
            drive.start([1], [4])
    assert drive.room == 32


def test_a_free_slot_takes_no_room():
    drive = Drive(tiny_model(), num_slots=1, beam_size=4)
    drive.start([0], [3])
    is_free = StepInput(np.full((1, 4), BOS), np.arange(4)[None], np.array([0]))
    for _ in range(20):
        drive.cached.step(is_free)
    assert drive.room == 16
    drive.start([0], [5])
    drive.step()


def test_slots_that_stay_have_the_room_that_they_need():
    drive = Drive(tiny_model(), num_slots=5, beam_size=2)
    drive.start([0, 1, 2, 3, 4], [30, 3, 4, 5, 6])
    for step in range(40):
        drive.step(checked=step % 10 == 9)
        drive.grow(drive.random_parent)
        if (slot := step % 5) not in (0, 2):  # these sentences go on
            drive.start([slot], [4])
    assert drive.room >= 40
    assert drive.cached._memory.layers[0].room == 32
    drive.start([2], [15])
    drive.keep_slots([4, 2, 1])
    assert drive.room == 16
    assert drive.cached._memory.layers[0].room == 16
    drive.step()


@pytest.mark.parametrize("window", [None, 2])
def test_a_search_with_the_cache_finds_what_one_without_finds(window):
    model = tiny_model(attention_window=window)
    rng = random.Random(3)
    sentences = [
        Sentence([rng.randrange(VOCABULARY_SIZE) for _ in range(length)], length + 3)
        for length in sorted((rng.randrange(1, 9) for _ in range(5)), reverse=True)
    ]

    def logits(source, prefix):
        return uncached(model, list(source), [[BOS, *prefix]])[0]

    settings = SearchSettings(3, 0.6, 2, BOS, EOS)
    plain = sorted(beam_search(TableModel(logits), sentences, 5, settings))
    for num_slots in (1, 3, 5):
        cached = sorted(beam_search(CachedTransformer(model), sentences, num_slots, settings))
        for one, other in zip(plain, cached, strict=True):
            assert one.number == other.number
            for a, b in zip(one.hypotheses, other.hypotheses, strict=True):
                assert a.tokens == b.tokens
                assert a.score == pytest.approx(b.score, abs=1e-4)


def test_bf16_is_near_fp32_and_the_weights_of_the_model_stay():
    model = tiny_model()
    rounded = at_precision(model, "bf16")
    assert at_precision(model, "fp32") is model
    assert model.output_weight.dtype == torch.float32
    drive = Drive(rounded, num_slots=2, beam_size=3)
    drive.start([0, 1], [5, 7], tolerance=0.1)
    for _ in range(5):
        drive.step(tolerance=0.1)
        drive.grow(drive.random_parent)
    exact = uncached(model, drive.sources[0], drive.hypotheses[0])
    assert torch.allclose(
        uncached(rounded, drive.sources[0], drive.hypotheses[0]).float(), exact, atol=0.15
    )
    assert drive.past.layers[0].keys.dtype == torch.bfloat16


def test_the_cache_holds_no_second_copy_of_the_weights():
    model = tiny_model()
    cached = CachedTransformer(model)
    assert cached._decoder_layers[0] is model.decoder_layers[0]


def test_nothing_is_kept_for_a_backward_pass():
    drive = Drive(tiny_model(), num_slots=1, beam_size=2)
    drive.start([0], [4])
    state = StepInput(np.array([[5, 6]]), np.array([[0, 0]]), np.array([1]))
    assert not drive.cached.step(state).values.requires_grad
    (encoded,), logits = drive.cached.encode([[4, 5]], BOS)
    tensors = [logits.values, encoded.start_mark, *encoded.source]
    assert not any(each.requires_grad for each in tensors)


@pytest.mark.parametrize("num_models", [1, 2])
def test_a_sentence_that_is_not_a_number_leaves_nothing_to_the_next_one(num_models):
    model = tiny_model(tied_embeddings="none")
    with torch.no_grad():
        model.source_embedding.weight[9] = torch.nan
    bad, good = Sentence([4, 5, 9, 6, 7, 8], 6), Sentence([4, 5, 6, 7, 8], 6)
    settings = SearchSettings(3, 0.6, 2, BOS, EOS)

    def search(sentences):
        cached = Ensemble([CachedTransformer(model) for _ in range(num_models)])
        return list(beam_search(cached, sentences, 1, settings))

    (expected,) = search([good])
    failed, found = search([bad, good])
    assert failed.error == NOT_A_NUMBER.reason
    assert found.error is None
    assert [each.tokens for each in found.hypotheses] == [
        each.tokens for each in expected.hypotheses
    ]
