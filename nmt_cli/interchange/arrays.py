"""Weights as arrays, which exports and imports have in common."""

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float32]
Weights = dict[str, Array]
# The sides of a model, and our names of their text.
SIDES = {"encoder": "source", "decoder": "target"}
