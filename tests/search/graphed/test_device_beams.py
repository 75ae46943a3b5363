"""The beams and the past on the device, against those of the CPU and plain sums."""

import numpy as np
import pytest
import torch

from nmt_cli.search.attention_cache import KeysValues, Past
from nmt_cli.search.beams import Beams
from nmt_cli.search.graphed.device_beams import DeviceBeams, StepReport
from nmt_cli.search.logits import Candidates
from nmt_cli.search.sentences import SearchSettings, Sentence
from tests.fake_models import BOS, EOS

NUM_SLOTS = 40


def drawn_sentence(rng, beam_size):
    """Return a sentence with rules of its own in most cases."""
    own = int(rng.integers(1, beam_size + 1))
    return Sentence(
        (),
        int(rng.integers(5, 30)),
        beam_size=own if rng.random() < 0.7 else None,
        n_best=int(rng.integers(1, own + 1)) if rng.random() < 0.7 else None,
        length_penalty=float(rng.choice([0.0, 0.6, 2.0])) if rng.random() < 0.7 else None,
        shares_beam=bool(rng.random() < 0.5),
    )


def drawn_candidates(rng, step, beam_size):
    """Return candidates of all slots, of which some are missing, some are equal and some end."""
    shape = NUM_SLOTS, 2 * beam_size
    scores = -np.sort(rng.integers(0, 4 * beam_size, shape)) - 4.0 * beam_size * step
    is_missing = np.arange(2 * beam_size) >= rng.integers(1, 8 * beam_size, NUM_SLOTS)[:, None]
    scores = np.where(is_missing, -np.inf, scores).astype(np.float32)
    tokens = np.where(rng.random(shape) < 0.1, EOS, rng.integers(3, 9, shape))
    return Candidates(scores, rng.integers(0, beam_size, shape), tokens)


def ended_on_device(of_device, slot, beam_size, n_best):
    """Return the score, the log-probability and the length of the hypotheses that have ended."""
    ended = of_device.ended[slot, :n_best]
    rows = ended[ended[:, 0] > -np.inf].tolist()
    return [(score, total, place // beam_size - 1) for score, total, place in rows]


@pytest.mark.parametrize("beam_size", [1, 2, 4, 9])
def test_device_and_cpu_have_the_same_hypotheses_and_end_at_the_same_step(beam_size):
    rng = np.random.default_rng(beam_size)
    settings = SearchSettings(beam_size, 0.6, 1, BOS, EOS)
    beams, slots = Beams(NUM_SLOTS, settings), np.arange(NUM_SLOTS)
    of_device = DeviceBeams(NUM_SLOTS, settings, torch.device("cpu"))
    no_nan = torch.zeros(NUM_SLOTS, dtype=torch.bool)
    sentences, num_done = dict[int, Sentence](), 0

    def start(numbers):
        for number in numbers:
            sentences[number] = drawn_sentence(rng, beam_size)
        beams.start(numbers, numbers, [sentences[number] for number in numbers])
        of_device.copy_from(beams, numbers)

    start(slots.tolist())
    for step in range(30):
        candidates = drawn_candidates(rng, step, beam_size)
        done = dict(beams.advance(slots, candidates))
        scores, parents, tokens = map(torch.from_numpy, candidates)
        of_device.choose(scores, parents, tokens, no_nan)
        is_free = (of_device.scores == -np.inf).all(dim=1)
        assert is_free.nonzero().flatten().tolist() == sorted(done)
        assert (of_device.lengths[is_free] == 0).all()
        for number, hypotheses in done.items():
            n_best = sentences[number].n_best or 1
            hypotheses = hypotheses if isinstance(hypotheses, tuple) else ()
            expected = [(h.score, h.log_probability, len(h.tokens)) for h in hypotheses]
            assert ended_on_device(of_device, number, beam_size, n_best) == expected
        num_done += len(done)
        for name in ("tokens", "parents", "scores", "lengths"):
            own = getattr(of_device, name).numpy()[beams.is_busy]
            np.testing.assert_array_equal(own, getattr(beams, name)[beams.is_busy], err_msg=name)
        if done:
            start(list(done))
    assert num_done > 60


def test_a_report_is_unpacked_as_it_was_packed():
    generator = torch.Generator().manual_seed(1)
    scores = torch.randn(5, 6, generator=generator)
    scores[1, 2] = -torch.inf
    parents, tokens = (torch.randint(0, 90_000, (5, 6), generator=generator) for _ in range(2))
    scores[3] = -torch.inf
    failed = torch.tensor([0, 17, 0, 0, 0])
    report = StepReport.packed(scores, parents, tokens, failed, torch.tensor([3, 9, 70, 8, 1]))
    assert report.shape == (5, 20)  # 3K+2 columns
    unpacked = StepReport.unpacked(report)
    beams, have_failed, num_places = unpacked
    assert beams[:, 0].copy().view(np.float32).tolist() == scores.tolist()
    assert beams[:, 1].tolist() == parents.tolist()
    assert beams[:, 2].tolist() == tokens.tolist()
    assert have_failed.tolist() == [False, True, False, False, False]
    assert unpacked.are_free.tolist() == [False, False, False, True, False]
    assert num_places == 70


def test_the_candidates_of_a_step_are_the_best_continuations_that_the_rules_allow(monkeypatch):
    """The witness sorts all continuations of each slot."""
    num_slots, beam_size, size = 6, 3, 200
    settings = SearchSettings(beam_size, 0.6, 1, BOS, EOS)
    generator = torch.Generator().manual_seed(2)
    logits = torch.randn(num_slots * beam_size, size, generator=generator)
    logits[:, BOS] = 9.0
    logits[2 * beam_size + 1, 5] = torch.nan  # in one hypothesis of slot 2
    logits[5 * beam_size, 5] = torch.nan  # in a slot that is free
    beams = Beams(num_slots, settings)
    longest = [9, 9, 9, 1, 9]
    beams.start(range(5), range(5), [Sentence((), each) for each in longest])  # slot 5 is free
    beams.scores[:5] = -torch.rand(5, beam_size, generator=generator).numpy()
    beams.scores[1, 2] = -np.inf
    beams.lengths[:5] = 1
    of_device, seen = DeviceBeams(num_slots, settings, torch.device("cpu")), list[torch.Tensor]()
    of_device.copy_from(beams, range(num_slots))
    choose = of_device.choose

    def noting(*of_step):
        seen.extend(of_step)
        choose(*of_step)

    monkeypatch.setattr(of_device, "choose", noting)
    of_device.advance(logits.clone(), torch.arange(num_slots))
    report = StepReport.unpacked(of_device.report)
    assert report.have_failed.tolist() == [False, False, True, False, False, False]
    assert report.are_free.tolist() == [False, False, True, True, False, True]
    assert report.num_places == num_slots - 1
    totals = logits.double().log_softmax(1).view(num_slots, beam_size, size).numpy()
    totals += beams.scores[:, :, None]
    totals[:, :, BOS] = -np.inf
    totals[3, :, :EOS] = totals[3, :, EOS + 1 :] = -np.inf  # its longest output has no piece
    scores, parents, tokens, _ = (each.numpy() for each in seen)
    for slot in (0, 1, 3, 4):
        order = np.argsort(-totals[slot].ravel(), kind="stable")[: 2 * beam_size]
        best = totals[slot].ravel()[order]
        np.testing.assert_allclose(scores[slot], best, atol=1e-5)
        possible = best > -np.inf
        places = parents[slot] * size + tokens[slot]
        assert places[possible].tolist() == order[possible].tolist()
    assert not (scores[5] > -np.inf).any()


def test_free_slots_use_no_more_places_than_a_step_needs():
    layers = [KeysValues(torch.zeros(2, 1, 4, 32), torch.zeros(2, 1, 32, 4))]
    past = Past(layers, 3)
    past.start([0, 1], torch.zeros(2, 1, 8))
    parents = torch.arange(3).expand(2, 3)
    for step in range(1, 6):
        past.advance(parents, torch.tensor([step, 0]))
        assert past.num_places().tolist() == [1 + 3 * step, 3]
