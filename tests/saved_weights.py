"""What a model directory has saved, for tests of training."""

import torch

from nmt_cli.files.file_names import WEIGHTS
from nmt_cli.model.stored_weights import StoredWeights


def read_weights(directory):
    """Return the weights as tensors, by name."""
    stored = StoredWeights(directory / WEIGHTS)
    return {name: torch.from_numpy(weight) for name, weight in stored.items()}
