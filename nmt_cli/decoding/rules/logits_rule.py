"""What a rule of the search is: it decides which tokens may follow the hypotheses.

Legend: S slots, K beam, R = S*K rows (row r is hypothesis r % K of slot r // K), V vocabulary,
L places of a hypothesis.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

import torch
from numpy.typing import NDArray
from torch import Tensor


class SlotStates(NamedTuple):
    """What a rule may read of the hypotheses; nothing of it may be changed."""

    prefixes: NDArray[Any]  # S K L token ids so far; places from the slot's length on mean nothing
    lengths: NDArray[Any]  # S tokens so far
    longest: NDArray[Any]  # S tokens allowed before </s>
    is_busy: NDArray[Any]  # S whether the slot holds a sentence
    data: Mapping[int, Any]  # by slot: what its sentence brought for this rule, if anything

    @property
    def beam_size(self) -> int:
        """The hypotheses of a slot."""
        return int(self.prefixes.shape[1])


class LogitsRule(Protocol):
    """Forbids tokens by setting their logits to -inf, in place.

    Scores are normalized over the whole vocabulary before any rule applies, so a rule changes what
    may follow and never the probability of what does.
    """

    @property
    def name(self) -> str:
        """The key of this rule's data in ``Sentence.rule_data``."""
        ...

    def apply(self, logits: Tensor, states: SlotStates) -> None:
        """Change ``logits`` [R, V]; does no work for each row where no slot needs the rule."""
        ...


def allow_only(logits: Tensor, rows: Tensor, token: int) -> None:
    """Forbid everything but ``token`` in ``rows`` of ``logits`` [R, V]."""
    kept = logits[rows, token]
    logits[rows] = -torch.inf
    logits[rows, token] = kept
