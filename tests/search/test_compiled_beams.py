"""The library's beams and places against those of numpy."""

import numpy as np
import pytest
import torch

from nmt_cli.model.compiled.layers import CompiledLayers
from nmt_cli.model.transformer import Transformer
from nmt_cli.search.beams import Beams
from nmt_cli.search.compiled_logits import CompiledBeams, CompiledLogits
from nmt_cli.search.compiled_model import CompiledPast
from nmt_cli.search.logits import Candidates
from nmt_cli.search.rules.rule import BestCandidates, LongestOutput, NeverStart, SlotStates
from nmt_cli.search.sentences import SearchSettings, Sentence
from nmt_cli.search.torch_logits import TorchLogits
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
        assert found.ended == expected.ended
        assert not (found.scores[~busy] > -np.inf).any()
    assert num_done > 10
    assert longest > 32  # the room has grown


@pytest.mark.parametrize("seed", range(3))
def test_logits_continue_the_hypotheses_as_rules_candidates_and_numpy_do(library, seed):
    rng = np.random.default_rng(seed)
    settings = SearchSettings(BEAM, 0.6, 1, bos_id=0, eos_id=EOS)
    expected, found = Beams(SLOTS, settings), CompiledBeams(SLOTS, settings, library)
    rules, choice = (NeverStart(0, EOS), LongestOutput(EOS)), BestCandidates(2 * BEAM)
    num_done = num_at_longest = 0
    for step in range(200):
        free = np.flatnonzero(~expected.is_busy)[: int(rng.integers(0, 3))].tolist()
        sentences = [
            random_sentence(rng)._replace(longest_output=int(rng.integers(2, 9))) for _ in free
        ]
        for beams in (expected, found):
            beams.start(free, [10 * step + place for place in range(len(free))], sentences)
        slots = np.flatnonzero(expected.is_busy)
        if not len(slots):
            nothing = CompiledLogits(np.empty((0, VOCABULARY), np.float32), library)
            assert found.advance_by(slots, nothing) == []
            continue
        logits = torch.from_numpy(rng.normal(size=(len(slots) * BEAM, VOCABULARY)).astype("f"))
        logits[:, EOS] -= 2.0
        num_at_longest += (expected.lengths[slots] >= expected.longest[slots]).sum()
        given, of_numpy = logits.clone(), TorchLogits(logits)
        states = SlotStates(
            expected.prefixes[slots], expected.lengths[slots], expected.longest[slots], {}
        )
        for rule in rules:
            restriction = rule.restriction(states)
            assert restriction is not None
            of_numpy.restrict(restriction)
        candidates = choice.candidates(of_numpy, expected.scores[slots], states)
        done = expected.advance(slots, candidates)
        done_by_logits = found.advance_by(slots, CompiledLogits(given.numpy(), library))
        assert done_by_logits is not None
        assert torch.equal(given, logits)
        assert [without_scores(each) for each in done_by_logits] == [*map(without_scores, done)]
        live = expected.scores > -np.inf
        assert np.array_equal(found.scores > -np.inf, live)
        assert np.allclose(found.scores, expected.scores, atol=1e-4)
        found.scores[:] = expected.scores  # so that rounding does not add up
        assert np.array_equal(found.tokens[live], expected.tokens[live])
        assert np.array_equal(found.parents[live], expected.parents[live])
        num_done += len(done)
    assert num_done > 10
    assert num_at_longest > 10


def without_scores(done):
    number, outcome = done
    tokens = [each.tokens for each in outcome] if isinstance(outcome, tuple) else outcome
    return number, tokens


def test_logits_that_are_not_numbers_change_nothing(library):
    beams = CompiledBeams(SLOTS, SearchSettings(BEAM, 0.6, 1, bos_id=0, eos_id=EOS), library)
    beams.start([1, 4], [0, 1], [random_sentence(np.random.default_rng(1))] * 2)
    logits = torch.zeros(2 * BEAM, VOCABULARY)
    logits[BEAM + 2, 3] = torch.nan
    given, before = logits.clone(), {name: getattr(beams, name).copy() for name in STATE}
    slots = np.array([1, 4])
    assert beams.advance_by(slots, CompiledLogits(logits.numpy(), library)) is None
    of_another = CompiledLogits(np.zeros((3 * BEAM, VOCABULARY), np.float32), library)
    with pytest.raises(AssertionError):
        beams.advance_by(slots, of_another)
    assert torch.equal(logits.nan_to_num(7.0), given.nan_to_num(7.0))
    assert all(np.array_equal(getattr(beams, name), before[name]) for name in STATE)


def test_a_candidate_of_no_hypothesis_is_refused_before_memory_is_read(library):
    beams = CompiledBeams(SLOTS, SearchSettings(BEAM, 0.6, 1, bos_id=0, eos_id=EOS), library)
    beams.start([2], [0], [random_sentence(np.random.default_rng(1))])
    candidates = random_candidates(np.random.default_rng(1), beams, np.array([2]))
    for parent in (-1, BEAM):
        candidates.parents[0, -1] = parent
        with pytest.raises(AssertionError):
            beams.advance(np.array([2]), candidates)


@pytest.mark.parametrize("seed", range(3))
def test_new_entries_take_the_first_places_that_are_in_no_past(library, seed):
    rng = np.random.default_rng(seed)
    model = Transformer(tiny_recipe().model, VOCABULARY)
    layers = CompiledLayers(packed_model(model, library))
    layers.window = 500 if seed == 2 else None  # which no entry leaves
    past = CompiledPast(SLOTS, BEAM, layers)
    expected: list[list[set[int]]] = [[set() for _ in range(BEAM)] for _ in range(SLOTS)]
    rooms = set()
    for step in range(200):
        number = len(expected)
        is_begun = rng.random(number) < (1.0 if step == 0 else 0.02)
        begun = np.flatnonzero(is_begun).tolist()
        past.start(begun, [layers.new_entries(1)] * len(begun))
        parents = rng.integers(0, BEAM, (number, BEAM))
        rests = (rng.random(number) < 0.2) & ~is_begun
        past.advance(parents, np.where(rests, 0, 1 + step))
        for slot in range(number):
            of_slot = [{0}] * BEAM if is_begun[slot] else expected[slot]
            kept = [of_slot[parent] for parent in parents[slot]]
            taken = set().union(*kept)
            free = [place for place in range(500) if place not in taken]
            if not rests[slot]:
                assert past.places[slot].tolist() == free[:BEAM]
                expected[slot] = [own | {place} for own, place in zip(kept, free, strict=False)]
            for own, found in zip(expected[slot], past.is_past[slot], strict=True):
                assert {*np.flatnonzero(found)} == own
            assert past.locations[slot, 1] > max(map(max, expected[slot]))
        rooms.add(past.is_past.shape[2])
        if step == 120:
            past.keep_slots([4, 1, 0, 4])
            expected = [expected[slot] for slot in (4, 1, 0, 4)]
    assert len(rooms) > 2
