"""What training does about a full memory: a probe before it, smaller micro-batches in it."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Generic, NamedTuple, TypeVar

import numpy as np
import torch

from nmt_cli import logs
from nmt_cli.corpus.binarized import BinarizedText
from nmt_cli.corpus.loader import Batch, ParallelTokens
from nmt_cli.engine.checkpoint import TrainingState
from nmt_cli.engine.ema import MovingAverage
from nmt_cli.engine.machine import Machine
from nmt_cli.engine.memory import give_up_memory_of, is_out_of_memory, largest_that_runs
from nmt_cli.engine.ranks import Ranks
from nmt_cli.engine.training_step import FullMemoryError, Gradient
from nmt_cli.errors import UserError
from nmt_cli.model.transformer import Transformer

HEADROOM = 0.1  # share of a GPU's memory that the probe leaves free: fragments need some

Result = TypeVar("Result")


class Computed(NamedTuple, Generic[Result]):
    """What was computed of a batch, and the micro-batches that fitted the memory."""

    result: Result
    batch: Batch


def fit_to_memory(
    machine: Machine,
    source: BinarizedText,
    target: BinarizedText,
    attempt: Callable[[ParallelTokens], None],
) -> Machine:
    """Return ``machine`` with micro-batches that fit the memory of every rank.

    On a GPU they are halved until ``attempt`` computes the largest ones. A CPU's limit stays the
    estimate it is, because a probe there meets the kernel's killer. Raises UserError where one
    sentence pair is too much, or the ``--max-tokens-per-device`` that the user chose.
    """
    wanted = fitting = machine.max_tokens
    longest = max(int(side.lengths.max()) for side in (source, target))
    is_too_low = machine.is_limit_chosen and wanted < longest  # refused later, on any device
    if machine.device.type == "cuda" and not is_too_low:

        def attempt_largest(max_tokens: int) -> None:
            for tokens in largest_micro_batches(source, target, max_tokens):
                attempt(tokens)

        fitting = largest_that_runs(wanted, longest, attempt_largest)
    fitting = machine.ranks.minimum(fitting)
    if fitting == 0:
        raise UserError(
            "the longest sentence pair does not fit the GPU's memory; lower data.max_length, "
            "or choose a smaller model."
        )
    if machine.is_limit_chosen and fitting < wanted:
        raise UserError(
            f"--max-tokens-per-device {wanted:,} does not fit the GPU's memory; give "
            f"--max-tokens-per-device {fitting}, which does, or leave the option out."
        )
    return machine._replace(max_tokens=fitting)


def largest_micro_batches(
    source: BinarizedText, target: BinarizedText, max_tokens: int
) -> Iterator[ParallelTokens]:
    """Yield the micro-batches that need the most memory.

    The pairs with the longest longer side need the most for attention, those that are long on both
    sides for everything else, because only they fill both sides of a micro-batch.
    """
    sides = (source.lengths, target.lengths)
    for key in (np.maximum(*sides), np.minimum(*sides)):
        pairs = np.argsort(key, kind="stable")[::-1][:max_tokens].astype(np.int64)
        ends = [np.cumsum(lengths[pairs], dtype=np.int64) for lengths in sides]
        count = min(int(end.searchsorted(max_tokens, side="right")) for end in ends)
        pairs = pairs[: max(1, count)]
        yield ParallelTokens(*source.gather(pairs), *target.gather(pairs))


def room_to_leave(state: TrainingState, machine: Machine) -> list[torch.Tensor]:
    """Return tensors as large as what a probe must leave free.

    That is what steps allocate later (Adam's moments, gradients in one piece for the exchange, the
    trained weights while their average is validated), and on a GPU the headroom.
    """
    copies = (0 if state.optimizer.state else 2) + (machine.ranks.size > 1)
    copies += state.average is not None
    parameters = list(state.model.parameters())
    room = [torch.empty_like(parameter) for parameter in parameters for _ in range(copies)]
    if machine.device.type == "cuda":
        spare = int(HEADROOM * torch.cuda.mem_get_info(machine.device)[1])
        room.append(torch.empty(spare, dtype=torch.uint8, device=machine.device))
    return room


def computed_within_memory(
    batch: Batch,
    compute: Callable[[Batch], Result],
    *,
    multiple_of: int = 1,
    is_shared: Callable[[RuntimeError], bool] = is_out_of_memory,
) -> Computed[Result]:
    """Return ``compute(batch)``; while memory is full, cut the batch into smaller micro-batches.

    ``is_shared`` says of an error whether every rank that computes this batch cuts it too. Raises
    the last error where not even single sentence pairs fit.
    """
    while True:
        try:
            return Computed(compute(batch), batch)
        except RuntimeError as error:
            if not is_shared(error) or batch.largest_side <= batch.longest:
                raise
            give_up_memory_of(error)
        batch = batch.cut(max(batch.longest, batch.largest_side // 2), multiple_of)


def gradient_within_memory(
    batch: Batch, machine: Machine, compute: Callable[[Batch], Gradient]
) -> tuple[Gradient, Machine]:
    """Return the gradient of ``batch``, and the machine for the batches to come.

    Where memory is full, all ranks cut the batch alike and try again. Later batches are then cut so
    from the start, unless the user chose the limit. Raises FullMemoryError on all ranks where not
    even single sentence pairs fit.
    """
    batch = batch.cut(machine.max_tokens, machine.multiple_of)
    gradient, fitting = computed_within_memory(
        batch,
        compute,
        multiple_of=machine.multiple_of,
        is_shared=partial(_is_shared, ranks=machine.ranks),
    )
    if fitting is batch:
        return gradient, machine
    text = (
        f"batch {batch.number:,} met a full memory with micro-batches of {batch.largest_side:,} "
        f"tokens a side and was computed with {fitting.largest_side:,}"
    )
    if machine.is_limit_chosen:
        logs.warning(f"{text}; --max-tokens-per-device stays {machine.max_tokens:,}.")
        return gradient, machine
    logs.warning(f"{text}, as later batches will be.")
    return gradient, machine._replace(max_tokens=fitting.largest_side)


def update_within_memory(average: MovingAverage, model: Transformer, step: int) -> None:
    """Update ``average``, where memory is full without the gradients of ``model``.

    The weights have moved already, and nothing can be saved before their average has followed.
    """
    try:
        average.update(model, step)
        return
    except RuntimeError as error:
        if not is_out_of_memory(error):
            raise
        give_up_memory_of(error)
    model.zero_grad(set_to_none=True)
    average.update(model, step)


def _is_shared(error: RuntimeError, ranks: Ranks) -> bool:
    """Return whether all ranks have raised the like of ``error`` for this batch."""
    return isinstance(error, FullMemoryError) or (ranks.size == 1 and is_out_of_memory(error))
