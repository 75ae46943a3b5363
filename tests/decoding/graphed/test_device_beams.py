"""The beams of the device, against those of the CPU, step by step."""

import numpy as np
import pytest
import torch

from nmt_cli.decoding.beams import Beams, Candidates, SearchSettings
from nmt_cli.decoding.graphed.device_beams import DeviceBeams
from nmt_cli.decoding.graphed.step_report import StepReport
from tests.fake_models import BOS, EOS

NUM_SLOTS = 40


@pytest.mark.parametrize("beam_size", [1, 2, 4, 9])
def test_both_choose_the_same_hypotheses_in_the_same_order(beam_size):
    """Otherwise the parents that a report names would be others on the CPU."""
    rng = np.random.default_rng(beam_size)
    settings = SearchSettings(beam_size, 0.6, 1, BOS, EOS)
    beams, slots = Beams(NUM_SLOTS, settings), np.arange(NUM_SLOTS)
    beams.start(slots.tolist(), slots.tolist(), [30] * NUM_SLOTS, [1] * NUM_SLOTS)
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
        beams.start(numbers, numbers, [30] * len(done), [1] * len(done))
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
