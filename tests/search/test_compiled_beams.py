"""The library's beams and places against those of numpy."""

import ctypes

import numpy as np
import pytest

from nmt_cli.model.compiled.layers import CompiledLayers
from nmt_cli.model.transformer import Transformer
from nmt_cli.search.beams import Beams
from nmt_cli.search.compiled_logits import CompiledBeams
from nmt_cli.search.logits import Candidates
from nmt_cli.search.sentences import SearchSettings, Sentence
from tests.fake_models import packed_model, tiny_recipe

SLOTS, BEAM, VOCABULARY, EOS = 6, 4, 5, 1
STATE = (
    *("numbers", "lengths", "longest", "n_best", "beam_sizes", "ends_needed", "alphas"),
    *("scores", "tokens", "parents", "num_ended"),
)


def random_sentence(rng):
    return Sentence(
        (3, EOS),
        int(rng.integers(2, 70)),
        n_best=int(rng.integers(1, 3)),
        beam_size=int(rng.integers(2, BEAM + 1)),
        length_penalty=float(rng.choice([0.0, 0.6, 1.0])),
        shares_beam=bool(rng.integers(2)),
    )


def random_candidates(rng, beams, slots):
    """Return candidates as a search finds them, of which some end and some do not exist."""
    shape = len(slots), 2 * BEAM
    scores = beams.scores[slots].max(axis=1, keepdims=True) - rng.exponential(0.2, shape).cumsum(1)
    tokens = rng.integers(2, VOCABULARY, shape)
    tokens[rng.random(shape) < 0.02] = EOS
    if rng.random() < 0.3:
        scores[rng.random(len(slots)) < 0.3, int(rng.integers(0, 2 * BEAM)) :] = -np.inf
    if rng.random() < 0.2:  # one that ends is as good as one that does not
        row = rng.integers(len(slots))
        tokens[row, 0], scores[row, 1] = EOS, scores[row, 0]
    num_live = (beams.scores[slots] > -np.inf).sum(axis=1, keepdims=True)
    parents = rng.integers(0, num_live.clip(min=1), shape)
    return Candidates(scores.astype(np.float32), parents, tokens)


@pytest.mark.parametrize("token_scores", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_hypotheses_are_those_of_numpy_after_each_step(library, seed, token_scores):
    rng = np.random.default_rng(seed)
    settings = SearchSettings(BEAM, 0.6, 1, bos_id=0, eos_id=EOS, token_scores=token_scores)
    expected, found = Beams(SLOTS, settings), CompiledBeams(SLOTS, settings, library)
    longest, num_done = 0, 0
    for step in range(250):
        free = np.flatnonzero(~expected.is_busy)[: int(rng.integers(0, 3))].tolist()
        sentences = [random_sentence(rng) for _ in free]
        for beams in (expected, found):
            beams.start(free, [10 * step + place for place in range(len(free))], sentences)
        if step % 20 == 7:
            kept = rng.permutation(len(expected.numbers))[:SLOTS].tolist()
            for beams in (expected, found):
                beams.keep(kept)
                beams.add(int(step == 7))
        slots = np.sort(rng.permutation(len(expected.numbers))[: int(rng.integers(1, SLOTS + 1))])
        candidates = random_candidates(rng, expected, slots)
        done = expected.advance(slots, candidates)
        assert found.advance(slots, candidates) == done
        num_done += len(done)
        longest = max(longest, expected.lengths.max())
        busy = expected.is_busy
        for name in STATE:
            assert np.array_equal(getattr(found, name)[busy], getattr(expected, name)[busy]), name
        lengths = expected.lengths
        for slot in np.flatnonzero(busy):
            of_slot = (slot, slice(None), slice(lengths[slot]))
            assert np.array_equal(found.prefixes[of_slot], expected.prefixes[of_slot])
        in_slots = range(len(busy))
        assert [*map(found.ended_in, in_slots)] == [*map(expected.ended_in, in_slots)]
        assert not (found.scores[~busy] > -np.inf).any()
    assert num_done > 10
    assert longest > 32  # the room has grown


def test_a_candidate_of_no_hypothesis_is_refused_before_memory_is_read(library):
    beams = CompiledBeams(SLOTS, SearchSettings(BEAM, 0.6, 1, bos_id=0, eos_id=EOS), library)
    beams.start([2], [0], [random_sentence(np.random.default_rng(1))])
    candidates = random_candidates(np.random.default_rng(1), beams, np.array([2]))
    for parent in (-1, BEAM):
        candidates.parents[0, -1] = parent
        with pytest.raises(AssertionError):
            beams.advance(np.array([2]), candidates)


def past_arrays(past):
    """Return what the library keeps: rooms [S], ancestry [S, K, E], ends [S] and places [S, K]."""

    def array(address, kind, *shape):
        return np.ctypeslib.as_array(ctypes.cast(address, ctypes.POINTER(kind)), shape)

    return (
        array(past.entries, ctypes.c_int64, past.S, 2)[:, 1],
        array(past.is_past, ctypes.c_bool, past.S, past.K, past.E),
        array(past.ends, ctypes.c_int64, past.S),
        array(past.places, ctypes.c_int64, past.S, past.K),
    )


@pytest.mark.parametrize(("seed", "window"), [(0, None), (1, None), (2, 500), (3, 4)])
def test_new_entries_take_the_first_places_that_are_in_no_past(library, seed, window):
    rng = np.random.default_rng(seed)
    model = Transformer(tiny_recipe(model={"attention_window": window}).model, VOCABULARY)
    layers = CompiledLayers(packed_model(model, library))
    past = layers.new_past(SLOTS, BEAM)
    # Of each hypothesis: the entries in its past, and at which step each was written.
    expected: list[list[dict[int, int]]] = [[{} for _ in range(BEAM)] for _ in range(SLOTS)]
    start, sizes = np.zeros(layers.state_shape, np.float32), set()
    for step in range(200):
        number = len(expected)
        is_begun = rng.random(number) < (1.0 if step == 0 else 0.02)
        begun = np.flatnonzero(is_begun).tolist()
        past.start(begun, [start] * len(begun))
        parents = rng.integers(0, BEAM, (number, BEAM))
        rests = (rng.random(number) < 0.2) & ~is_begun
        past.advance(parents, np.where(rests, 0, 1 + step))
        rooms, is_past, ends, places = past_arrays(past.structure)
        for slot in range(number):
            of_slot = [{0: 0}] * BEAM if is_begun[slot] else expected[slot]
            if not rests[slot]:
                first = 0 if window is None else 1 + step - window
                inherited = [of_slot[parent] for parent in parents[slot]]
                near = [{e: at for e, at in own.items() if at >= first} for own in inherited]
                free = [place for place in range(500) if not any(place in own for own in near)]
                assert places[slot].tolist() == free[:BEAM]
                of_slot = [own | {place: 1 + step} for own, place in zip(near, free, strict=False)]
            expected[slot] = of_slot
            for own, found in zip(of_slot, is_past[slot], strict=True):
                assert {*np.flatnonzero(found)} == own.keys()
            last = max(map(max, of_slot))
            assert rooms[slot] >= ends[slot] == last + 1
        sizes.add(past.structure.E)
        if step == 120:
            past.keep_slots([4, 1, 0, 4])
            expected = [list(expected[slot]) for slot in (4, 1, 0, 4)]
    assert window == 4 or len(sizes) > 2
