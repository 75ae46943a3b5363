"""The interface of rules that decide which tokens may follow the hypotheses of a search.

The first tokens of new sentences are decided before these have slots. Then the sentences take the
place of the slots, and each has one hypothesis, which is empty (K = 1).

Legend: S slots, K hypotheses of each, R = S*K rows (row r is hypothesis r % K of slot r // K),
V vocabulary, L positions of a hypothesis.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


class SlotStates(NamedTuple):
    """The state of the search that a rule reads; a rule must not change it."""

    prefixes: NDArray[Any]  # S K L token ids so far; those beyond the slot's length are meaningless
    lengths: NDArray[Any]  # S tokens so far
    longest: NDArray[Any]  # S tokens allowed before </s>
    is_busy: NDArray[Any]  # S whether the slot holds a sentence
    data: Mapping[int, Any]  # this rule's entry of Sentence.rule_data, by slot, if there is one

    @property
    def beam_size(self) -> int:
        """The number of hypotheses of a slot."""
        return int(self.prefixes.shape[1])


class LogitsRule(Protocol):
    """Forbids tokens by setting their logits to -inf, in place.

    Log-probabilities are normalized over the whole vocabulary before any rule applies. A rule
    therefore never changes the probability of the tokens that it allows.
    """

    @property
    def name(self) -> str:
        """The key of this rule's data in ``Sentence.rule_data``."""
        ...

    def apply(self, logits: Tensor, states: SlotStates) -> None:
        """Change ``logits`` [R, V] in place; return at once if no slot needs the rule."""
        ...


def rows_of(slots: NDArray[Any], states: SlotStates) -> NDArray[Any]:
    """Return the rows [B, K] of ``slots`` [B]."""
    return slots[:, None] * states.beam_size + np.arange(states.beam_size)


def forbid(logits: Tensor, rows: NDArray[Any], tokens: NDArray[Any]) -> None:
    """Forbid in each of ``rows`` of ``logits`` [R, V] its entry of ``tokens``."""
    if len(rows):
        places = (torch.from_numpy(each.astype(np.int64)) for each in (rows, tokens))
        logits[tuple(each.to(logits.device) for each in places)] = -torch.inf


def allow_only(logits: Tensor, rows: Tensor, token: int | Tensor) -> None:
    """Forbid everything but ``token``, or its entry for the row, in ``rows`` of ``logits``."""
    kept = logits[rows, token]
    logits[rows] = -torch.inf
    logits[rows, token] = kept
