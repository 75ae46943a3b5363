"""Self-attention that is restricted to the rows near each row (section 4).

Legend: B sentences of a group, H heads, L places of a sentence, N blocks of a sentence, C queries
of a block, W keys of a block.
"""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

LEAST_BLOCK = 64  # queries; fewer would take more small products
FARTHEST = 1 << 40


class Window(NamedTuple):
    """The number of rows before its own that a row attends to, and of those behind it; -1: all."""

    back: int
    ahead: int

    @classmethod
    def of(cls, farthest: int | None, *, causal: bool) -> "Window":
        """Return the window of rows that are at most ``farthest`` away; None: of all rows.

        With ``causal`` it has no rows behind its own.
        """
        back = -1 if farthest is None else farthest
        return cls(back, 0 if causal else back)

    def reaches(self, places: Tensor) -> Tensor:
        """Return which keys are within the window; ``places`` are their ``distances``."""
        back, ahead = (FARTHEST if each < 0 else each for each in self)
        return (places >= -back) & (places <= ahead)

    def reaches_real(self, places: Tensor, keep: Tensor | None) -> Tensor:
        """Return which keys within the window are no holes; ``keep`` is False for holes.

        Each row reaches itself, also a hole: a softmax over no keys would be NaN.
        """
        found = self.reaches(places)
        return found if keep is None else (found & keep) | (places == 0)


EVERYTHING, THE_PAST = Window(-1, -1), Window(-1, 0)


def distances(num_queries: int, num_keys: int, device: torch.device) -> Tensor:
    """Return how far each key is behind each query [queries, keys], negative if it is before it."""
    return torch.arange(num_keys, device=device) - torch.arange(num_queries, device=device)[:, None]


def attend_in_blocks(
    window: Window,
    keep: Tensor | None,
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    dropout: float,
) -> Tensor:
    """Return softmax(QK^T / sqrt(K)) V [B, H, L, V] where rows attend within ``window``.

    Blocks of queries are multiplied by the keys near them, so memory grows with the length, not
    with its square. ``queries``, ``keys`` and ``values`` are [B, H, L, any]; ``keep`` [B, 1, 1, L]
    is False for holes.
    """
    num_sentences, length = len(queries), queries.shape[2]
    size = max(LEAST_BLOCK, *window)
    back, ahead = window
    if length <= size:  # one block, whose keys are all near
        size, back, ahead = length, 0, 0
    num_blocks = -(-length // size)
    spare, num_keys = num_blocks * size - length, back + size + ahead
    q = F.pad(queries, (0, 0, 0, spare)).unflatten(2, (num_blocks, size))
    k, v = (
        F.pad(each, (0, 0, back, ahead + spare)).unfold(2, num_keys, size).transpose(3, 4)
        for each in (keys, values)
    )
    q, k, v = (each.transpose(1, 2).flatten(0, 1) for each in (q, k, v))  # B*N H C or W any
    if keep is None:
        keep = torch.ones(1, 1, 1, length, dtype=torch.bool, device=queries.device)
    is_real = F.pad(keep.expand(num_sentences, -1, -1, -1), (back, ahead + spare))
    is_real = is_real.unfold(3, num_keys, size).transpose(1, 3).flatten(0, 1)  # B*N 1 1 W
    mask = window.reaches_real(distances(size, num_keys, queries.device) - back, is_real)
    attended = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=dropout)
    return attended.unflatten(0, (num_sentences, -1)).transpose(1, 2).flatten(2, 3)[:, :, :length]
