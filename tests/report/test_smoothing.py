import numpy as np
import pytest

from nmt_cli.report.charts import moving_mean, window_of


def one_by_one(values, weights, window):
    means = []
    for i in range(len(values)):
        reach = min(window // 2, i)
        around = [
            (v, w)
            for v, w in zip(
                values[i - reach : i + reach + 1], weights[i - reach : i + reach + 1], strict=True
            )
            if np.isfinite(v) and np.isfinite(w)
        ]
        total = sum(w for _, w in around)
        means.append(sum(v * w for v, w in around) / total if total else np.nan)
    return means


@pytest.mark.parametrize("window", [1, 3, 7, 101])
def test_the_mean_is_that_of_the_values_around(window):
    rng = np.random.default_rng(window)
    values, weights = rng.normal(size=40), rng.integers(1, 9, 40).astype(float)
    values[[0, 7, 20, 21, 22, 23, 24]] = np.nan
    weights[30] = np.nan
    expected = one_by_one(values, weights, window)
    assert np.allclose(moving_mean(values, weights, window), expected, equal_nan=True)


def test_weights_of_zero_have_no_mean():
    assert np.isnan(moving_mean(np.ones(5), np.zeros(5), 3)).all()


def test_the_first_value_is_left_as_it_is():
    falling = np.arange(100.0, 0, -1)
    assert moving_mean(falling, np.ones(100), 21)[0] == 100


@pytest.mark.parametrize(("num_values", "window"), [(0, 1), (1, 1), (99, 1), (100, 3), (5000, 101)])
def test_a_window_is_a_share_of_the_run_with_a_middle(num_values, window):
    assert window_of(num_values) == window
