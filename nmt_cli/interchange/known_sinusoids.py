"""The sinusoids of known programs: the order of their dimensions, and tables that hold them."""

from collections.abc import Collection
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nmt_cli.interchange.files import Array
from nmt_cli.model.embeddings import sinusoids

FREQUENCIES = ("paper", "tensor2tensor")
FIRST_POSITIONS = range(4)


def sines_first(d_model: int) -> NDArray[np.intp]:
    """Return the places of the even dimensions, then those of the odd ones."""
    return np.concatenate([np.arange(0, d_model, 2), np.arange(1, d_model, 2)])


def order_from_sines_first(d_model: int) -> NDArray[np.intp]:
    """Return the places of our dimensions in vectors with the sines first."""
    return np.argsort(sines_first(d_model))


def known_sinusoids(tables: Collection[Array], tolerance: float) -> dict[str, Any] | None:
    """Return the options of the sinusoids that all ``tables`` [positions, D] hold.

    Sines and cosines are in turn, as ours. None if a table holds anything else.
    """
    for frequencies, first in product(FREQUENCIES, FIRST_POSITIONS):
        if all(_are_sinusoids(table, frequencies, first, tolerance) for table in tables):
            return {"sinusoid_frequencies": frequencies, "first_position": first}
    return None


def _are_sinusoids(table: Array, frequencies: str, first_position: int, tolerance: float) -> bool:
    if table.shape[1] % 2:
        return False
    ours = sinusoids(len(table), table.shape[1], frequencies, first_position).numpy()
    return bool(np.abs(table - ours).max(initial=0.0) < tolerance)
