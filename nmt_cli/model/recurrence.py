"""The simpler simple recurrent unit (SSRU) of Kim et al. (2019), in place of self-attention.

Legend: T rows of all sentences, D d_model, B sentences, L length of the longest.
"""

from typing import Any

import torch
from torch import Tensor, nn

from nmt_cli.model.packing import Packed


class RecurrentUnit(nn.Module):
    """max(0, c_t) with c_t = f_t c_{t-1} + (1 - f_t) W x_t and f_t = sigmoid(W_f x_t + b_f)."""

    def __init__(self, d_model: int) -> None:
        super().__init__()
        self.candidates = nn.Linear(d_model, d_model, bias=False)
        self.forget_gates = nn.Linear(d_model, d_model)
        for linear in (self.candidates, self.forget_gates):
            nn.init.xavier_uniform_(linear.weight)
        nn.init.zeros_(self.forget_gates.bias)

    def forward(self, rows: Tensor, sentences: Packed) -> Tensor:
        """Return the output [T, D] of ``rows`` [T, D]; each depends on those before it."""
        decays, inputs = self.parts(rows)
        states: Tensor = Recurrence.apply(decays, inputs, sentences)  # type: ignore[no-untyped-call]
        return torch.relu(states).to(rows.dtype)

    def parts(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Return f_t and (1 - f_t) W x_t [T, D], at least in fp32."""
        dtype = torch.promote_types(rows.dtype, torch.float32)
        gates = torch.sigmoid(self.forget_gates(rows).to(dtype))
        return gates, (1 - gates) * self.candidates(rows).to(dtype)


class Recurrence(torch.autograd.Function):
    """c_t = decay_t c_{t-1} + input_t within each sentence, where c_0 is 0."""

    @staticmethod
    def forward(ctx: Any, decays: Tensor, inputs: Tensor, sentences: Packed) -> Tensor:
        """Return the states c [T, D]."""
        states = _scan(decays, inputs, sentences)
        ctx.save_for_backward(decays, states)
        ctx.sentences = sentences
        return states

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> tuple[Tensor, Tensor, None]:
        """Return the gradients of decays and inputs, by a recurrence that begins at the ends."""
        decays, states = ctx.saved_tensors
        positions = ctx.sentences.positions
        is_last = torch.cat([positions[1:], positions.new_zeros(1)]) == 0
        following = torch.where(is_last[:, None], 0.0, decays.roll(-1, dims=0))
        of_inputs = _scan(following, gradients[0], ctx.sentences, is_reversed=True)
        before = torch.where(positions[:, None] == 0, 0.0, states.roll(1, dims=0))
        return of_inputs * before, of_inputs, None


def _scan(
    decays: Tensor, inputs: Tensor, sentences: Packed, *, is_reversed: bool = False
) -> Tensor:
    """Return the states [T, D] of all sentences; if ``is_reversed``, from their ends."""
    compute = _scan_by_position if inputs.device.type == "cpu" else _scan_by_doubling
    return compute(decays, inputs, sentences, is_reversed)


def _scan_by_position(
    decays: Tensor, inputs: Tensor, sentences: Packed, is_reversed: bool
) -> Tensor:
    """Compute one position of all sentences after the other: least work, L steps."""
    lengths = torch.tensor(sentences.lengths)
    starts = sentences.bounds[: len(lengths)].long()  # a padded shape has sentences without rows
    steps = torch.arange(max(sentences.lengths))[:, None]
    places = torch.minimum(steps, lengths - 1)  # L B; sentences that have ended repeat a row
    if is_reversed:
        places = lengths - 1 - places
    rows = starts + places
    decays, padded = decays[rows], inputs[rows]  # L B D
    states = torch.empty_like(padded)
    state = torch.zeros_like(padded[0])
    for position in range(len(padded)):
        state = torch.addcmul(padded[position], decays[position], state, out=states[position])
    found = torch.zeros_like(inputs)
    is_own = steps < lengths
    found[rows[is_own]] = states[is_own]
    return found


def _scan_by_doubling(
    decays: Tensor, inputs: Tensor, sentences: Packed, is_reversed: bool
) -> Tensor:
    """Compute all rows at once, from 1, 2, 4, ... rows before: log2(L) steps."""
    positions, direction = sentences.positions[:, None], -1 if is_reversed else 1
    distance = 1
    while distance < sentences.longest:
        shift = direction * distance
        # Both rows are of one sentence if the later one is at least ``distance`` from its start.
        is_own = (positions if shift > 0 else positions.roll(shift, dims=0)) >= distance
        if is_reversed:
            is_own[-distance:] = False  # rolled from the first rows
        inputs = torch.addcmul(inputs, decays, torch.where(is_own, inputs.roll(shift, dims=0), 0.0))
        decays = decays * torch.where(is_own, decays.roll(shift, dims=0), 0.0)
        distance *= 2
    return inputs
