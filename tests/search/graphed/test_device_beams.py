"""The beams and the past on the device, against those of the CPU and plain sums."""

import numpy as np
import pytest
import torch

from nmt_cli.search.beams import Beams, Candidates, SearchSettings
from nmt_cli.search.graphed.caches import FixedPast
from nmt_cli.search.graphed.device_beams import DeviceBeams, StepReport
from nmt_cli.search.sentences import Sentence
from nmt_cli.search.slot_parts import KeysValues
from tests.fake_models import BOS, EOS

NUM_SLOTS = 40


@pytest.mark.parametrize("beam_size", [1, 2, 4, 9])
def test_both_choose_the_same_hypotheses_in_the_same_order(beam_size):
    """Otherwise the parents that a report names would be others on the CPU."""
    rng = np.random.default_rng(beam_size)
    settings = SearchSettings(beam_size, 0.6, 1, BOS, EOS)
    beams, slots = Beams(NUM_SLOTS, settings), np.arange(NUM_SLOTS)
    sentences = [
        Sentence((), 30, beam_size=1 + number % beam_size if number % 3 else None)
        for number in range(NUM_SLOTS)
    ]
    beams.start(slots.tolist(), slots.tolist(), sentences)
    of_device = DeviceBeams(NUM_SLOTS, settings, torch.device("cpu"))
    of_device.copy_from(beams, slots.tolist())
    shape = NUM_SLOTS, 2 * beam_size
    num_done = 0
    for step in range(25):
        scores = -np.sort(rng.integers(0, 4 * beam_size, shape)) - 4.0 * beam_size * step
        is_missing = np.arange(2 * beam_size) >= rng.integers(1, 8 * beam_size, NUM_SLOTS)[:, None]
        scores = np.where(is_missing, -np.inf, scores).astype(np.float32)
        parents = rng.integers(0, beam_size, shape)
        ends = rng.random(shape) < 0.03
        tokens = np.where(ends, EOS, rng.integers(3, 9, shape))
        done = beams.advance(slots, Candidates(scores, parents, tokens))
        of_device.choose(*map(torch.from_numpy, (scores, parents, tokens)))
        of_device.copy_from(beams, [found.number for found in done])
        num_done += len(done)
        for name in ("tokens", "parents", "scores", "lengths"):
            own = getattr(of_device, name).numpy()
            np.testing.assert_array_equal(own, getattr(beams, name), err_msg=name)
        numbers = [found.number for found in done]
        beams.start(numbers, numbers, [sentences[number] for number in numbers])
        of_device.copy_from(beams, numbers)
    assert num_done > 20


def test_a_report_is_unpacked_as_it_was_packed():
    generator = torch.Generator().manual_seed(1)
    scores = torch.randn(5, 6, generator=generator)
    scores[1, 2] = -torch.inf
    parents, tokens = (torch.randint(0, 90_000, (5, 6), generator=generator) for _ in range(2))
    is_nan = torch.tensor([False, True, False, False, True])
    report = StepReport.packed(scores, parents, tokens, is_nan, torch.tensor([3, 9, 70, 8, 1]))
    assert report.shape == (5, StepReport.width(6))
    candidates, is_nan_too, num_places = StepReport.unpacked(report)
    for witness, found in zip((scores, parents, tokens), candidates, strict=True):
        np.testing.assert_array_equal(found, witness.numpy())
    assert is_nan_too.tolist() == is_nan.tolist()
    assert num_places == 70


def test_a_step_reports_the_best_continuations_that_the_rules_allow():
    """The witness sorts all continuations of each slot."""
    num_slots, beam_size, size = 6, 3, 200
    settings = SearchSettings(beam_size, 0.6, 1, BOS, EOS)
    generator = torch.Generator().manual_seed(2)
    logits = torch.randn(num_slots * beam_size, size, generator=generator)
    logits[:, BOS] = 9.0
    logits[2 * beam_size + 1, 5] = torch.nan  # in one hypothesis of slot 2
    beams = Beams(num_slots, settings)
    longest = [9, 9, 9, 0, 9]
    beams.start(range(5), range(5), [Sentence((), each) for each in longest])  # slot 5 is free
    beams.scores[:5] = -torch.rand(5, beam_size, generator=generator).numpy()
    beams.scores[1, 2] = -np.inf
    of_device = DeviceBeams(num_slots, settings, torch.device("cpu"))
    of_device.copy_from(beams, range(num_slots))
    of_device.advance(logits.clone(), torch.arange(num_slots))
    candidates, is_nan, num_places = StepReport.unpacked(of_device.report)
    assert is_nan.tolist() == [False, False, True, False, False, False]
    assert num_places == num_slots - 1
    totals = logits.double().log_softmax(1).view(num_slots, beam_size, size).numpy()
    totals += beams.scores[:, :, None]
    totals[:, :, BOS] = -np.inf
    totals[3, :, :EOS] = totals[3, :, EOS + 1 :] = -np.inf  # its longest output has no piece
    for slot in (0, 1, 3, 4):
        order = np.argsort(-totals[slot].ravel(), kind="stable")[: 2 * beam_size]
        best = totals[slot].ravel()[order]
        np.testing.assert_allclose(candidates.scores[slot], best, atol=1e-5)
        possible = best > -np.inf
        places = candidates.parents[slot] * size + candidates.tokens[slot]
        assert places[possible].tolist() == order[possible].tolist()
    assert (candidates.scores[5] == -np.inf).all()


def test_free_slots_use_no_more_places_than_a_step_needs():
    layers = [KeysValues(torch.zeros(2, 1, 4, 32), torch.zeros(2, 1, 32, 4))]
    past = FixedPast(layers, 3)
    past.start([0, 1], torch.zeros(2, 1, 8))
    parents = torch.arange(3).expand(2, 3)
    for step in range(1, 6):
        past.advance(parents, torch.tensor([False, True]))
        assert past.num_places().tolist() == [1 + 3 * step, 3]
