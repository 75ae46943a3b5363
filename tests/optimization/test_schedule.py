import itertools

import pytest
import torch

from nmt_cli.optimization import inverse_sqrt, learning_rate, peaked_inverse_sqrt
from nmt_cli.recipe.sections.training import TrainingConfig


def test_learning_rate_peaks_when_warmup_ends():
    rates = [inverse_sqrt(step, d_model=512, warmup_steps=40) for step in range(1, 200)]
    assert rates.index(max(rates)) + 1 == 40


@pytest.mark.parametrize("step", [1, 7, 3_999, 4_000, 4_001, 100_000])
def test_learning_rate_is_equation_3(step):
    expected = 512**-0.5 * min(step**-0.5, step * 4000**-1.5)
    assert learning_rate(step, TrainingConfig(), d_model=512) == pytest.approx(expected)
    doubled = TrainingConfig(learning_rate_factor=2.0)
    assert learning_rate(step, doubled, d_model=512) == pytest.approx(2 * expected)


def test_a_peak_replaces_the_height_and_keeps_the_shape():
    paper_peak = inverse_sqrt(40, d_model=512, warmup_steps=40)
    for step in range(1, 200):
        expected = inverse_sqrt(step, d_model=512, warmup_steps=40)
        assert peaked_inverse_sqrt(step, paper_peak, 40) == pytest.approx(expected)


def test_warmup_rises_from_its_start_in_equal_parts():
    training = TrainingConfig(peak_learning_rate=5e-3, warmup_start=1e-7, warmup_steps=2_000)
    rates = [learning_rate(step, training, d_model=128) for step in (500, 1_000, 2_000, 8_000)]
    assert rates == pytest.approx(
        [1e-7 + (5e-3 - 1e-7) / 4, 1e-7 + (5e-3 - 1e-7) / 2, 5e-3, 2.5e-3]
    )


def rates_of(steps, **keys):
    training = TrainingConfig(peak_learning_rate=1e-3, warmup_steps=10, max_steps=100, **keys)
    return [learning_rate(step, training, d_model=128) for step in steps]


@pytest.mark.parametrize(
    "keys",
    [
        {"schedule": "constant"},
        {"schedule": "inverse_sqrt"},
        {"schedule": "cosine", "decay_steps": 90},
        {"schedule": "wsd", "stable_steps": 30, "decay_steps": 60},
    ],
)
def test_every_schedule_rises_to_its_peak(keys):
    assert rates_of([1, 5, 10], **keys) == pytest.approx([1e-4, 5e-4, 1e-3])
    assert max(rates_of(range(1, 101), **keys)) == pytest.approx(1e-3)


def test_a_constant_rate_stays():
    assert set(rates_of(range(10, 1_000, 90), schedule="constant")) == {1e-3}


def test_inverse_sqrt_is_noam_with_a_peak():
    steps = range(1, 100)
    assert rates_of(steps, schedule="inverse_sqrt") == rates_of(steps)
    assert rates_of([40, 1_000], schedule="inverse_sqrt") == pytest.approx([5e-4, 1e-4])


def test_cosine_is_that_of_torch():
    weight = torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([weight], lr=1e-3)
    theirs = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=60, eta_min=1e-5)
    expected = []
    for _ in range(61):
        expected.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        theirs.step()
    keys = {"schedule": "cosine", "decay_steps": 60, "final_learning_rate": 1e-5}
    assert rates_of(range(10, 71), **keys) == pytest.approx(expected)
    assert rates_of([71, 100, 10**9], **keys) == pytest.approx([1e-5] * 3)


def test_wsd_stays_and_then_falls_in_a_straight_line():
    keys = {"schedule": "wsd", "stable_steps": 30, "decay_steps": 50, "final_learning_rate": 2e-4}
    assert rates_of([10, 11, 40], **keys) == pytest.approx([1e-3] * 3)
    found = rates_of(range(40, 91), **keys)
    falls = [before - after for before, after in itertools.pairwise(found)]
    assert falls == pytest.approx([8e-4 / 50] * 50)
    assert rates_of([90, 91], **keys) == pytest.approx([2e-4] * 2)


def test_the_last_step_of_a_decay_to_nothing_has_no_rate():
    wsd = {"schedule": "wsd", "stable_steps": 40, "decay_steps": 50}
    for keys in ({"schedule": "cosine", "decay_steps": 90}, wsd):
        *_, before, last = rates_of(range(1, 101), **keys)
        assert 0 < before < 1e-4
        assert last == 0
