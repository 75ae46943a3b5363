"""Token embeddings and positions (sections 3.4 and 3.5).

Legend: T tokens of all sentences, D d_model.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nmt_cli.model.dropout import Dropout
from nmt_cli.model.packing import Packed
from nmt_cli.model.sinusoids import sinusoids
from nmt_cli.recipe.model_values import ModelShape


class SinusoidalPositions(nn.Module):
    """The fixed positions of the paper, for sentences of any length."""

    table: Tensor

    def __init__(self, d_model: int, frequencies: str, first_position: int) -> None:
        super().__init__()
        self.frequencies, self.first_position = frequencies, first_position
        self.register_buffer("table", self._first(256, d_model), persistent=False)

    def forward(self, num_positions: int) -> Tensor:
        """Return the vectors [any, D] of the first positions, at least so many."""
        if num_positions > len(self.table):
            # Doubled, so that lengths that grow one by one do not rebuild the table each time.
            size = max(num_positions, 2 * len(self.table))
            self.table = self._first(size, self.table.shape[1]).to(self.table)
        return self.table

    def _first(self, num_positions: int, d_model: int) -> Tensor:
        table = sinusoids(num_positions, d_model, self.frequencies, self.first_position)
        return torch.from_numpy(table)


class LearnedPositions(nn.Module):
    """One learned vector for each position (row E of Table 3)."""

    def __init__(self, num_positions: int, d_model: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(num_positions, d_model))
        nn.init.normal_(self.weight, std=d_model**-0.5)

    def forward(self, num_positions: int) -> Tensor:
        """Return the vectors [any, D] of all positions.

        Raises ValueError if the model has fewer than ``num_positions``.
        """
        if num_positions > len(self.weight):
            raise ValueError(
                f"a sentence of {num_positions:,} pieces is longer than "
                f"model.max_positions {len(self.weight):,}"
            )
        return self.weight


class Embedding(nn.Module):
    """Token vectors times a scale, plus positions, with dropout (sections 3.4 and 5.4)."""

    rounding: Callable[[Tensor], Tensor] | None = None  # of learned vectors; None: not rounded

    def __init__(
        self, weight: nn.Parameter, config: ModelShape, *, starts_with_zeros: bool = False
    ) -> None:
        """Make the embedding of one side.

        If it ``starts_with_zeros``, the token vector at the first position is zero.
        """
        super().__init__()
        self.weight, self.starts_with_zeros = weight, starts_with_zeros
        width, has_norm = config.d_model, config.embedding_norm
        self.scale = math.sqrt(width) if config.scale_embeddings else 1.0
        self.positions: SinusoidalPositions | LearnedPositions
        if config.positions == "learned":
            self.positions = LearnedPositions(config.max_positions, width)
        else:
            kind = config.sinusoid_frequencies, config.first_position
            self.positions = SinusoidalPositions(width, *kind)
        self.norm = nn.LayerNorm(width, config.norm_epsilon) if has_norm else nn.Identity()
        self.dropout = Dropout(config.dropout)
        self.pre_norm = config.norm == "pre"

    def forward(self, batch: Packed) -> Tensor:
        """Return the vectors [T, D] that enter the first layer."""
        rows = self.embed(batch.tokens, batch.positions, batch.longest)
        if torch.is_autocast_enabled(rows.device.type) and not self.pre_norm:
            # The residual sums then have this dtype too: conversions would cost more than the sums.
            # The sums of pre-norm grow from layer to layer, so they stay in fp32.
            rows = rows.to(torch.get_autocast_dtype(rows.device.type))
        return self.dropout(rows)

    def embed(self, tokens: Tensor, positions: Tensor, num_positions: int) -> Tensor:
        """Return the vectors of ``tokens`` at ``positions``, all below ``num_positions``."""
        vectors = F.embedding(tokens, self.weight)
        of_positions = F.embedding(positions, self.positions(num_positions))
        if self.rounding is not None:
            vectors = self.rounding(vectors)
            if isinstance(self.positions, LearnedPositions):
                of_positions = self.rounding(of_positions)
        if self.starts_with_zeros:
            vectors = vectors.masked_fill((positions == 0)[:, None], 0.0)
        return self.norm(torch.add(of_positions, vectors, alpha=self.scale))
