"""The fixed positions of section 3.5."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

PAPERS_BASE = 10_000  # of the wavelengths of sinusoids


def sinusoids(
    num_positions: int, d_model: int, frequencies: str = "paper", first_position: int = 0
) -> NDArray[Any]:
    """Return PE [positions, d_model] in fp32: sines at even, cosines at odd dimensions.

    Tensor2Tensor's ``frequencies`` reach 1/10,000 in the last pair of dimensions; the paper's do
    not quite.
    """
    exponents = np.arange(0, d_model, 2) / d_model
    if frequencies == "tensor2tensor":
        exponents = np.arange(d_model // 2) / max(1, d_model // 2 - 1)
    places = np.arange(first_position, first_position + num_positions)
    angles = places[:, None] / PAPERS_BASE**exponents
    table = np.empty((num_positions, d_model), np.float32)
    np.sin(angles, out=table[:, 0::2], casting="same_kind")
    np.cos(angles, out=table[:, 1::2], casting="same_kind")
    return table
