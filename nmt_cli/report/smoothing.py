"""Smooths noisy values by a moving mean."""

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
SHARE_OF_RUN = 0.02


def window_of(num_values: int) -> int:
    """Return the size of the smoothing window for ``num_values`` values, an odd number."""
    return 2 * int(num_values * SHARE_OF_RUN / 2) + 1


def moving_mean(values: Floats, weights: Floats, window: int) -> Floats:
    """Return the weighted mean of the ``window`` values around each value.

    Near the beginning the window shrinks on both sides, because losses fall fast there; near the
    end it is cut off. NaN and values of weight 0 are ignored. The mean is NaN only if all values in
    its window are ignored.
    """
    counts = np.isfinite(values) & (weights > 0)  # NaN is not greater
    weights = np.where(counts, weights, 0.0)
    totals = _moving_sum(np.where(counts, values, 0.0) * weights, window)
    shares = _moving_sum(weights, window)
    numbers = _moving_sum(counts.astype(float), window)
    return np.divide(totals, shares, out=np.full(len(values), np.nan), where=numbers > 0.5)


def _moving_sum(values: Floats, window: int) -> Floats:
    sums = np.concatenate([[0.0], np.cumsum(values)])
    places = np.arange(len(values))
    reach = np.minimum(window // 2, places)
    return sums[np.minimum(places + reach + 1, len(values))] - sums[places - reach]
