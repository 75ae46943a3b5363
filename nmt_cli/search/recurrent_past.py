"""What incremental decoding keeps of the past for recurrent units: their states.

Legend: S slots, K beam, D d_model.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from nmt_cli.hardware.device import sent_to
from nmt_cli.model.recurrence import RecurrentUnit
from nmt_cli.recipe.model_values import StackShape
from nmt_cli.search.attention_cache import KeysValues


class RecurrentPast:
    """The past of every hypothesis as states of recurrent units, in place of a ``Past``.

    Their tensor keeps its address, so that a CUDA graph can repeat a step.
    """

    def __init__(self, num_slots: int, beam_size: int, shape: StackShape, like: Tensor) -> None:
        """Make states of zeros with the dtype and device of ``like`` [any, D]."""
        self.states = like.new_zeros(num_slots, beam_size, shape.num_layers, like.shape[1])
        self.layers = list[KeysValues]()  # there are no entries

    @property
    def of_slots(self) -> list[Tensor]:
        """What it keeps of each slot [S, any]."""
        return [self.states]

    @property
    def of_places(self) -> list[Tensor]:
        """What it keeps of places: nothing."""
        return []

    @staticmethod
    def first(sublayer: nn.Module, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Return the output [B, D] of first tokens ``rows`` [B, D], and their states."""
        assert isinstance(sublayer, RecurrentUnit)
        _, inputs = sublayer.parts(rows)
        states = inputs.to(rows.dtype)
        return states.relu(), states

    def start(self, slots: Sequence[int], kept: Tensor) -> None:
        """Let ``kept`` [B, layers, D] be the states of all hypotheses in ``slots``."""
        self.states[sent_to(self.states.device, slots)] = kept[:, None]

    def advance(self, parents: Any, positions: Any) -> None:
        """Give each hypothesis the states of its parent, at ``parents`` [S, K] in the beam."""
        del positions  # what free slots compute is not read
        at = sent_to(self.states.device, parents)[:, :, None, None]
        self.states.copy_(self.states.gather(1, at.expand_as(self.states)))

    def attend(self, layer: int, sublayer: nn.Module, rows: Tensor) -> Tensor:
        """Return the output [S*K, D] of ``rows`` [S*K, D]; keep their states."""
        assert isinstance(sublayer, RecurrentUnit)
        decays, inputs = sublayer.parts(rows)
        states = self.states[:, :, layer].flatten(0, 1)
        found = (decays * states + inputs).to(rows.dtype)
        self.states[:, :, layer] = found.unflatten(0, self.states.shape[:2])
        return found.relu()

    def end_step(self) -> None:
        """Do nothing: no tensor of the step is kept."""

    def num_places(self) -> Tensor:
        """Return 0 for each slot [S]."""
        return torch.zeros(len(self.states), dtype=torch.int64, device=self.states.device)

    def keep_slots(self, slots: Sequence[int]) -> None:
        """Drop all slots but these."""
        self.states = self.states[sent_to(self.states.device, slots)]

    def forget(self, slots: Sequence[int]) -> None:
        """Set the states of ``slots`` to 0."""
        self.states[sent_to(self.states.device, slots)] = 0.0
