"""What a step on the device reports to the CPU.

Legend: S slots, C candidates of a slot.
"""

from typing import NamedTuple, Self

import numpy as np
import torch
from torch import Tensor

from nmt_cli.decoding.beams import Array, Candidates


class StepReport(NamedTuple):
    """The candidates of a step, and what else the CPU needs.

    Packed in one int32 tensor [S, 3C+2]: C scores (the bits of fp32), C parents, C tokens, whether
    a logit was not a number, and the highest used place of the past + 1.
    """

    candidates: Candidates
    is_nan: Array  # S
    num_places: int  # the highest used place of the past + 1, over all slots

    @staticmethod
    def width(num_candidates: int) -> int:
        """Return the columns of a packed report with so many candidates (C)."""
        return 3 * num_candidates + 2

    @staticmethod
    def packed(
        scores: Tensor, parents: Tensor, tokens: Tensor, is_nan: Tensor, num_places: Tensor
    ) -> Tensor:
        """Return the report of candidates [S, C], ``is_nan`` [S] and ``num_places`` [S]."""
        parts = scores.view(torch.int32), parents, tokens, is_nan[:, None], num_places[:, None]
        return torch.cat([part.to(torch.int32) for part in parts], dim=1)

    @classmethod
    def unpacked(cls, report: Tensor) -> Self:
        """Return what ``packed`` returned, from its copy on the CPU."""
        *candidates, others = np.split(report.numpy(), _ends(report.shape[1]), axis=1)
        scores, parents, tokens = candidates
        scores = np.ascontiguousarray(scores).view(np.float32)
        return cls(
            Candidates(scores, parents.astype(np.int64), tokens.astype(np.int64)),
            others[:, 0] != 0,
            int(others[:, 1].max()),
        )


def _ends(width: int) -> list[int]:
    num_candidates = (width - 2) // 3
    return [num_candidates, 2 * num_candidates, 3 * num_candidates]
