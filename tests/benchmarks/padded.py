"""The corpus as padded tensors, and the parts of a plain training loop, for the peers.

Legend: B sentences, S and T the longest source and target of a batch, V vocabulary.
"""

from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from tests.benchmarks.shapes import ADAM_BETAS, ADAM_EPSILON, LABEL_SMOOTHING

HEADER_BYTES = 64  # of nmt-cli's token files; uint16 values follow
PAD_ID, BOS_ID = 0, 1  # 0 is the unknown piece, which byte fallback never needs
IGNORED = -100
LEARNING_RATE = 5e-4


class PaddedBatch(NamedTuple):
    """Sentence pairs; each side is padded to its longest sentence."""

    source: Tensor  # B S
    keep: Tensor  # B S, True = a token
    target_input: Tensor  # B T
    target_output: Tensor  # B T, IGNORED where there is no token
    num_target_tokens: int


class PaddedBatches:
    """The batches of a corpus folder, in the order that ``batches.npz`` gives."""

    def __init__(self, folder: str) -> None:
        self._source = _Side(Path(folder), "source")
        self._target = _Side(Path(folder), "target")
        batches = np.load(Path(folder) / "batches.npz")
        self._pairs, self._bounds = batches["pairs"], batches["bounds"]

    def batch(self, index: int) -> PaddedBatch:
        """Return batch ``index``; after the last batch comes the first again."""
        index %= len(self._bounds) - 1
        pairs = self._pairs[self._bounds[index] : self._bounds[index + 1]]
        source, keep = self._source.padded(pairs)
        target, is_token = self._target.padded(pairs)
        target_input = target.roll(1, dims=1)
        target_input[:, 0] = BOS_ID
        target_input[~is_token] = PAD_ID
        target_output = target.masked_fill(~is_token, IGNORED)
        return PaddedBatch(source, keep, target_input, target_output, int(is_token.sum()))


class _Side:
    def __init__(self, folder: Path, side: str) -> None:
        self._tokens = _numbers(folder / f"train.{side}.tokens")
        self._lengths = _numbers(folder / f"train.{side}.lengths").astype(np.int64)
        self._starts = np.cumsum(self._lengths) - self._lengths

    def padded(self, pairs: NDArray[np.int64]) -> tuple[Tensor, Tensor]:
        """Return tokens and which of them are real, both [B, longest]."""
        lengths = self._lengths[pairs]
        is_token = np.arange(lengths.max()) < lengths[:, None]
        places = self._starts[pairs][:, None] + np.arange(lengths.max())
        tokens = np.full(is_token.shape, PAD_ID, dtype=np.int64)
        tokens[is_token] = self._tokens[places[is_token]]
        return torch.from_numpy(tokens), torch.from_numpy(is_token)


def _numbers(path: Path) -> NDArray[np.uint16]:
    return np.fromfile(path, dtype="<u2", offset=HEADER_BYTES)


def fused_adam(model: nn.Module) -> torch.optim.Adam:
    """Return the paper's optimizer in its fastest form."""
    return torch.optim.Adam(
        model.parameters(), lr=LEARNING_RATE, betas=ADAM_BETAS, eps=ADAM_EPSILON, fused=True
    )


def summed_loss(logits: Tensor, target_output: Tensor) -> Tensor:
    """Return the label-smoothed loss [] of ``logits`` [B, T, V]."""
    return F.cross_entropy(
        logits.flatten(0, 1),
        target_output.flatten(),
        ignore_index=IGNORED,
        label_smoothing=LABEL_SMOOTHING,
        reduction="sum",
    )
