import pytest

from nmt_cli.optimization import inverse_sqrt, learning_rate, peaked_inverse_sqrt
from nmt_cli.recipe.training_config import TrainingConfig


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
